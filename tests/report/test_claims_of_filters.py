"""A privacy filter is claimed where every step kept to it."""

import dataclasses
import math

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from tests.report import runs
from tfdp.accounting import GaussianEvent, Ledger, Status


# Filters
def test_a_filter_is_proven_where_settings_changed():
    fits = [runs.fit(budgets=(runs.filter_budget(),)), runs.fit(budgets=(runs.filter_budget(),))]
    made = runs.statement(runs.SEVERAL, *fits)
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
    made = runs.statement(runs.SEVERAL, runs.fit(200, budgets=(runs.filter_budget(delta=1e-6),)), delta=1e-5)
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
    made = runs.statement(runs.SEVERAL, *fits, delta=1e-5)
    assert made.epsilon is None
    assert not [claim for claim in made.claims if claim.how.startswith("filter")]


def test_a_filter_is_not_proven_where_the_tails_cost_more_than_was_set_apart():
    fits = [runs.fit(200, weights=10**14, budgets=(runs.filter_budget(delta=1e-6),))]
    claim = runs.by(runs.statement(runs.SEVERAL, *fits), "filter")
    assert claim.status is Status.APPROXIMATE
    assert "standard deviations" in claim.reasons[0]
