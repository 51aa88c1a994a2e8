"""Randomised labels, alone and together with noisy features, against enumeration, integration and dp-accounting."""

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import integrate, stats

from tfdp.accounting import gdp_delta, gdp_epsilon
from tfdp.accounting.randomized_response import label_epsilon, record_delta, record_epsilon, record_mu

SETTINGS = [(mu, p, k) for mu in (0.3, 1.0, 4.0) for p, k in ((0.5, 2), (0.1, 10))]


def outcomes(label, p, k):
    return [(1 - p) * (outcome == label) + p / k for outcome in range(k)]


@pytest.mark.parametrize(("p", "k"), [(0.5, 2), (0.1, 10), (0.999, 3), (1e-6, 1000)])
def test_the_price_of_a_label_is_the_largest_ratio_of_its_outcomes(p, k):
    ratio = max(a / b for a, b in zip(outcomes(0, p, k), outcomes(1, p, k), strict=True))
    assert label_epsilon(p, k) == pytest.approx(math.log(ratio), rel=1e-9)


@pytest.mark.parametrize(("mu", "p", "k"), SETTINGS)
@pytest.mark.parametrize("epsilon", [0.0, 3.0])
def test_delta_of_both_is_the_integral_over_all_outcomes(mu, p, k, epsilon):
    found = 0.0
    for outcome, times in ((0, 1), (1, 1), (2, k - 2)):  # the first record's label, the second's, any other
        a, b = ((1 - p) * (outcome == label) + p / k for label in (0, 1))

        def excess(x, a=a, b=b):
            return max(a * stats.norm.pdf(x, mu) - math.exp(epsilon) * b * stats.norm.pdf(x), 0)

        crossing = (epsilon - math.log(a / b)) / mu + mu / 2
        found += (
            times * integrate.quad(excess, crossing, max(crossing, mu) + 40, points=[max(crossing, mu)], limit=200)[0]
        )
    assert record_delta(mu, p, k, epsilon) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize(("mu", "p", "k"), SETTINGS)
def test_epsilon_of_both_is_that_of_dp_accounting(mu, p, k):
    grid = 5e-4
    features = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=grid)
    both = features.compose(pld.from_randomized_response(p, k, value_discretization_interval=grid))
    found = record_epsilon(mu, p, k, 1e-5)
    assert found == pytest.approx(both.get_epsilon_for_delta(1e-5), abs=2e-3)
    assert found < label_epsilon(p, k) + gdp_epsilon(mu, 1e-5)


def test_labels_that_say_nothing_leave_the_features():
    assert label_epsilon(1.0, 10) == 0.0
    assert record_epsilon(1.0, 1.0, 10, 1e-5) == pytest.approx(gdp_epsilon(1.0, 1e-5))
    assert record_delta(2.0, 1.0, 10, 1.5) == pytest.approx(gdp_delta(2.0, 1.5))


def test_labels_as_they_are_have_no_price():
    assert label_epsilon(0.0, 10) == record_epsilon(1.0, 0.0, 10, 1e-5) == math.inf
    assert record_delta(1.0, 0.0, 10, 5.0) == 1.0
    assert record_epsilon(math.inf, 0.5, 10, 1e-5) == math.inf


@pytest.mark.parametrize(("p", "k"), [(0.5, 2), (0.1, 10)])
def test_the_noise_found_for_both_keeps_to_its_target(p, k):
    mu = record_mu(6.0, 1e-5, p, k)
    assert record_epsilon(mu, p, k, 1e-5) <= 6.0 * (1 + 1e-12)
    assert record_epsilon(mu * (1 + 1e-6), p, k, 1e-5) > 6.0


def test_a_target_below_the_labels_alone_is_refused():
    with pytest.raises(ValueError, match=r"less than the labels alone cost, 4\.511"):
        record_mu(1.0, 1e-5, 0.1, 10)


@pytest.mark.parametrize("arguments", [(-0.1, 2), (1.1, 2), (math.nan, 2), (0.5, 1), (0.5, 2.5)])
def test_bad_values(arguments):
    with pytest.raises(ValueError, match=r"probability must|classes must"):
        label_epsilon(*arguments)
