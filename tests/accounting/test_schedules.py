"""Releases between steps: how many there are, and what a budget lets through of both together."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from tfdp.accounting import Budget, FullBatch, GaussianEvent, Ledger, Poisson, Schedule

SIZE = 400
LOTS, ALL = Poisson(0.25, SIZE), FullBatch(SIZE)
STEP, FULL = GaussianEvent(3.0), GaussianEvent(20.0)


def played(every: int, first: int, steps: int) -> int:
    """The releases before each step, one by one."""
    return sum(step >= first and (step - first) % every == 0 for step in range(steps))


def test_releases_are_those_of_a_run_played_step_by_step():
    for every in (1, 2, 3, 10):
        for first in (0, 1, 5):
            schedule = Schedule(FULL, ALL, every, first)
            assert [schedule.releases(n) for n in range(40)] == [played(every, first, n) for n in range(40)]


def test_what_is_left_of_a_schedule_goes_on_where_it_was():
    schedule = Schedule(FULL, ALL, 4)
    for taken in range(13):
        for made in {schedule.releases(taken), schedule.releases(taken + 1)}:
            left = schedule.begun(taken, made)
            for more in range(1, 10):
                assert made + left.releases(more) == schedule.releases(taken + more)


def test_a_beginning_of_a_schedule_is_told_from_other_counts():
    schedule = Schedule(FULL, ALL, 4)
    moments, releases = {(0, 0)}, 0
    for steps in range(12):
        if steps % 4 == 0:
            releases += 1
            moments.add((steps, releases))
        moments.add((steps + 1, releases))
    for taken in range(13):
        for made in range(6):
            if taken < 12:  # at 12 the next release would be a beginning as well
                assert schedule.begins_with(taken, made) == ((taken, made) in moments)


def epsilon_of(steps: int, every: int, accountant=PLDAccountant) -> float:
    """By dp-accounting driven directly."""
    counted = accountant()
    step = dp_accounting.PoissonSampledDpEvent(0.25, dp_accounting.GaussianDpEvent(3.0))
    counted.compose(step, steps)
    counted.compose(dp_accounting.GaussianDpEvent(20.0), played(every, 0, steps))
    return counted.get_epsilon(1e-5)


@pytest.mark.parametrize("every", [1, 5, 1000])
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_so_many_steps_fit_with_their_releases_and_one_more_does_not(every, accountant):
    budget = Budget(1.0, 1e-5, accountant)
    steps = budget.steps_that_fit(Ledger(), STEP, LOTS, 10_000, Schedule(FULL, ALL, every))
    counted = {"pld": PLDAccountant, "rdp": RdpAccountant}[accountant]
    assert epsilon_of(steps, every, counted) <= 1.0 < epsilon_of(steps + 1, every, counted)


def test_a_filter_allows_what_the_budget_allows():
    schedule, delta = Schedule(FULL, ALL, 5), 1e-5 * (1 - 1e-4)
    fixed = Budget(1.0, 1e-5, "rdp").as_filter(Ledger(), STEP, LOTS, 10_000, schedule)
    allowed = fixed.steps_that_fit(Ledger(), STEP, LOTS, 10_000, schedule)
    assert allowed == Budget(1.0, delta, "rdp").steps_that_fit(Ledger(), STEP, LOTS, 10_000, schedule) > 0


def test_no_release_where_no_step_is():
    ledger = Ledger().record(STEP, LOTS, 3)
    assert Schedule(FULL, ALL, 5, first=2).recorded(ledger, 2) == ledger
    (_, line) = Schedule(FULL, ALL, 5, first=2).recorded(ledger, 3)
    assert (line.event, line.sampling, line.steps) == (FULL, ALL, 1)


@pytest.mark.parametrize(
    "arguments",
    [(FULL, ALL, 0), (FULL, ALL, 2.0), (FULL, ALL, 2, -1), ("full", ALL, 2), (FULL, 400, 2), (FULL, ALL, np.nan)],
)
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match=r"write|a schedule is"):
        Schedule(*arguments)
