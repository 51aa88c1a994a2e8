"""The study of the convex methods."""

import pytest

from benchmarks import convex, kang_2020
from experiments.convex import PENALTY, gap
from tests.benchmarks.test_kang_2020 import small_case, study
from tfdp.erm import PrivateLogisticRegression


def test_a_study_tunes_and_repeats_every_method_and_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    methods = ["objective", "output", "gradient descent", "input", "input, labels too"]
    arguments = ["--epsilons", "1", "5", "--runs", "2", "--methods", *methods]
    file = study(convex, tmp_path, monkeypatch, *arguments)
    lines = file.read_text().splitlines()
    # 1 without privacy; at two epsilons three grids of 4 three times, and two runs of five methods
    assert len(lines) == 1 + 2 * (3 * (4 + 4 + 4) + 2 * 5)
    first = capsys.readouterr().out
    study(convex, tmp_path, monkeypatch, *arguments)
    assert capsys.readouterr().out == first
    assert file.read_text().splitlines() == lines
    monkeypatch.setattr("sys.argv", ["convex", "table", "--json", str(file)])
    convex.main()
    table = capsys.readouterr().out
    assert "| method | proven | 1 | 5 |" in table
    assert "| no privacy | none |" in table
    assert "| gradient descent | as nominal |" in table
    assert "| input | features as nominal |" in table
    assert "| input, labels too | as nominal |" in table


def test_the_slow_methods_run_in_small_and_say_what_is_proven(tmp_path, monkeypatch, capsys):
    """Bolt-on SGD, noisy SGD, the paper's noise on records, and DBDP: one run each, one value for each."""
    methods = ["bolt-on SGD", "gradient, all records", "input, as published", "DBDP"]
    for method in methods:
        monkeypatch.setitem(convex.FAMILY.grids, method, (1.0,))
    study(convex, tmp_path, monkeypatch, "--epsilons", "1", "--runs", "1", "--methods", *methods)
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [row[3] for row in rows] == methods
    bolt_on, noisy_sgd, *on_records = (row[2] for row in rows)
    assert bolt_on == "1"
    assert 0.95 < float(noisy_sgd) <= 1  # of the ledger
    assert on_records == ["none", "none"]


def test_the_gap_is_that_of_the_estimator():
    case = small_case()
    model = PrivateLogisticRegression(epsilon=5.0, clip_norm=case.clip, regularization=PENALTY)
    model.fit(case.x, case.y)
    assert gap(case, model) == pytest.approx(model.optimality_gap(case.x, case.y), abs=1e-6)


def test_every_method_has_one_number_that_is_tuned():
    assert list(convex.FAMILY.grids) == list(convex.METHODS)
    assert isinstance(convex.FAMILY, kang_2020.Family)
