"""The benchmark of audits."""

import numpy as np
import pytest

from benchmarks import audit_methods, audits
from tfdp.accounting.gdp import mu_for


def test_who_sees_nothing_is_right_half_of_the_time_and_who_sees_all_always():
    assert audits.right_guesses(0.0, 1000, 1000) == pytest.approx(500, abs=15)
    assert audits.right_guesses(50.0, 1000, 400) == 400


def test_a_table_has_medians_over_the_seeds_and_the_least_p_value(capsys):
    key = {"method": "noisy", "epsilon": 4.0, "canaries": 1000, "guesses": 100, "proven": 3.9933}
    values = [(80, 0.9, 1.4, 0.5), (90, 1.6, 2.4, 0.01), (85, 1.2, 1.9, 1.0)]
    names = ("correct", "bound", "gaussian", "p_value")
    audits.table([key | {"seed": seed, **dict(zip(names, row, strict=True))} for seed, row in enumerate(values)])
    row = "| noisy | 4 | 3.99 | 1,000 | 3 | 85 of 100 | 1.20 (0.90 to 1.60) | 1.90 | 0.01 |"
    assert capsys.readouterr().out.splitlines()[-1] == row


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


def test_the_proven_noise_on_records_is_audited_with_records_as_far_apart_as_its_claim_allows():
    scores, included, proven = audit_methods.scores_on_records(audit_methods.PROVEN, 4.0, 0, 400)
    apart = scores[included].mean() - scores[~included].mean()
    stddev = 2 / mu_for(4.0, audit_methods.DELTA)
    assert proven <= 4.0 and abs(apart - 2) < 5 * 2 * stddev / 400**0.5
    assert audit_methods.guesses_of(audit_methods.PROVEN, 400) == 40


def test_randomised_labels_are_right_as_often_as_their_claim_allows():
    scores, included, proven = audit_methods.scores_on_records(audit_methods.LABELS, 2.0, 0, 4000)
    expected = 1 / (1 + np.exp(-2.0))
    assert proven == pytest.approx(2.0)
    assert abs((scores == included).mean() - expected) < 5 * (expected * (1 - expected) / 4000) ** 0.5


@pytest.mark.parametrize("seen", audit_methods.SEEN)
@pytest.mark.parametrize("method", ["eq12", "influence"])
def test_canaries_among_noised_records_show_in_the_records_and_in_the_model(method, seen):
    scores, included, proven = audit_methods.scores_on_records(f"{method}-{seen}", 50.0, 0, 40)
    assert proven is None or proven > 1000  # of eq. 12 that of the records, which is no claim of the paper's
    if seen == "records":
        np.testing.assert_allclose(scores, included, atol=0.1)
    assert scores[included].min() > scores[~included].max()


def test_published_noise_lies_where_the_public_direction_does():
    optimizer = audit_methods.optimizer_of("published-concentrated", 4.0)
    own = [
        audit_methods.away_from_canaries(Weight(path))
        for path in ("sequential/dense/kernel", "a_b/canaries_0/embeddings")
    ]
    assert [array.tolist() for array in own] == [[1.0, 1.0], [audit_methods.NEXT_TO_NOTHING] * 2]
    assert optimizer.mechanism.direction is audit_methods.away_from_canaries


class Weight:
    shape = (2,)

    def __init__(self, path):
        self.path = path
