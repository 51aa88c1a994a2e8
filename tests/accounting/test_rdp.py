"""The "rdp" and "moments" accountants against dp-accounting driven directly, and fixed-size lots."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from tests.accounting.random_settings import random_settings
from tfdp.accounting import (
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    Poisson,
    Relation,
    delta,
    epsilon,
    gdp_epsilon,
    rdp,
    report,
)
from tfdp.accounting.moments import ORDERS

REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE


def poisson_event(rate, noise):
    return dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))


def test_epsilon_is_that_of_dp_accounting_on_50_settings():
    for setting in random_settings(50):
        accountant = RdpAccountant()
        accountant.compose(poisson_event(setting.sampling_rate, setting.noise_multiplier), setting.steps)
        expected = accountant.get_epsilon(setting.delta)
        assert epsilon(setting.ledger, delta=setting.delta, accountant="rdp") == pytest.approx(
            expected, rel=1e-6, abs=1e-7
        )


def test_the_moments_conversion_is_the_classic_one_on_50_settings():
    for setting in random_settings(50):
        accountant = RdpAccountant(ORDERS)
        accountant.compose(poisson_event(setting.sampling_rate, setting.noise_multiplier), setting.steps)
        expected = np.min(accountant.rdp + math.log(1 / setting.delta) / (np.array(ORDERS) - 1))
        spent = epsilon(setting.ledger, delta=setting.delta, accountant="moments")
        assert spent == pytest.approx(expected, rel=1e-6)
        assert delta(setting.ledger, epsilon=spent, accountant="moments") == pytest.approx(setting.delta, rel=1e-6)


def test_the_moments_orders_are_the_papers():
    assert ORDERS[:2] == (1.1, 1.2)
    assert ORDERS[98:101] == (10.9, 12, 13)
    assert ORDERS[-1] == 63 and len(ORDERS) == 99 + 52


def test_tighter_accountants_give_smaller_numbers_on_50_settings():
    for setting in random_settings(50):
        tight, renyi, moments = (
            epsilon(setting.ledger, delta=setting.delta, accountant=name) for name in ("pld", "rdp", "moments")
        )
        assert tight <= renyi * 1.001 and renyi <= moments


def test_delta_leads_to_epsilon_and_back():
    for setting in random_settings(50):
        spent = epsilon(setting.ledger, delta=setting.delta, accountant="rdp")
        if spent > 0:
            back = delta(setting.ledger, epsilon=spent, accountant="rdp")
            assert back == pytest.approx(setting.delta, rel=1e-6)


@pytest.mark.parametrize("accountant", ["rdp", "moments", "gdp"])
def test_the_smallest_delta_that_a_float_can_be_has_a_price(accountant):
    ledger = Ledger.poisson(sampling_rate=0.01, noise_multiplier=1.3, steps=100)
    usual, tiny, least = (epsilon(ledger, delta=delta, accountant=accountant) for delta in (1e-300, 1e-310, 5e-324))
    assert usual < tiny < least < math.inf


def test_a_tiny_rate_is_never_rounded_to_no_cost_at_all():
    """At rate 1e-9 dp-accounting's series ends at a divergence of 0; the true one is positive."""
    ledger = Ledger.poisson(sampling_rate=1e-9, noise_multiplier=1.0, steps=10**6)
    orders = (2.0, 10.5, 32.0)
    # At order 2 the divergence is log(1 + q^2 (e^(1 / s^2) - 1)).
    assert rdp.curve(ledger, orders)[0] >= 10**6 * math.log1p(1e-18 * math.expm1(1.0))
    assert np.all(rdp.curve(ledger, orders) > 0)


def test_fixed_size_lots_are_priced_at_twice_the_sensitivity():
    ledger = Ledger().record(GaussianEvent(1.1), FixedSize(60000, 256), 14062)
    found = report(ledger, delta=1e-5, accountant="rdp")
    assert found.epsilon == pytest.approx(24.08, abs=0.01)
    assert found.relation == Relation.REPLACE_ONE
    direct = RdpAccountant(neighboring_relation=REPLACE_ONE)
    half = dp_accounting.GaussianDpEvent(0.55)
    direct.compose(dp_accounting.SampledWithoutReplacementDpEvent(60000, 256, half), 14062)
    assert found.epsilon == pytest.approx(direct.get_epsilon(1e-5), rel=1e-6)


def test_replacing_a_record_costs_the_same_to_all_accountants_on_a_plain_gaussian():
    """A lot of all records: dp-accounting's PLD doubles the sensitivity by itself, the noise is halved for
    the RDP."""
    noise = 3.0
    ledger = Ledger().record(GaussianEvent(noise), FixedSize(100, 100), 1)
    tight = PLDAccountant(REPLACE_ONE).compose(dp_accounting.GaussianDpEvent(noise)).get_epsilon(1e-5)
    assert tight == pytest.approx(gdp_epsilon(2 / noise, 1e-5), rel=1e-6)
    assert epsilon(ledger, delta=1e-5) == pytest.approx(tight, rel=1e-6)
    orders = np.array([1.5, 2.0, 8.0, 32.0])
    np.testing.assert_allclose(rdp.curve(ledger, orders), orders * (2 / noise) ** 2 / 2, rtol=1e-12)
    assert tight <= epsilon(ledger, delta=1e-5, accountant="rdp") <= 1.2 * tight


def test_lines_of_different_relations_add_up_under_the_one_they_share():
    fixed = Ledger().record(GaussianEvent(4.0), FixedSize(1000, 10), 100)
    poisson = Ledger().record(GaussianEvent(1.1), Poisson(0.01, 1000, public_size=True), 100)
    full = Ledger().record(GaussianEvent(9.0), FullBatch(1000), 2)
    both = Ledger.combined(fixed, poisson, full)
    parts = sum(rdp.curve(ledger, ORDERS) for ledger in (fixed, poisson, full))
    np.testing.assert_allclose(rdp.curve(both, ORDERS), parts)
    assert report(both, delta=1e-5, accountant="rdp").relation == Relation.ZERO_OUT
