"""The Gaussian mechanism alone, against dp-accounting and against its definition."""

import math

import dp_accounting
import pytest
from scipy import stats

from tfdp.accounting.analytic_gaussian import gaussian_epsilon, gaussian_mu, gaussian_stddev

SETTINGS = [(epsilon, delta) for epsilon in (0.01, 0.25, 1.0, 8.0, 100.0) for delta in (1e-10, 1e-5, 0.1)]


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_noise_is_that_of_dp_accounting(epsilon, delta):
    assert gaussian_stddev(epsilon, delta) == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_noise_is_enough_and_no_more(epsilon, delta):
    """By theorem 8 of Balle and Wang 2018."""

    def failure(stddev):
        left, right = 1 / (2 * stddev) - epsilon * stddev, -1 / (2 * stddev) - epsilon * stddev
        return stats.norm.cdf(left) - math.exp(epsilon + stats.norm.logcdf(right))

    stddev = gaussian_stddev(epsilon, delta)
    assert failure(stddev) <= delta * (1 + 1e-9)
    assert failure(stddev * (1 - 1e-5)) > delta
    assert gaussian_epsilon(stddev, delta) <= epsilon
    assert gaussian_epsilon(stddev * (1 - 1e-9), delta) > epsilon


@pytest.mark.parametrize("epsilon", [1e-9, 1e-12])
def test_noise_for_a_tiny_target_is_found_in_the_end(epsilon):
    """For mu near 0, delta / mu is phi(a) - a Phi(-a) with a = epsilon / mu: the same noise at the same delta / epsilon, in its units."""
    stddev = gaussian_stddev(epsilon, epsilon / 10)
    assert stddev * epsilon == pytest.approx(0.937368248, rel=1e-6)
    a = stddev * epsilon
    assert stats.norm.pdf(a) - a * stats.norm.sf(a) == pytest.approx(a / 10, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 0.9])
def test_the_classic_formula_asks_for_more(epsilon):
    assert gaussian_stddev(epsilon, 1e-5) < math.sqrt(2 * math.log(1.25e5)) / epsilon


def test_a_replaced_record_of_length_one_moves_by_two():
    assert gaussian_mu(4.0, sensitivity=2.0) == 0.5
    assert gaussian_stddev(1.0, 1e-5, sensitivity=2.0) == pytest.approx(2 * gaussian_stddev(1.0, 1e-5))


def test_the_ends_of_the_scale():
    assert gaussian_mu(0.0) == math.inf
    assert gaussian_epsilon(0.0, 1e-5) == math.inf
    assert gaussian_mu(0.0, sensitivity=0.0) == gaussian_stddev(1.0, 1e-5, sensitivity=0.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0.0, 1e-5), "epsilon"), ((1.0, 0.0), "delta"), ((1.0, 1e-5, -1.0), "sensitivity"), ((1.0, 1.0), "delta")],
)
def test_bad_values(arguments, message):
    with pytest.raises(ValueError, match=message):
        gaussian_stddev(*arguments)


@pytest.mark.parametrize("stddev", [-1.0, math.nan, "1"])
def test_bad_noise(stddev):
    with pytest.raises(ValueError, match="stddev must"):
        gaussian_mu(stddev)
