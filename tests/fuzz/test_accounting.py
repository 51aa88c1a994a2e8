"""Any valid setting has a price that moves the right way; any other one a message that names the argument."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tfdp.accounting as accounting
from tests.fuzz.cases import ANYTHING, LONG, NO_SETTINGS, cases, only_errors_that_name, with_one_replaced
from tests.fuzz.test_ledgers import LEDGERS, SAMPLINGS
from tfdp.accounting import FixedSize, FullBatch, GaussianEvent, Ledger, Line, NotPrivateEvent, Poisson, Shuffled, rdp

RATES = st.floats(1e-8, 1) | st.just(1.0)
NOISE = st.floats(0.05, 1000)
STEPS = st.integers(0, 10**7)
DELTAS = st.floats(1e-15, 0.5)
# Without codebooks, whose moments take seconds.
PLAIN_EVENTS = st.builds(GaussianEvent, st.floats(0, 1e300)) | st.builds(NotPrivateEvent, st.just("why"))
PLAIN_LEDGERS = st.lists(st.builds(Line, PLAIN_EVENTS, SAMPLINGS, st.integers(0, 10**15)), max_size=4).map(Ledger)
FAST = st.sampled_from(["rdp", "moments", "gdp"])


def price(rate, noise, steps, delta, accountant) -> float:
    ledger = Ledger.poisson(sampling_rate=rate, noise_multiplier=noise, steps=steps)
    found = accounting.epsilon(ledger, delta=delta, accountant=accountant)
    assert found >= 0  # and so not NaN
    return found


def price_by_orders_of(other, rate, noise, steps, delta) -> float:
    """dp-accounting leaves out an order between whole ones where its series, of 1,000 terms, does not end; which ones differs
    from noise to noise. So less noise may have orders that more noise has not, and a lower bound. At each order the divergence
    falls as noise grows: orders that both have compare."""
    orders = np.array(rdp.default_orders())
    known = np.isfinite(rdp.curve(Ledger.poisson(sampling_rate=rate, noise_multiplier=other, steps=1), orders))
    ledger = Ledger.poisson(sampling_rate=rate, noise_multiplier=noise, steps=steps)
    return rdp.report(ledger, delta, orders[known]).epsilon if steps else 0.0


def at_most(one: float, other: float) -> bool:
    return one <= other * (1 + 1e-9) + 1e-12


@cases(60, 1200)
@given(RATES, NOISE, STEPS, DELTAS, FAST, st.integers(1, 10**6), st.floats(1.001, 10))
@example(0.25, 0.25, 12, 0.5, "rdp", 1, 1.25)
def test_more_steps_less_noise_or_a_smaller_delta_never_cost_less(rate, noise, steps, delta, accountant, more, factor):
    cost = price(rate, noise, steps, delta, accountant)
    assert at_most(cost, price(rate, noise, steps + more, delta, accountant))
    if accountant == "rdp":
        assert at_most(cost, price_by_orders_of(noise, rate, noise / factor, steps, delta))
    else:
        assert at_most(cost, price(rate, noise / factor, steps, delta, accountant))
    assert at_most(cost, price(rate, noise, steps, delta / factor, accountant))


@cases(8, 100)
@given(st.floats(1e-3, 0.05), st.floats(0.7, 8), st.integers(1, 3000), st.floats(1e-9, 1e-2), st.integers(1, 3000))
def test_so_it_is_with_the_tight_accountant(rate, noise, steps, delta, more):
    cost = price(rate, noise, steps, delta, "pld")
    loss_step = 1e-3  # of the grid
    assert cost <= price(rate, noise, steps + more, delta, "pld") * (1 + loss_step) + loss_step
    assert cost <= price(rate, noise, steps, delta, "rdp") * (1 + loss_step) + loss_step


@cases(40, 800)
@given(PLAIN_LEDGERS | LEDGERS if LONG else PLAIN_LEDGERS, DELTAS, FAST)
def test_any_ledger_has_a_price_or_a_reason_why_not(ledger, delta, accountant):
    try:
        found = accounting.epsilon(ledger, delta=delta, accountant=accountant)
    except ValueError as error:
        assert "accountant" in str(error) or "cannot be priced" in str(error) or "noise" in str(error), error
        return
    assert found >= 0
    if any(line.steps and type(line.event).__name__ == "NotPrivateEvent" for line in ledger):
        assert found == math.inf


LEDGER = Ledger.poisson(sampling_rate=0.01, noise_multiplier=2.0, steps=10)
CALLS = {
    "epsilon": (accounting.epsilon, {"ledger": LEDGER, "delta": 1e-5, "accountant": "gdp"}),
    "delta": (accounting.delta, {"ledger": LEDGER, "epsilon": 1.0, "accountant": "gdp"}),
    "noise_multiplier": (
        accounting.noise_multiplier,
        {"target_epsilon": 3.0, "delta": 1e-5, "steps": 10, "sampling_rate": 0.01, "accountant": "gdp"},
    ),
    "max_steps": (
        accounting.max_steps,
        {"target_epsilon": 3.0, "delta": 1e-5, "sampling_rate": 0.01, "noise_multiplier": 1.0, "accountant": "gdp"},
    ),
    "gdp_mu": (accounting.gdp_mu, {"sampling_rate": 0.01, "noise_multiplier": 1.0, "steps": 10}),
    "gdp_epsilon": (accounting.gdp_epsilon, {"mu": 1.0, "delta": 1e-5}),
    "gdp_delta": (accounting.gdp_delta, {"mu": 1.0, "epsilon": 1.0}),
    "gdp_noise_multiplier": (
        accounting.gdp_noise_multiplier,
        {"noise_multiplier": 1.3, "sampling_rate": 0.01, "steps": 100, "delta": 1e-5},
    ),
    "tradeoff": (accounting.tradeoff, {"ledger": LEDGER, "accountant": "gdp"}),
    "mutual_information_bound": (accounting.mutual_information_bound, {"epsilon": 1.0}),
    "poisson ledger": (Ledger.poisson, {"sampling_rate": 0.01, "noise_multiplier": 1.0, "steps": 10}),
    "Poisson": (Poisson, {"sampling_rate": 0.01, "size": 100, "public_size": True}),
    "FullBatch": (FullBatch, {"size": 100, "public_size": True}),
    "Shuffled": (Shuffled, {"size": 100, "batch_size": 10, "batches_per_pass": 10}),
    "FixedSize": (FixedSize, {"size": 100, "batch_size": 10}),
    "GaussianEvent": (GaussianEvent, {"noise_multiplier": 1.0}),
    "PublishedEvent": (
        accounting.PublishedEvent,
        {
            "claimed_epsilon": 1.0,
            "claimed_delta": 1e-5,
            "reason": "why",
            "noise_multiplier": 1.0,
            "published_noise": 1.0,
            "share": 0.5,
        },
    ),
    "Budget": (accounting.Budget, {"target_epsilon": 1.0, "delta": 1e-5, "accountant": "rdp", "order": 8.0}),
    "Codebook": (accounting.Codebook, {"weights": 10, "size": 10, "seed": 0}),
}


@cases(60, 3000)
@given(st.sampled_from(sorted(CALLS)).flatmap(lambda name: st.tuples(st.just(name), with_one_replaced(CALLS[name][1]))))
@example(("gdp_epsilon", ("mu", {"mu": 1.3e154, "delta": 1e-5})))
@example(("gdp_epsilon", ("mu", {"mu": 1e155, "delta": 1e-5})))
@example(("gdp_noise_multiplier", ("delta", {**CALLS["gdp_noise_multiplier"][1], "delta": 5e-324})))
def test_what_is_no_setting_is_refused_by_its_name(case):
    name, (argument, arguments) = case
    with only_errors_that_name(argument):
        found = CALLS[name][0](**arguments)
        assert not isinstance(found, float) or not math.isnan(found)


@pytest.mark.parametrize("name", CALLS)
def test_arrays_and_huge_integers_are_refused_by_name(name):
    call, arguments = CALLS[name]
    for argument in arguments:
        for value in NO_SETTINGS:
            with only_errors_that_name(argument):
                call(**{**arguments, argument: value})
                pytest.fail(f"{argument}={value!r} was taken")


@cases(20, 200)
@given(ANYTHING)
def test_what_is_no_ledger_has_no_price(thing):
    with only_errors_that_name("ledger"):
        accounting.epsilon(thing, delta=1e-5)
        raise AssertionError(f"{thing!r} was priced")
