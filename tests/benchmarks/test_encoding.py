"""The study of encoded gradients."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from benchmarks import directional, encoding


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Its arguments, on a data set of 200 records; the tables of other studies stay as they are."""
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 4)).astype("f4")
    y = (x[:, 0] > 0).astype("i4")
    np.savez(tmp_path / "mnist.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    case = dataclasses.replace(
        encoding.CASES["mnist, encoding"],
        build=lambda x: keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]),
        prepare=lambda x: x,
        lot=50,
        epochs=1,
        learning_rates=(0.1,),
        clips=(1.0,),
        own_rates={"student, encoded, denoised": (20.0,)},
    )
    monkeypatch.setitem(encoding.CASES, "mnist, encoding", case)
    monkeypatch.setattr(directional, "METHODS", dict(directional.METHODS))
    monkeypatch.setattr(directional, "CASES", dict(directional.CASES))
    short = {
        name: (kinds, own | ({"codebook_size": 5} if kinds is encoding.ENCODED else {}))
        for name, (kinds, own) in encoding.METHODS.items()
    }
    monkeypatch.setattr(encoding, "METHODS", short)
    file = tmp_path / "study.jsonl"
    given = ["study", "--data-dir", str(tmp_path), "--epsilons", "3", "--tuning-epsilon", "3", "--seeds", "1"]
    return [*given, "--json", str(file)], file


def test_a_study_tunes_and_runs_encoded_and_noisy_methods_at_one_epsilon(study, monkeypatch, capsys):
    given, file = study
    methods = ["noisy, denoised", "student, encoded, denoised"]
    monkeypatch.setattr("sys.argv", ["encoding", *given, "--methods", *methods])
    encoding.main()
    runs = [json.loads(line)["run"] for line in file.read_text().splitlines()]
    assert [run[1] for run in runs] == [methods[0]] * 2 + [methods[1]] * 2  # tuned, then one seed
    assert [run[3] for run in runs] == [0.1] * 2 + [20.0] * 2  # a method's own rates
    assert capsys.readouterr().out.count("| mnist, encoding | 3 |") == 2


def test_a_million_weights_are_a_million():
    workload = encoding.workload_of("million@64")
    assert workload.model().count_params() == workload.weights > 10**6
    assert workload.lot == 64
    assert workload.records(3)[0].shape == (3, 784)


def test_a_setting_from_elsewhere_is_not_tuned(study, monkeypatch):
    given, file = study
    monkeypatch.setattr("sys.argv", ["encoding", *given, "--methods", "noisy", "--setting", "0.3", "2"])
    encoding.main()
    assert [json.loads(line)["run"][1:] for line in file.read_text().splitlines()] == [
        ["noisy", 3.0, 0.3, 2.0, 0, False]
    ]
