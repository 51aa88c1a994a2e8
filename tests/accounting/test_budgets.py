"""Budgets and privacy filters, against dp-accounting driven directly."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from tests.accounting.random_settings import random_settings
from tfdp.accounting import (
    Budget,
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    NotPrivateEvent,
    Poisson,
    Shuffled,
    max_more_steps,
)

ORDERS = list(RdpAccountant().orders)
LEFT = 1 - 1e-4  # of a filter's delta, when its share for the noise's missing tails is set apart


def divergences(rate, noise):
    """Of one step, at all default orders."""
    single = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    return np.array(RdpAccountant().compose(single).rdp)


def converted(divergence, order, delta):
    """Canonne, Kamath and Steinke 2020, proposition 12, written out."""
    return divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def best_conversion(divergence, delta):
    """min over the orders, 0 where the total variation distance already is below delta."""
    if min(divergence) < -math.log1p(-(delta**2)):
        return 0.0
    return max(0.0, min(converted(r, a, delta) for r, a in zip(divergence, ORDERS, strict=True)))


def filter_settings(number=24):
    """(setting, Renyi budget): the target lies between the cost of half and of all steps."""
    random = np.random.default_rng(7)
    for setting in random_settings(number):
        setting = setting._replace(steps=setting.steps + 50)
        one = divergences(setting.sampling_rate, setting.noise_multiplier)
        steps = setting.steps * random.uniform(0.5, 1.0)
        yield setting, one, Budget(max(best_conversion(one * steps, setting.delta), 0.05), setting.delta, "rdp")


def test_a_filter_allows_as_many_steps_as_the_best_order_on_24_settings():
    for setting, one, budget in filter_settings():
        plan = (GaussianEvent(setting.noise_multiplier), Poisson(setting.sampling_rate), setting.steps)
        fixed = budget.as_filter(Ledger(), *plan)
        assert fixed.order in ORDERS
        assert dataclasses.replace(fixed, order=None) == budget
        allowed = fixed.steps_that_fit(Ledger(), *plan)
        delta = LEFT * setting.delta
        assert allowed == dataclasses.replace(budget, delta=delta).steps_that_fit(Ledger(), *plan)

        # dp-accounting's own numbers differ by the 1e-12 that are added for the rounding of its series.
        fits = [best_conversion(one * t, delta) <= budget.target_epsilon for t in range(setting.steps + 1)]
        expected = sum(fits) - 1
        near = abs(best_conversion(one * expected, delta) - budget.target_epsilon) < 1e-8
        assert allowed == expected or (near and allowed == expected - 1)


def test_a_filter_allows_all_steps_that_the_noise_was_found_for():
    for setting, _, budget in filter_settings(12):
        sampling = Poisson(setting.sampling_rate)
        noise = budget.noise_multiplier(sampling, setting.steps, Ledger())
        plan = (Ledger(), GaussianEvent(noise), sampling, setting.steps)
        assert budget.as_filter(*plan).steps_that_fit(*plan) == setting.steps


def test_a_filter_converts_at_its_own_order_only_and_at_the_delta_that_is_left():
    one = divergences(0.02, 2.0)
    ledger = Ledger.poisson(sampling_rate=0.02, noise_multiplier=2.0, steps=800)
    for order in (3.0, 10.5, 32.0):
        spent = Budget(2.0, 1e-5, "rdp", order).epsilon(ledger)
        expected = converted(800 * one[ORDERS.index(order)], order, LEFT * 1e-5)
        assert spent == pytest.approx(expected, rel=1e-8)


def test_a_filter_bounds_the_sum_of_the_divergences_however_the_settings_change():
    """The rule of the guarantee: sum of the steps' divergences at the order <= the r that converts to the target."""
    order, target, delta = 12.0, 1.5, 1e-5
    r = target - converted(0.0, order, LEFT * delta)
    budget, ledger, total = Budget(target, delta, "rdp", order), Ledger(), 0.0
    for rate, noise, planned in ((0.01, 2.0, 300), (0.05, 1.5, 40), (0.02, 1.0, 30), (0.01, 3.0, 100_000)):
        steps = budget.steps_that_fit(ledger, GaussianEvent(noise), Poisson(rate), planned)
        one = divergences(rate, noise)[ORDERS.index(order)]
        assert steps == min(planned, math.floor((r - total) / one))
        ledger, total = ledger.record(GaussianEvent(noise), Poisson(rate), steps), total + steps * one
    assert steps < planned
    assert total <= r


@pytest.mark.parametrize(("planned", "evaluations"), [(10_000, 1), (10_206, 1), (0, 0)])
def test_a_plan_that_fits_is_priced_once(monkeypatch, planned, evaluations):
    budget, priced = Budget(2.0, 1e-5), []
    price = Budget.epsilon
    monkeypatch.setattr(Budget, "epsilon", lambda self, ledger: priced.append(ledger.steps) or price(self, ledger))
    assert budget.steps_that_fit(Ledger(), GaussianEvent(1.1), Poisson(256 / 60000), planned) == planned
    assert priced == [planned] * evaluations


@pytest.mark.parametrize("planned", [10_207, 14_062, 10**7])
def test_of_a_plan_that_does_not_fit_so_many_steps_fit_and_one_more_does_not(planned):
    """As priced by dp-accounting's PLD accountant."""
    budget = Budget(2.0, 1e-5)
    steps = budget.steps_that_fit(Ledger(), GaussianEvent(1.1), Poisson(256 / 60000), planned)
    single = dp_accounting.PoissonSampledDpEvent(256 / 60000, dp_accounting.GaussianDpEvent(1.1))
    for taken, fits in ((steps, True), (steps + 1, False)):
        direct = PLDAccountant(value_discretization_interval=1e-4).compose(single, taken)
        assert (direct.get_epsilon(1e-5) <= 2.0) == fits


def test_what_the_ledger_holds_counts():
    spent = Ledger.poisson(sampling_rate=0.02, noise_multiplier=2.0, steps=500)
    budget = Budget(1.5, 1e-5, "rdp")
    steps = budget.steps_that_fit(spent, GaussianEvent(3.0), Poisson(0.03), 100_000)
    before, one = 500 * divergences(0.02, 2.0), divergences(0.03, 3.0)
    assert best_conversion(before + steps * one, 1e-5) <= 1.5 < best_conversion(before + (steps + 1) * one, 1e-5)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "moments", "gdp"])
def test_a_budget_that_is_overspent_or_cannot_be_kept_allows_nothing(accountant):
    budget, plan = Budget(1.0, 1e-5, accountant), (GaussianEvent(2.0), Poisson(0.01), 100)
    infinite = Ledger().record(NotPrivateEvent("an ordinary fit"), FullBatch(100), 1)
    overspent = Ledger.poisson(sampling_rate=0.02, noise_multiplier=1.0, steps=1000)
    for ledger in (infinite, overspent):
        assert budget.steps_that_fit(ledger, *plan) == 0
        assert budget.as_filter(ledger, *plan).steps_that_fit(ledger, *plan) == 0
    for event in (NotPrivateEvent("no noise"), GaussianEvent(0.0), GaussianEvent(0.3)):
        plan = (event, FullBatch(100), 100)
        assert budget.steps_that_fit(Ledger(), *plan) == 0
        assert budget.as_filter(Ledger(), *plan).steps_that_fit(Ledger(), *plan) == 0
    assert budget.as_filter(Ledger(), GaussianEvent(1.0), Poisson(0.01), 0).epsilon(Ledger()) == 0


def test_shuffled_steps_are_limited_by_whole_passes():
    """mu = sqrt(passes) / 5: as many passes as dp-accounting's Gaussian allows, and every step of each."""
    budget = Budget(3.0, 1e-5)
    passes = 0
    while PLDAccountant().compose(dp_accounting.GaussianDpEvent(5.0), passes + 1).get_epsilon(1e-5) <= 3.0:
        passes += 1
    assert passes > 3
    assert budget.steps_that_fit(Ledger(), GaussianEvent(5.0), Shuffled(1000, 10, 100), 10**5) == 100 * passes


def test_fixed_size_lots_have_filters_too():
    budget = Budget(2.0, 1e-5, "rdp")
    plan = (GaussianEvent(4.0), FixedSize(1000, 10), 100_000)
    fixed = budget.as_filter(Ledger(), *plan)
    assert fixed.steps_that_fit(Ledger(), *plan) == budget.steps_that_fit(Ledger(), *plan) > 0


def test_only_renyi_budgets_become_filters():
    plan = (Ledger(), GaussianEvent(1.1), Poisson(0.01), 100)
    for budget in (Budget(1.0, 1e-5), Budget(1.0, 1e-5, "gdp"), Budget(1.0, 1e-5, "rdp", 8.0)):
        assert budget.as_filter(*plan) is budget


def test_the_steps_are_those_of_max_more_steps():
    ledger = Ledger.poisson(sampling_rate=0.02, noise_multiplier=2.0, steps=100)
    event, sampling = GaussianEvent(3.0), Poisson(0.03)
    for accountant in ("pld", "rdp", "gdp"):
        most = max_more_steps(ledger, event, sampling, target_epsilon=1.5, delta=1e-5, accountant=accountant)
        assert Budget(1.5, 1e-5, accountant).steps_that_fit(ledger, event, sampling, 10**6) == most


@pytest.mark.parametrize("order", [None, 8.0])
def test_the_noise_keeps_to_the_budget_after_what_was_spent(order):
    spent = Ledger.poisson(sampling_rate=0.02, noise_multiplier=3.0, steps=500)
    noise = Budget(2.0, 1e-5, "rdp", order).noise_multiplier(Poisson(0.03), 500, spent)
    total = 500 * divergences(0.02, 3.0) + 500 * divergences(0.03, noise)
    at_order = converted(total[ORDERS.index(order or 8.0)], 8.0, LEFT * 1e-5)
    assert 0.997 * 2.0 <= (at_order if order else best_conversion(total, 1e-5)) <= 2.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_epsilon": 0.0}, "target_epsilon must be positive"),
        ({"target_epsilon": "3"}, "target_epsilon must be a finite"),
        ({"delta": 0.0}, "strictly between 0 and 1"),
        ({"accountant": "exact"}, "accountant must be one of 'pld', 'rdp'"),
        ({"order": 8.0}, "order=8.0 goes with accountant='rdp' only"),
        ({"order": 1.0, "accountant": "rdp"}, "order must be above 1"),
        ({"order": math.inf, "accountant": "rdp"}, "order must be a finite number"),
    ],
)
def test_a_bad_argument_is_an_error_that_says_what_to_write(change, message):
    with pytest.raises(ValueError, match=message):
        Budget(**{"target_epsilon": 1.0, "delta": 1e-5, **change})


def test_a_plan_is_a_whole_number_of_steps():
    for planned in (-1, 2.5):
        with pytest.raises(ValueError, match="planned"):
            Budget(1.0, 1e-5).steps_that_fit(Ledger(), GaussianEvent(1.1), Poisson(0.01), planned)
