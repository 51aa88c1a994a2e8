"""Gaussian differential privacy: equations 5 and 6 of Bu et al. 2019."""

import math

import mpmath
import pytest
from dp_accounting import get_epsilon_gaussian
from scipy import integrate, stats

from tests.accounting.random_settings import random_settings
from tfdp.accounting import (
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    Status,
    delta,
    epsilon,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    report,
)
from tfdp.accounting.gdp import mu_for, noise_for_mu


@pytest.mark.parametrize("mu", [0.01, 0.5, 2.0, 10.0, 40.0])
@pytest.mark.parametrize("at", [1e-12, 1e-5, 0.1])
def test_epsilon_is_that_of_the_gaussian_mechanism(mu, at):
    assert gdp_epsilon(mu, at) == pytest.approx(get_epsilon_gaussian(1 / mu, at), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("mu", "level"), [(0.5, 0.2), (1.0, 3.0), (3.0, 1.0)])
def test_delta_is_the_integral_it_abbreviates(mu, level):
    def excess(x):
        return max(stats.norm.pdf(x, mu) - math.exp(level) * stats.norm.pdf(x), 0)

    crossing = level / mu + mu / 2
    exact, _ = integrate.quad(excess, crossing, crossing + 40)
    assert gdp_delta(mu, level) == pytest.approx(exact, rel=1e-7)


# (mu, epsilon, eq. 6 by mpmath 1.4 in 120 digits)
EXACT = [
    (1e-16, 1e-16, 8.3315470587686301e-18),
    (1e-15, 1e-15, 8.3315470587686347e-17),
    (1e-09, 1e-09, 8.3315470629344039e-11),
    (1e-09, 3e-08, 1.6319567585709757e-208),
    (1e-06, 0.0, 3.9894228040141604e-7),
    (0.0199, 0.4, 4.3948709149065514e-93),
    (0.021, 0.1, 4.1193772557356317e-9),
    (1.0, 30.0, 4.7093263180975222e-193),
    (40.0, 500.0, 0.99999999999996061),
]


@pytest.mark.parametrize(("mu", "level", "exact"), EXACT)
def test_delta_is_never_below_the_truth_and_hardly_above(mu, level, exact):
    assert exact <= gdp_delta(mu, level) <= exact * (1 + 2e-11)


def test_delta_leads_to_epsilon_to_mu_and_back_on_200_settings():
    for setting in random_settings():
        mu = gdp_mu(sampling_rate=setting.sampling_rate, noise_multiplier=setting.noise_multiplier, steps=setting.steps)
        spent = epsilon(setting.ledger, delta=setting.delta, accountant="gdp")
        assert spent == gdp_epsilon(mu, setting.delta)
        if spent > 0:
            assert delta(setting.ledger, epsilon=spent, accountant="gdp") == pytest.approx(setting.delta, rel=1e-9)
            assert mu_for(spent, setting.delta) == pytest.approx(mu, rel=1e-9)
            noise = noise_for_mu(mu, setting.sampling_rate, setting.steps)
            assert noise == pytest.approx(setting.noise_multiplier, rel=1e-9)


@pytest.mark.parametrize("rate", [1e-290, 5e-324])
def test_the_noise_for_a_rate_of_next_to_nothing_has_no_overflow(rate):
    """Of 1 / sqrt(log(1 + x)) with x = mu^2 / (p^2 T), far beyond floats."""
    x = mpmath.mpf(0.7) ** 2 / (mpmath.mpf(rate) ** 2 * 10)
    assert noise_for_mu(0.7, rate, 10) == pytest.approx(float(1 / mpmath.sqrt(mpmath.log(1 + x))), rel=1e-12)


def test_mu_adds_up_in_squares_and_is_exact_without_sampling():
    assert gdp_mu(sampling_rate=1.0, noise_multiplier=3.0, steps=9) == pytest.approx(1.0)
    sampled = Ledger.poisson(sampling_rate=0.01, noise_multiplier=1.1, steps=100)
    both = sampled.record(GaussianEvent(5.0), FullBatch(1000), 4)
    mu = math.hypot(gdp_mu(sampling_rate=0.01, noise_multiplier=1.1, steps=100), 2 / 5)
    found = report(both, delta=1e-5, accountant="gdp")
    assert found.mu == pytest.approx(mu)
    assert found.epsilon == pytest.approx(gdp_epsilon(mu, 1e-5))


def test_it_is_marked_approximate_unless_nothing_was_sampled():
    sampled = Ledger.poisson(sampling_rate=0.01, noise_multiplier=1.1, steps=100)
    full = Ledger().record(GaussianEvent(5.0), FullBatch(1000), 4)
    assert report(sampled, delta=1e-5, accountant="gdp").status == Status.APPROXIMATE
    assert report(full, delta=1e-5, accountant="gdp").status == Status.PROVEN


def test_it_can_lie_below_the_truth():
    ledger = Ledger.poisson(sampling_rate=256 / 60000, noise_multiplier=0.7, steps=10547)
    assert epsilon(ledger, delta=1e-5, accountant="gdp") < 0.91 * epsilon(ledger, delta=1e-5)


def test_it_refuses_fixed_size_lots():
    with pytest.raises(ValueError, match="Poisson lots"):
        epsilon(Ledger().record(GaussianEvent(1.0), FixedSize(10, 5), 1), delta=1e-5, accountant="gdp")


def test_the_ends_of_the_scale():
    assert gdp_mu(sampling_rate=0.1, noise_multiplier=0.0, steps=1) == math.inf
    assert gdp_mu(sampling_rate=0.1, noise_multiplier=0.0, steps=0) == 0
    assert gdp_mu(sampling_rate=0.1, noise_multiplier=1e-3, steps=1) == math.inf
    assert (gdp_epsilon(0.0, 1e-5), gdp_epsilon(math.inf, 1e-5)) == (0.0, math.inf)
    assert (gdp_delta(0.0, 1.0), gdp_delta(math.inf, 1.0)) == (0.0, 1.0)
    for bad in (-1.0, math.nan, "1"):
        with pytest.raises(ValueError, match="mu must"):
            gdp_epsilon(bad, 1e-5)
