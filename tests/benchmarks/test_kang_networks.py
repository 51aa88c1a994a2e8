"""The study of the papers' networks."""

import keras
import pytest

from benchmarks import kang_networks
from tests.benchmarks.test_kang_2020 import small_case, study


def test_every_method_runs_in_small_and_says_what_is_proven(tmp_path, monkeypatch, capsys):
    for method in kang_networks.METHODS:
        monkeypatch.setitem(kang_networks.FAMILY.grids, method, (1.0,))
    monkeypatch.setattr(kang_networks, "INFLUENCE_STEPS", 10)
    study(kang_networks, tmp_path, monkeypatch, "--epsilons", "5", "--runs", "1")
    rows = {row[3]: row for row in (line.split(" | ") for line in capsys.readouterr().out.splitlines())}
    assert list(rows) == list(kang_networks.METHODS)
    for method in ("gradient", "DP-LSSGD", "input, labels too"):
        assert 4.8 < float(rows[method][2]) <= 5
    assert rows["input"][2] == "features 5"
    assert rows["DBDP"][2] == "none"


def test_a_gap_is_the_loss_beyond_that_of_the_network_without_privacy():
    case = small_case()
    found = kang_networks.run(case, "input, labels too", 1.0, 0.003, with_gap=True)
    assert found["gap"] == pytest.approx(found["loss"] - kang_networks.without_privacy(case)["loss"])
    assert found["gap"] > 0


def test_a_network_is_as_wide_as_its_records_and_sees_features_of_at_most_one():
    keras.utils.set_random_seed(0)
    case = small_case()
    model = kang_networks.ordinary(case)
    assert kang_networks.accuracy(case, model) > 80  # 50 is guessing
    assert [weight.shape for weight in model.trainable_weights] == [(3, 3), (3,), (3, 2), (2,)]
    lengths = (kang_networks.features(case, case.x) ** 2).sum(axis=1) ** 0.5
    assert 0.99 < lengths.max() <= 1.0001
