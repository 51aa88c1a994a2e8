"""Which claims a run gives, and with which status."""

import math

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from tests.report import runs
from tfdp.accounting import (
    Codebook,
    EncodedEvent,
    FixedSize,
    GaussianEvent,
    Ledger,
    MicrobatchedEvent,
    Poisson,
    Relation,
    Shuffled,
    Status,
    epsilon,
    finite_support_delta,
    gdp_mu,
)
from tfdp.accounting.claims import MEMBERSHIP
from tfdp.noise import Laplace
from tfdp.report.claims import INFORMATION

BOOK = Codebook(runs.WEIGHTS, size=2)
ENCODED = EncodedEvent(Laplace(1.0), BOOK)


def dp_accounting_epsilon(accountant, noise: float, steps: int, delta: float) -> float:
    step = dp_accounting.PoissonSampledDpEvent(256 / 60000, dp_accounting.GaussianDpEvent(noise))
    return accountant.compose(step, steps).get_epsilon(delta)


# One kind of steps
def test_steps_of_one_kind_are_proven_at_what_dp_accounting_finds():
    made = runs.statement(runs.SINGLE, runs.fit(14062), delta=1e-5)
    assert made.epsilon == pytest.approx(dp_accounting_epsilon(PLDAccountant(), 1.1, 14062, 1e-5), rel=1e-3)
    assert made.epsilon == pytest.approx(2.382, abs=1e-3)  # docs/accounting.md, the second row of MNIST
    assert runs.main(made).status is Status.PROVEN
    assert runs.main(made).reasons == ()


def test_the_renyi_bound_is_proven_too_and_never_the_smallest():
    made = runs.statement(runs.SINGLE, delta=1e-5)
    claim = runs.by(made, "rdp")
    assert claim.status is Status.PROVEN
    assert claim.epsilon == pytest.approx(dp_accounting_epsilon(RdpAccountant(), 1.1, 14062, 1e-5), rel=1e-6)
    assert made.epsilon < claim.epsilon


def test_the_central_limit_lies_below_the_proven_epsilon_and_never_stands_for_it():
    made = runs.statement(runs.SINGLE, delta=1e-5)
    claim = runs.by(made, "gdp")
    assert claim.status is Status.APPROXIMATE
    assert claim.epsilon < made.epsilon
    assert claim.mu == pytest.approx(gdp_mu(sampling_rate=256 / 60000, noise_multiplier=1.1, steps=14062))
    assert "no bound" in claim.reasons[0]


def test_information_is_as_published_and_no_claim_of_membership():
    made = runs.statement(runs.ledger(8.0, steps=1), delta=1e-5)
    claim = made.claims[-1]
    found = epsilon(runs.ledger(8.0, steps=1), delta=1e-5)
    assert (claim.protects, claim.status, claim.neighbours) == (INFORMATION, Status.AS_PUBLISHED, None)
    assert f"{found * math.expm1(found) / 2:.4g} nats" in claim.how
    assert len(claim.reasons) == 1


@pytest.mark.parametrize(
    ("sampling", "relation"),
    [
        (runs.LOTS, Relation.ZERO_OUT),
        (Poisson(0.01, 60000, public_size=True), Relation.ADD_OR_REMOVE),
        (Shuffled(60000, 256, 235), Relation.ZERO_OUT),
    ],
)
def test_the_claim_is_about_the_neighbours_of_the_runs_own_sampling(sampling, relation):
    made = runs.statement(runs.ledger(1.1, sampling=sampling), delta=1e-6)
    assert made.relation is relation
    assert {claim.neighbours for claim in made.claims if claim.protects == MEMBERSHIP} == {relation}


def test_lots_of_a_fixed_size_are_priced_by_renyi_and_not_proven():
    made = runs.statement(runs.ledger(1.1, sampling=FixedSize(60000, 256)), delta=1e-5)
    assert runs.main(made) == runs.by(made, "rdp")
    assert runs.main(made).status is Status.APPROXIMATE
    assert runs.main(made).neighbours is Relation.REPLACE_ONE
    assert made.epsilon is None


@pytest.mark.parametrize("event", [ENCODED, MicrobatchedEvent(Laplace(1.0), BOOK, 4)])
def test_what_no_accountant_prices_is_not_claimed_and_the_reason_is_the_accountants(event):
    made = runs.statement(Ledger().record(event, FixedSize(60000, 256), 10), delta=1e-5)
    (claim,) = made.claims
    assert claim.status is Status.NONE and made.epsilon is None
    if event is ENCODED:
        assert claim.reasons[0] == "No accountant can price this run."
        assert any("lies under no codeword" in reason for reason in claim.reasons)


# No claim, nothing released
def test_a_line_that_is_not_private_leaves_no_claim_and_says_why():
    made = runs.statement(
        Ledger.combined(runs.SINGLE, runs.not_private("noise_seed was given: known noise")), delta=1e-5
    )
    (claim,) = made.claims
    assert (claim.status, claim.epsilon, claim.reasons) == (
        Status.NONE,
        math.inf,
        ("noise_seed was given: known noise",),
    )
    assert made.epsilon is None


@pytest.mark.parametrize("noise", [0.0, 1e-200])
def test_noise_that_is_none_or_hardly_any_leaves_no_claim(noise):
    (claim,) = runs.statement(runs.ledger(noise), delta=1e-5).claims
    assert (claim.status, claim.epsilon) == (Status.NONE, math.inf)
    assert claim.reasons


def test_of_nothing_epsilon_is_zero_and_proven():
    made = runs.statement(Ledger())
    assert made.epsilon == 0
    (claim,) = made.claims
    assert (claim.status, claim.how) == (Status.PROVEN, "nothing was released")


def test_ordinary_training_leaves_no_claim():
    (claim,) = runs.statement(Ledger(), private_optimizer=False).claims
    assert (claim.status, claim.epsilon) == (Status.NONE, math.inf)


# Several kinds of steps
def test_several_kinds_of_steps_are_approximate_with_the_cure():
    made = runs.statement(runs.SEVERAL, runs.fit(200), delta=1e-5)
    assert runs.main(made).status is Status.APPROXIMATE
    assert runs.main(made).epsilon == pytest.approx(epsilon(runs.SEVERAL, delta=1e-5))
    assert "settings_fixed_beforehand=True" in runs.main(made).reasons[0]
    assert made.epsilon is None


def test_several_kinds_of_steps_are_proven_on_the_callers_word_which_is_printed():
    made = runs.statement(runs.SEVERAL, runs.fit(200), delta=1e-5, settings_fixed_beforehand=True)
    assert made.epsilon == pytest.approx(epsilon(runs.SEVERAL, delta=1e-5))
    assert "Declared by the caller" in runs.main(made).reasons[0]
    assert "Declared by the caller" in " ".join(str(made).split())


def test_the_callers_word_changes_nothing_for_one_kind_of_steps():
    assert runs.statement(runs.SINGLE, delta=1e-5, settings_fixed_beforehand=True) == runs.statement(
        runs.SINGLE, delta=1e-5
    )


# Tails
def test_what_the_tails_cost_is_taken_off_delta():
    weights, steps, noise = 10**6, 100, 0.24
    made = runs.statement(runs.ledger(noise, steps=steps), runs.fit(steps, weights=weights), delta=1e-5)
    price = finite_support_delta(weights, steps, noise)
    assert 1e-7 < price < 1e-5
    assert made.epsilon == pytest.approx(epsilon(runs.ledger(noise, steps=steps), delta=1e-5 - price), rel=1e-12)
    assert made.epsilon > epsilon(runs.ledger(noise, steps=steps), delta=1e-5)
    assert runs.main(made).delta == 1e-5
    assert f"{price:.2g} of delta" in runs.main(made).how


def test_the_prices_of_several_lines_and_of_planned_steps_add_up():
    fits = [runs.fit(200, watchers=(runs.VAL_STOP,), planned=runs.ledger(1.1, 0.9, steps=150))]
    facts = runs.facts(runs.SEVERAL, *fits)
    price = finite_support_delta(runs.WEIGHTS, 150, 1.1) + finite_support_delta(runs.WEIGHTS, 150, 0.9)
    assert facts.price_of_tails(facts.priced) == pytest.approx(price)


def test_tails_that_cost_more_than_delta_leave_nothing_proven():
    made = runs.statement(runs.ledger(0.15), delta=1e-5)
    assert made.epsilon is None
    assert runs.main(made).status is Status.APPROXIMATE
    assert "standard deviations" in runs.main(made).reasons[0]


def test_steps_that_no_fit_describes_count_all_weights_of_the_model():
    assert runs.facts(runs.ledger(1.1), runs.fit(60, weights=10)).weights == runs.WEIGHTS
    assert runs.facts(runs.ledger(1.1), runs.fit(100, weights=10)).weights == 10
    assert runs.facts(runs.ledger(1.1), runs.fit(50, weights=10), runs.fit(50, weights=20)).weights == 20


def test_releases_without_sampling_have_one_price_by_both_exact_accountants():
    made = runs.statement(Ledger().record(GaussianEvent(10.0), runs.DECLARED, 235), delta=1e-5)
    assert runs.by(made, "gdp").mu == pytest.approx(0.1)
    assert runs.by(made, "gdp").status is Status.PROVEN
    assert runs.by(made, "gdp").epsilon == pytest.approx(made.epsilon)
