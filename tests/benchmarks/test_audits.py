"""The benchmark of audits."""

import pytest

from benchmarks import audits


def test_who_sees_nothing_is_right_half_of_the_time_and_who_sees_all_always():
    assert audits.right_guesses(0.0, 1000, 1000) == pytest.approx(500, abs=15)
    assert audits.right_guesses(50.0, 1000, 400) == 400


def test_a_table_has_medians_over_the_seeds_and_the_least_p_value(capsys):
    key = {"method": "noisy", "epsilon": 4.0, "canaries": 1000, "guesses": 100}
    values = [(80, 0.9, 1.4, 0.5), (90, 1.6, 2.4, 0.01), (85, 1.2, 1.9, 1.0)]
    names = ("correct", "bound", "gaussian", "p_value")
    audits.table([key | {"seed": seed, **dict(zip(names, row, strict=True))} for seed, row in enumerate(values)])
    assert capsys.readouterr().out.splitlines()[-1] == "| noisy | 4 | 1,000 | 3 | 85 of 100 | 1.20 | 1.90 | 0.01 |"


def test_a_study_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(audits, "audited", lambda *key, **size: calls.append(key) or {"correct": 80})
    file = tmp_path / "results" / "audits.jsonl"
    arguments = ["audits", "study", "--methods", "noisy", "encoded", "--epsilons", "4", "--json", str(file)]
    for seeds in ("1", "2"):
        monkeypatch.setattr("sys.argv", [*arguments, "--seeds", seeds])
        audits.main()
    assert calls == [("noisy", 4.0, 0), ("encoded", 4.0, 0), ("noisy", 4.0, 1), ("encoded", 4.0, 1)]
    assert len(audits.read(file)) == 4
