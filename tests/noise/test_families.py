"""Densities, tails and moments against scipy.stats."""

import math

import numpy as np
import pytest
from scipy import stats

from tfdp.noise import Cauchy, Gaussian, HyperbolicSecant, Laplace, Noise, StudentT, VarianceGamma
from tfdp.noise.tails import upper_quantile

X = np.linspace(-30, 30, 2001)
X = X[X != 0]
TAILS = np.array([0.4, 0.3, 0.25, 0.1, 1e-3, 1e-10, 1e-18])


def variance_gamma(shape: float, stddev: float):
    """The limit of scipy's generalised hyperbolic distribution."""
    small = 1e-7
    return stats.genhyperbolic(shape, math.sqrt(2 * shape) / stddev * small, 0, scale=small)


FAMILIES = [
    (Gaussian(1.3), stats.norm(scale=1.3)),
    *((StudentT(df, 1.3), stats.t(df, scale=1.3 * math.sqrt((df - 2) / df))) for df in (2.5, 3, 9, 30)),
    (StudentT(1, scale=1.3), stats.t(1, scale=1.3)),
    (StudentT(2, scale=0.2), stats.t(2, scale=0.2)),
    (Laplace(1.3), stats.laplace(scale=1.3 / math.sqrt(2))),
    (Cauchy(0.7), stats.cauchy(scale=0.7)),
    (HyperbolicSecant(1.3), stats.hypsecant(scale=2.6 / math.pi)),
    (VarianceGamma(1, 1.3), stats.laplace(scale=1.3 / math.sqrt(2))),
]
CLOSED = [(noise, reference) for noise, reference in FAMILIES if not isinstance(noise, VarianceGamma)]


def named(pairs):
    return pytest.mark.parametrize(("noise", "reference"), pairs, ids=lambda value: str(value)[:40])


@named(FAMILIES)
def test_the_log_density_is_scipys(noise, reference):
    np.testing.assert_allclose(noise.log_density(X), reference.logpdf(X), rtol=1e-12, atol=1e-12)


@named(FAMILIES)
def test_the_tails_are_scipys(noise, reference):
    np.testing.assert_allclose(noise.survival(X), reference.sf(X), rtol=1e-10)
    np.testing.assert_allclose(noise.upper_quantile(TAILS), reference.isf(TAILS), rtol=1e-10)
    assert noise.upper_quantile(np.array([0.5]))[0] == pytest.approx(0, abs=1e-12)


@named(FAMILIES)
def test_the_variance_is_scipys(noise, reference):
    variance = reference.var()
    expected = math.inf if math.isnan(variance) else variance
    assert noise.variance == pytest.approx(expected, rel=1e-12)
    assert noise.absolute_moment(2) == pytest.approx(expected, rel=1e-9)


@named(CLOSED)
def test_the_numerical_tails_of_a_family_without_formulas_are_those_of_the_formulas(noise, reference):
    inside = X[noise.survival(X) > 1e-17]
    np.testing.assert_allclose(Noise.survival(noise, inside), reference.sf(inside), rtol=1e-8)
    np.testing.assert_allclose(upper_quantile(noise, TAILS[:-1]), reference.isf(TAILS[:-1]), rtol=1e-9)


@pytest.mark.parametrize("shape", [0.55, 0.8, 2.0, 3.7])
def test_the_variance_gamma_is_the_limit_of_the_generalised_hyperbolic(shape):
    noise = VarianceGamma(shape, 1.3)
    far = X[np.abs(X) > 0.02]
    np.testing.assert_allclose(noise.log_density(far), variance_gamma(shape, 1.3).logpdf(far), atol=1e-6)
    assert noise.absolute_moment(2) == pytest.approx(1.69, rel=1e-9)
    np.testing.assert_allclose(noise.survival(noise.upper_quantile(TAILS)), TAILS, rtol=1e-10)


@pytest.mark.parametrize("shape", [0.55, 2.0])
def test_the_variance_gamma_keeps_its_density_near_zero_and_far_out(shape):
    noise = VarianceGamma(shape, 1.0)
    assert np.diff(noise.log_density(np.array([0.0, 1e-300, 1e-100, 1e-10, 1e-3, 1.0, 1e5, 1e7, 1e20]))).max() <= 1e-12
    assert VarianceGamma(0.4, 1.0).log_density(np.array([0.0]))[0] == math.inf


@pytest.mark.parametrize("df", [1e5, 1e7, 1.1e7, 1e10, 1e16, 1e300, 1.7e308])
def test_student_t_with_many_degrees_of_freedom_is_nearly_gaussian(df):
    noise, normal, z = StudentT(df, scale=1.3), Gaussian(1.3), X / 5
    # Their densities' ratio is exp((x^4 - 2 x^2 - 1) / (4 nu) + O(x^6 / nu^2)), x in units of the scale.
    first = ((z / 1.3) ** 4 - 2 * (z / 1.3) ** 2 - 1) / (4 * df)
    np.testing.assert_allclose(noise.log_density(z), normal.log_density(z) + first, atol=1e-12 + 1e4 / df / df)
    quantiles = noise.upper_quantile(TAILS)
    np.testing.assert_allclose(stats.t.sf(quantiles / 1.3, df), TAILS, rtol=1e-7)
    assert np.all(np.diff(quantiles[np.argsort(TAILS)]) < 0)
    assert noise.upper_quantile(np.array([0.0]))[0] == math.inf


def test_the_mean_of_the_absolute_value():
    assert Gaussian(2.0).mean_absolute == pytest.approx(2 * math.sqrt(2 / math.pi), rel=1e-10)
    assert Laplace(math.sqrt(2)).mean_absolute == pytest.approx(1.0, rel=1e-10)
    assert Cauchy(1.0).mean_absolute == math.inf
    # E|T| = 2 sqrt(nu) Gamma((nu + 1) / 2) / ((nu - 1) sqrt(pi) Gamma(nu / 2)), here nu = 9, times the scale
    expected = 2 * 3 * math.gamma(5) / (8 * math.sqrt(math.pi) * math.gamma(4.5)) * math.sqrt(7 / 9)
    assert StudentT(9, 1.0).mean_absolute == pytest.approx(expected, rel=1e-10)
