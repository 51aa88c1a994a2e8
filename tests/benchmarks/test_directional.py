"""The study of directional noise."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from benchmarks import directional
from experiments.results import Results


@pytest.fixture
def data(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 4)).astype("f4")
    y = (x[:, 0] > 0).astype("i4")
    np.savez(tmp_path / "adult.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    case = dataclasses.replace(
        directional.CASES["adult"],
        build=lambda x: keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]),
        lot=50,
        epochs=1,
        learning_rates=(0.1,),
        clips=(1.0,),
    )
    monkeypatch.setitem(directional.CASES, "adult", case)
    return tmp_path


def test_a_study_tunes_and_repeats_every_method_and_goes_on_where_it_was_stopped(data, monkeypatch, capsys):
    file = data / "out" / "study.jsonl"
    given = [
        "study",
        "--data-dir",
        str(data),
        "--cases",
        "adult",
        "--epsilons",
        "3",
        "--tuning-epsilon",
        "3",
        "--seeds",
        "2",
        "--json",
        str(file),
    ]
    given += ["--methods", "isotropic", "directional"]
    monkeypatch.setattr("sys.argv", ["directional", *given])
    directional.main()
    runs = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["run"][1] for one in runs] == 3 * ["isotropic"] + 3 * ["directional"]  # one of the grid, two seeds
    assert all(0 <= one["score"] <= 100 for one in runs)
    printed = capsys.readouterr().out
    assert printed.count("| adult | 3 |") == 2
    monkeypatch.setattr("sys.argv", ["directional", "table", "--json", str(file)])
    directional.main()
    assert capsys.readouterr().out.endswith(printed)
    monkeypatch.setattr("sys.argv", ["directional", *given])
    monkeypatch.setattr(directional, "run", None)  # nothing is run twice
    directional.main()
    assert len(file.read_text().splitlines()) == len(runs)


def test_the_cost_of_every_method_is_told_beside_isotropic_noise(monkeypatch, capsys):
    tiny = dataclasses.replace(
        directional.workloads.get("mlp@16"), steps=2, build=lambda: keras.Sequential([keras.layers.Dense(2)])
    )
    monkeypatch.setattr(directional.workloads, "get", lambda name: tiny)
    monkeypatch.setattr("sys.argv", ["directional", "cost", "--repeats", "1"])
    directional.main()
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[0].lstrip("| ") for row in rows] == list(directional.METHODS)
    assert rows[0].endswith("| 1.00 |")


def test_the_table_shows_runs_at_the_settings_that_tuning_finds_best(tmp_path, monkeypatch, capsys):
    results = Results(tmp_path / "study.jsonl")
    for rate, held_out, score in ((0.01, True, 80.0), (0.1, True, 85.0), (0.01, False, 81.0), (0.1, False, 86.04)):
        results.add(("adult", "isotropic", 1.0, rate, 1.0, 0, held_out), score)
    for seed, rmse in enumerate((-0.95, -0.93)):
        results.add(("movielens", "isotropic", 1.0, 0.03, 1.0, seed, False), rmse)
    monkeypatch.setattr("sys.argv", ["directional", "table", "--json", str(tmp_path / "study.jsonl")])
    directional.main()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| adult | 1 | isotropic | 86.0 | 86.0 to 86.0 | 1 | 0.1 | 1 |",
        "| movielens | 1 | isotropic | 0.940 | 0.930 to 0.950 | 2 | 0.03 | 1 |",
    ]
