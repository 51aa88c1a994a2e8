"""What a paper claims stands beside what is proven, with its reason."""

import json
import math

import pytest

from tests.report import runs
from tfdp.accounting import GaussianEvent, Ledger, PublishedEvent, Status

REASON = "The paper's argument has a hole."


def published(noise_multiplier=None, epsilon=1.0, delta=1e-5) -> PublishedEvent:
    return PublishedEvent(epsilon, delta, REASON, noise_multiplier)


def ledger(*events, steps=100) -> Ledger:
    made = Ledger()
    for event in events:
        made = made.record(event, runs.LOTS, steps)
    return made


def claimed(statement):
    return [c for c in statement.claims if c.status is Status.AS_PUBLISHED and c.delta]


def test_without_a_bound_beforehand_nothing_is_proven():
    statement = runs.statement(ledger(published()), runs.fit(), delta=1e-5)
    assert statement.epsilon is None
    none, one = statement.claims
    assert (none.epsilon, none.status, none.reasons) == (math.inf, Status.NONE, (REASON,))
    assert (one.epsilon, one.delta, one.status, one.reasons) == (1.0, 1e-5, Status.AS_PUBLISHED, (REASON,))
    assert [limit.text for limit in statement.not_protected] == ["Everything: nothing is proven of this training."]


def test_with_one_the_proof_is_that_of_gaussian_noise():
    statement = runs.statement(ledger(published(1.1)), runs.fit(), delta=1e-5)
    same = runs.statement(ledger(GaussianEvent(1.1)), runs.fit(), delta=1e-5)
    assert statement.epsilon == same.epsilon
    assert [c for c in statement.claims if c not in claimed(statement)] == list(same.claims)
    (one,) = claimed(statement)
    assert (one.epsilon, one.reasons) == (1.0, (REASON,))


def test_a_published_claim_below_the_proven_one_is_not_the_statements():
    statement = runs.statement(ledger(published(1.1, epsilon=1e-3)), runs.fit(), delta=1e-5)
    assert statement.epsilon > 1e-3
    assert statement.best.status is Status.PROVEN


@pytest.mark.parametrize("other", [GaussianEvent(1.1), published(1.1, epsilon=2.0)])
def test_beside_other_steps_it_says_which_it_is_about(other):
    statement = runs.statement(ledger(published(1.1), other), runs.fit(200), delta=1e-5)
    assert all("It is about 100 of the 200 steps alone." in claim.reasons for claim in claimed(statement))


def test_in_words_it_has_its_status_and_its_reason():
    text = " ".join(str(runs.statement(ledger(published(1.1)), runs.fit(), delta=1e-5)).split())
    assert "known beforehand to be no less than 1.1 times the clip" in text
    assert "AS PUBLISHED: epsilon = 1 at delta = 1e-05 (the paper's own theorem, Xiang et al. 2021" in text
    assert REASON in text
    assert "no bound on it is known beforehand" in str(runs.statement(ledger(published()), runs.fit(), delta=1e-5))


def test_machines_read_the_same():
    found = json.loads(runs.statement(ledger(published()), runs.fit(), delta=1e-5).to_json())
    assert [claim["status"] for claim in found["claims"]] == ["none", "as published"]
    assert found["released"][0]["event"]["claimed_epsilon"] == 1.0
    assert found["epsilon"] is None
