"""The "pld" accountant against dp-accounting driven directly, numerical integration and closed forms."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import integrate, optimize, stats

from tests.accounting.random_settings import random_settings
from tfdp.accounting import (
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    Poisson,
    Relation,
    Shuffled,
    Status,
    delta,
    epsilon,
    pld,
    report,
)
from tfdp.accounting.one_step_loss import one_step_loss


@pytest.fixture(scope="module")
def reports():
    """The 200 settings, priced once."""
    return [(setting, report(setting.ledger, delta=setting.delta)) for setting in random_settings()]


def poisson_event(rate, noise):
    return dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))


def test_epsilon_is_that_of_dp_accounting_at_the_same_grid_on_200_settings(reports):
    for setting, found in reports:
        accountant = PLDAccountant(value_discretization_interval=found.interval or 1e-4)
        accountant.compose(poisson_event(setting.sampling_rate, setting.noise_multiplier), setting.steps)
        assert found.epsilon == pytest.approx(accountant.get_epsilon(setting.delta), rel=1e-6), setting


def test_delta_leads_to_epsilon_and_back_on_200_settings(reports):
    for setting, found in reports:
        back = delta(setting.ledger, epsilon=found.epsilon)
        if found.epsilon > 0:
            assert back == pytest.approx(setting.delta, rel=1e-6), setting
        assert back <= setting.delta * (1 + 1e-6), setting


def test_epsilon_grows_with_steps_and_rate_and_falls_with_noise_on_200_settings(reports):
    for (rate, noise, steps, at), found in reports:
        worse = [
            Ledger.poisson(sampling_rate=rate, noise_multiplier=noise, steps=steps + 1 + steps // 20),
            Ledger.poisson(sampling_rate=rate * 1.05, noise_multiplier=noise, steps=steps),
            Ledger.poisson(sampling_rate=rate, noise_multiplier=noise / 1.05, steps=steps),
        ]
        assert min(epsilon(ledger, delta=at) for ledger in worse) >= found.epsilon


def test_halving_the_grid_moves_epsilon_by_less_than_a_thousandth_on_40_settings(reports):
    for setting, found in reports[:40]:
        if found.interval is None:
            continue
        half = PLDAccountant(value_discretization_interval=found.interval / 2)
        half.compose(poisson_event(setting.sampling_rate, setting.noise_multiplier), setting.steps)
        assert half.get_epsilon(setting.delta) == pytest.approx(found.epsilon, rel=1e-3), setting


def test_a_small_rate_gets_the_fine_grid_it_needs():
    ledger = Ledger.poisson(sampling_rate=1e-4, noise_multiplier=2.0, steps=10**6)
    found = report(ledger, delta=1e-5)
    assert found.epsilon == pytest.approx(0.172, abs=5e-4)
    assert found.interval < 1e-5
    assert "grid" in str(found)


@pytest.mark.parametrize(
    ("rate", "noise", "interval"),
    [(0.01, 0.5, 1e-4), (0.3, 1.0, 1e-4), (0.9, 2.0, 1e-4), (0.999999, 1.0, 1e-4), (1e-6, 3.0, 1e-9)],
)
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_one_step_is_that_of_numerical_integration_and_never_below(rate, noise, interval, direction):
    """delta(epsilon) of N(0, s^2) against (1 - q) N(0, s^2) + q N(1, s^2), integrated; and rounded up
    only."""
    loss = getattr(one_step_loss(noise, rate, interval), direction)
    x = np.linspace(-12 * noise - 1, 12 * noise + 2, 400_001)
    without = stats.norm.pdf(x, 0, noise)
    record = (1 - rate) * without + rate * stats.norm.pdf(x, 1, noise)
    p, q = (record, without) if direction == "remove" else (without, record)
    for level in (0.0, 0.1 * rate, 0.5 * rate, rate, 0.5, 2.0):
        exact = integrate.trapezoid(np.maximum(p - math.exp(level) * q, 0), x)
        found = loss.get_delta_for_epsilon(level)
        assert found >= exact * (1 - 1e-6) - 1e-15
        assert found <= exact * (1 + 1e-6) + interval  # a chord of the curve, whose slope is at most 1


@pytest.mark.parametrize(("noise", "steps"), [(10.0, 100), (100.0, 10_000), (20.0, 400)])
def test_the_grid_stays_above_the_closed_form_of_the_gaussian(noise, steps):
    mu = math.sqrt(steps) / noise
    loss = pld.composed_loss([pld.Gaussian(noise, 1.0, steps)])
    for level in (0.1, 1.0, 3.0, 5.0, 6.5):
        exact = stats.norm.cdf(-level / mu + mu / 2) - math.exp(level) * stats.norm.cdf(-level / mu - mu / 2)
        assert exact <= loss.delta(level) <= exact * 1.001 + 2 * loss.rounding


def test_without_sampling_epsilon_is_the_closed_form():
    def exact(mu, at):
        def excess(level):
            second = math.exp(level) * stats.norm.cdf(-level / mu - mu / 2)
            return stats.norm.cdf(-level / mu + mu / 2) - second - at

        return optimize.brentq(excess, 0, 100, xtol=1e-13)

    for noise, steps, at in ((1.0, 1, 1e-5), (20.0, 100, 1e-6), (2.0, 3, 1e-10)):
        expected = exact(math.sqrt(steps) / noise, at)
        ledger = Ledger().record(GaussianEvent(noise), FullBatch(1000), steps)
        assert epsilon(ledger, delta=at) == pytest.approx(expected, rel=1e-8)
        assert epsilon(ledger, delta=at, accountant="gdp") == pytest.approx(expected, rel=1e-8)
        direct = PLDAccountant().compose(dp_accounting.GaussianDpEvent(noise), steps).get_epsilon(at)
        assert epsilon(ledger, delta=at) == pytest.approx(direct, rel=1e-6)


def test_a_rate_of_one_is_the_full_batch():
    poisson = Ledger.poisson(sampling_rate=1.0, noise_multiplier=5.0, steps=40)
    full = Ledger().record(GaussianEvent(5.0), FullBatch(1000), 40)
    for accountant in ("pld", "rdp", "moments", "gdp"):
        assert epsilon(poisson, delta=1e-5, accountant=accountant) == epsilon(full, delta=1e-5, accountant=accountant)


def test_shuffled_costs_one_plain_release_a_pass():
    shuffled = Ledger().record(GaussianEvent(5.0), Shuffled(1000, 10, 100), 1901)  # the twentieth pass just begun
    full = Ledger().record(GaussianEvent(5.0), FullBatch(1000), 20)
    for accountant in ("pld", "rdp", "moments", "gdp"):
        assert epsilon(shuffled, delta=1e-5, accountant=accountant) == epsilon(full, delta=1e-5, accountant=accountant)
    assert report(shuffled, delta=1e-5).relation == Relation.ZERO_OUT


def test_lines_of_different_kinds_compose_as_in_dp_accounting():
    ledger = (
        Ledger.poisson(sampling_rate=0.01, noise_multiplier=1.2, steps=500)
        .record(GaussianEvent(2.0), Poisson(0.05, 1000, public_size=True), 50)
        .record(GaussianEvent(8.0), FullBatch(1000), 3)
        .record(GaussianEvent(8.0), Shuffled(1000, 10, 100), 200)
    )
    found = report(ledger, delta=1e-5)
    direct = PLDAccountant(value_discretization_interval=found.interval)
    direct.compose(poisson_event(0.01, 1.2), 500).compose(poisson_event(0.05, 2.0), 50)
    direct.compose(dp_accounting.GaussianDpEvent(8.0), 5)
    assert found.epsilon == pytest.approx(direct.get_epsilon(1e-5), rel=1e-6)
    assert found.relation == Relation.ZERO_OUT
    assert found.status == Status.PROVEN


def test_the_size_being_public_changes_the_claim_and_not_the_cost():
    known, public = (
        Ledger().record(GaussianEvent(1.1), Poisson(0.01, 1000, public_size=public), 100) for public in (False, True)
    )
    assert epsilon(known, delta=1e-5) == epsilon(public, delta=1e-5)
    assert report(public, delta=1e-5).relation == Relation.ADD_OR_REMOVE


def test_it_refuses_fixed_size_lots_with_a_reason():
    ledger = Ledger().record(GaussianEvent(1.1), FixedSize(1000, 10), 5)
    with pytest.raises(ValueError, match="accountant='rdp'"):
        epsilon(ledger, delta=1e-5)


def test_reading_twice_changes_nothing():
    ledger = Ledger.poisson(sampling_rate=0.01, noise_multiplier=1.0, steps=100)
    before = ledger.to_json()
    assert epsilon(ledger, delta=1e-5) == epsilon(ledger, delta=1e-5)
    assert ledger.to_json() == before
