"""Which claims a run gives, and with which status."""

import dataclasses
import math

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from tests.report import runs
from tfdp.accounting import (
    Codebook,
    EncodedEvent,
    FitRecord,
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    MicrobatchedEvent,
    Poisson,
    Relation,
    Schedule,
    Shuffled,
    Status,
    Watcher,
    epsilon,
    gdp_mu,
)
from tfdp.accounting.claims import MEMBERSHIP
from tfdp.mechanisms import finite_support_delta
from tfdp.noise import Laplace
from tfdp.report.claims import INFORMATION

BOOK = Codebook(runs.WEIGHTS, size=2)
ENCODED = EncodedEvent(Laplace(1.0), BOOK)
SINGLE = runs.ledger(1.1, steps=14062)
SEVERAL = runs.ledger(1.1, 0.9)


def dp_accounting_epsilon(accountant, noise: float, steps: int, delta: float) -> float:
    step = dp_accounting.PoissonSampledDpEvent(256 / 60000, dp_accounting.GaussianDpEvent(noise))
    return accountant.compose(step, steps).get_epsilon(delta)


# One kind of steps


def test_steps_of_one_kind_are_proven_at_what_dp_accounting_finds():
    made = runs.statement(SINGLE, runs.fit(14062), delta=1e-5)
    assert made.epsilon == pytest.approx(dp_accounting_epsilon(PLDAccountant(), 1.1, 14062, 1e-5), rel=1e-3)
    assert made.epsilon == pytest.approx(2.382, abs=1e-3)  # docs/accounting.md, the second row of MNIST
    assert runs.main(made).status is Status.PROVEN
    assert runs.main(made).reasons == ()


def test_the_renyi_bound_is_proven_too_and_never_the_smallest():
    made = runs.statement(SINGLE, delta=1e-5)
    claim = runs.by(made, "rdp")
    assert claim.status is Status.PROVEN
    assert claim.epsilon == pytest.approx(dp_accounting_epsilon(RdpAccountant(), 1.1, 14062, 1e-5), rel=1e-6)
    assert made.epsilon < claim.epsilon


def test_the_central_limit_lies_below_the_proven_epsilon_and_never_stands_for_it():
    made = runs.statement(SINGLE, delta=1e-5)
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
    made = runs.statement(Ledger.combined(SINGLE, runs.not_private("noise_seed was given: known noise")), delta=1e-5)
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
    made = runs.statement(SEVERAL, runs.fit(200), delta=1e-5)
    assert runs.main(made).status is Status.APPROXIMATE
    assert runs.main(made).epsilon == pytest.approx(epsilon(SEVERAL, delta=1e-5))
    assert "settings_fixed_beforehand=True" in runs.main(made).reasons[0]
    assert made.epsilon is None


def test_several_kinds_of_steps_are_proven_on_the_callers_word_which_is_printed():
    made = runs.statement(SEVERAL, runs.fit(200), delta=1e-5, settings_fixed_beforehand=True)
    assert made.epsilon == pytest.approx(epsilon(SEVERAL, delta=1e-5))
    assert "Declared by the caller" in runs.main(made).reasons[0]
    assert "Declared by the caller" in " ".join(str(made).split())


def test_the_callers_word_changes_nothing_for_one_kind_of_steps():
    assert runs.statement(SINGLE, delta=1e-5, settings_fixed_beforehand=True) == runs.statement(SINGLE, delta=1e-5)


# Releases on a schedule


EVERY_50 = Schedule(GaussianEvent(20.0), FullBatch(60000), 50)


def scheduled(steps: int, releases: int, **circumstances) -> tuple[Ledger, FitRecord]:
    made = Ledger.combined(runs.ledger(20.0, steps=releases, sampling=FullBatch(60000)), runs.ledger(1.1, steps=steps))
    return made, runs.fit(steps + releases, schedule=EVERY_50, scheduled=releases, **circumstances)


@pytest.mark.parametrize(("steps", "releases"), [(0, 1), (100, 2), (100, 3), (101, 3)])
def test_a_beginning_of_one_schedule_is_proven(steps, releases):
    made = runs.statement(*scheduled(steps, releases), delta=1e-5)
    step = dp_accounting.PoissonSampledDpEvent(256 / 60000, dp_accounting.GaussianDpEvent(1.1))
    counted = PLDAccountant().compose(step, steps) if steps else PLDAccountant()
    expected = counted.compose(dp_accounting.GaussianDpEvent(20.0), releases).get_epsilon(1e-5)
    assert runs.main(made).status is Status.PROVEN
    assert runs.main(made).reasons == ()
    assert made.epsilon == pytest.approx(expected, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize(("steps", "releases"), [(100, 1), (100, 4), (101, 2), (1, 2)])
def test_what_is_no_beginning_of_the_schedule_is_not(steps, releases):
    made = runs.statement(*scheduled(steps, releases), delta=1e-5)
    assert (runs.main(made).status, made.epsilon) == (Status.APPROXIMATE, None)


def test_two_kinds_of_steps_are_two_on_a_schedule_as_well():
    ledger, record = scheduled(100, 2)
    other = runs.ledger(0.9, steps=50)
    again = runs.fit(50, schedule=EVERY_50)
    made = runs.statement(Ledger.combined(ledger, other), record, again, delta=1e-5)
    assert made.epsilon is None
    assert "3 kinds of steps" in runs.main(made).reasons[0]


def test_steps_that_no_fit_describes_are_on_no_schedule():
    ledger, record = scheduled(100, 2)
    described = dataclasses.replace(record, steps=52, scheduled=2)
    assert runs.statement(ledger, described, delta=1e-5).epsilon is None
    assert runs.statement(ledger, delta=1e-5).epsilon is None


def test_a_schedule_that_a_callback_may_have_ended_is_priced_at_its_plan():
    planned, _ = scheduled(300, 6)
    ledger, record = scheduled(120, 3, watchers=(runs.VAL_STOP,), planned=planned)
    made = runs.statement(ledger, record, delta=1e-5)
    assert made.epsilon == pytest.approx(epsilon(planned, delta=1e-5))


# Callbacks


@pytest.mark.parametrize("action", ["stops training", "chooses weights", "changes the learning rate"])
def test_acting_on_a_training_metric_leaves_nothing_proven(action):
    watcher = dataclasses.replace(runs.LOSS_STOP, action=action)
    made = runs.statement(runs.ledger(1.1), runs.fit(watchers=(watcher,), budgets=(runs.filter_budget(),)), delta=1e-5)
    assert made.epsilon is None
    memberships = [claim for claim in made.claims if claim.protects == MEMBERSHIP]
    assert len(memberships) == 4
    for claim in memberships:
        assert claim.status is Status.APPROXIMATE
        assert any(f"EarlyStopping {action} by loss" in reason and "val_loss" in reason for reason in claim.reasons)


def test_a_training_metric_that_is_named_like_one_of_validation_is_not_advised_again():
    watcher = Watcher("EarlyStopping", "val_acc", "stops training", validation=False)
    made = runs.statement(runs.ledger(1.1), runs.fit(watchers=(watcher,)), delta=1e-5)
    (reason,) = runs.main(made).reasons
    assert "by val_acc, which is computed from training records" in reason
    assert "validation_data that holds other records" in reason
    assert "val_loss" not in reason


def test_the_callers_word_does_not_cover_training_metrics():
    made = runs.statement(
        runs.ledger(1.1), runs.fit(watchers=(runs.LOSS_STOP,)), delta=1e-5, settings_fixed_beforehand=True
    )
    assert made.epsilon is None


@pytest.mark.parametrize("watcher", [runs.VAL_STOP, runs.UNKNOWN])
def test_training_that_a_callback_may_have_ended_is_priced_at_the_plan(watcher):
    fit = runs.fit(120, watchers=(watcher,), planned=runs.ledger(1.1, steps=300))
    made = runs.statement(runs.ledger(1.1, steps=120), fit, delta=1e-5)
    assert made.epsilon == pytest.approx(epsilon(runs.ledger(1.1, steps=300), delta=1e-5))
    assert "priced at the 300 steps that were planned, 120 of which were taken" in runs.main(made).how


def test_steps_not_taken_without_a_callback_are_listed_not_priced():
    fit = runs.fit(120, planned=runs.ledger(1.1, steps=300))
    made = runs.statement(runs.ledger(1.1, steps=120), fit, delta=1e-5)
    assert made.epsilon == pytest.approx(epsilon(runs.ledger(1.1, steps=120), delta=1e-5))
    assert "ended_early" in {limit.id for limit in made.not_protected}


def test_a_checkpoint_that_was_chosen_is_priced_at_the_plan():
    """Which of 300 steps' weights are the best is known only after all 300."""
    watcher = dataclasses.replace(runs.VAL_STOP, action="chooses weights")
    fit = runs.fit(10, watchers=(watcher,), planned=runs.ledger(1.1, steps=300))
    made = runs.statement(runs.ledger(1.1, steps=10), fit, delta=1e-5)
    assert made.epsilon == pytest.approx(epsilon(runs.ledger(1.1, steps=300), delta=1e-5))


def test_a_plan_that_was_carried_out_is_not_paid_for_twice():
    fits = [runs.fit(50, watchers=(runs.VAL_STOP,), planned=runs.ledger(1.1, steps=100)) for _ in range(2)]
    made = runs.statement(runs.ledger(1.1, steps=100), *fits, delta=1e-5)
    assert made.epsilon == pytest.approx(epsilon(runs.ledger(1.1, steps=100), delta=1e-5))


def test_a_learning_rate_that_follows_validation_records_costs_nothing():
    watcher = dataclasses.replace(runs.VAL_STOP, action="changes the learning rate")
    made = runs.statement(runs.ledger(1.1), runs.fit(watchers=(watcher,)), delta=1e-5)
    assert made.epsilon == pytest.approx(epsilon(runs.ledger(1.1), delta=1e-5))


def test_a_callback_that_cannot_be_seen_into_is_listed_and_downgrades_nothing():
    made = runs.statement(runs.ledger(1.1), runs.fit(watchers=(runs.UNKNOWN,)), delta=1e-5)
    assert made.epsilon is not None
    assert any(limit.id == "callback" and "MyCallback" in limit.text for limit in made.not_protected)


# Filters


def test_a_filter_is_proven_where_settings_changed():
    fits = [runs.fit(budgets=(runs.filter_budget(),)), runs.fit(budgets=(runs.filter_budget(),))]
    made = runs.statement(SEVERAL, *fits)
    assert runs.main(made).status is Status.APPROXIMATE
    assert made.delta == 1e-5
    assert runs.by(made, "filter").status is Status.PROVEN
    assert made.epsilon == runs.by(made, "filter").epsilon == 2.0


def test_what_a_filter_claims_is_its_target_and_all_that_it_let_through_converts_to_no_more():
    """At a ten-thousandth less of delta, by Canonne, Kamath and Steinke 2020, proposition 12, written out."""
    order, target, delta = 8.0, 2.0, 1e-5
    budget = runs.filter_budget(target, delta, order)
    steps = budget.steps_that_fit(Ledger(), GaussianEvent(1.1), runs.LOTS, 10**6)
    step = dp_accounting.PoissonSampledDpEvent(256 / 60000, dp_accounting.GaussianDpEvent(1.1))

    def spent(steps):
        (divergence,) = RdpAccountant([order]).compose(step, steps).rdp
        left = delta * (1 - 1e-4)
        return divergence + math.log1p(-1 / order) - (math.log(left) + math.log(order)) / (order - 1)

    assert spent(steps) <= target < spent(steps + 1)
    claim = runs.by(runs.statement(runs.ledger(1.1, steps=steps), runs.fit(steps, budgets=(budget,))), "filter")
    assert (claim.status, claim.epsilon, claim.delta) == (Status.PROVEN, target, delta)


def test_the_smaller_of_run_and_filter_is_the_statements_epsilon():
    made = runs.statement(runs.ledger(1.1), runs.fit(budgets=(runs.filter_budget(50.0),)))
    assert made.epsilon == runs.main(made).epsilon < 50


def test_a_filter_at_another_delta_is_claimed_and_is_not_the_statements_epsilon():
    made = runs.statement(SEVERAL, runs.fit(200, budgets=(runs.filter_budget(delta=1e-6),)), delta=1e-5)
    assert runs.by(made, "filter").delta == 1e-6
    assert made.epsilon is None


@pytest.mark.parametrize(
    "fits",
    [
        [runs.fit(100, budgets=(runs.filter_budget(),))],  # half of the steps
        [runs.fit(100, budgets=(runs.filter_budget(),)), runs.fit(100)],
        [
            runs.fit(100, budgets=(runs.filter_budget(order=8.0),)),
            runs.fit(100, budgets=(runs.filter_budget(order=9.0),)),
        ],
        [runs.fit(200, budgets=(dataclasses.replace(runs.filter_budget(), order=None),))],
        [runs.fit(200, budgets=(runs.filter_budget(target=1e-3),))],  # overspent, so it was not kept
        [],
    ],
)
def test_there_is_no_filter_where_not_every_step_kept_to_the_same_one(fits):
    made = runs.statement(SEVERAL, *fits, delta=1e-5)
    assert made.epsilon is None
    assert not [claim for claim in made.claims if claim.how.startswith("filter")]


def test_a_filter_is_not_proven_where_the_tails_cost_more_than_was_set_apart():
    fits = [runs.fit(200, weights=10**14, budgets=(runs.filter_budget(delta=1e-6),))]
    claim = runs.by(runs.statement(SEVERAL, *fits), "filter")
    assert claim.status is Status.APPROXIMATE
    assert "standard deviations" in claim.reasons[0]


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
    facts = runs.facts(SEVERAL, *fits)
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
