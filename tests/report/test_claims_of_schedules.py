"""Releases on a schedule, and training that callbacks ended: what is proven, and at which number of steps it is priced."""

import dataclasses

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from tests.report import runs
from tfdp.accounting import FitRecord, FullBatch, GaussianEvent, Ledger, Schedule, Status, Watcher, epsilon
from tfdp.accounting.claims import MEMBERSHIP

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
