"""The study of the convex methods."""

import numpy as np
import pytest

from benchmarks import convex
from experiments.convex import PENALTY
from tfdp.erm import PrivateLogisticRegression


@pytest.fixture
def data(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 3)).astype("f4")
    y = (x[:, 0] > 0).astype("i4")
    np.savez(tmp_path / "iris.npz", x_train=x[:300], y_train=y[:300], x_test=x[300:], y_test=y[300:])
    return tmp_path


def study(data, monkeypatch, *more):
    file = data / "out" / "convex.jsonl"
    given = ["study", "--data-dir", data, "--cases", "iris", "--epsilons", "1", "5", "--runs", "2", "--json", file]
    given += ["--methods", "objective", "output", "input", "input, labels too"]
    monkeypatch.setattr("sys.argv", ["convex", *map(str, given), *more])
    convex.main()
    return file


def test_a_study_tunes_and_repeats_every_method_and_goes_on_where_it_was_stopped(data, monkeypatch, capsys):
    file = study(data, monkeypatch)
    lines = file.read_text().splitlines()
    # 1 without privacy; at two epsilons, grids of 4, 4, 2 and 2 three times, and two runs of four methods
    assert len(lines) == 1 + 2 * (3 * (4 + 4 + 2 + 2) + 2 * 4)
    first = capsys.readouterr().out
    study(data, monkeypatch)
    assert capsys.readouterr().out == first
    assert file.read_text().splitlines() == lines
    monkeypatch.setattr("sys.argv", ["convex", "table", "--json", str(file)])
    convex.main()
    table = capsys.readouterr().out
    assert all(line in table for line in first.splitlines())
    assert "| iris |  | no privacy | none |" in table
    assert "| iris | 5 | objective | 5 |" in table
    assert "| iris | 5 | input | features 5 |" in table
    assert "| iris | 5 | input, labels too | 5 |" in table


def test_the_gap_is_that_of_the_estimator(data):
    case = convex.load(data, "iris")
    model = PrivateLogisticRegression(epsilon=5.0, clip_norm=case.clip, regularization=PENALTY).fit(case.x, case.y)
    assert case.gap(model) == pytest.approx(model.optimality_gap(case.x, case.y), abs=1e-6)
