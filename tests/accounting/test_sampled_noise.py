"""The Renyi accountant of arbitrary noise against dp-accounting, Monte Carlo and long arithmetic."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from tfdp.accounting import Codebook, sampled_noise_rdp
from tfdp.accounting.noise_moments import log_moments
from tfdp.accounting.sampled_noise import codeword_moments
from tfdp.noise import Cauchy, Gaussian, HyperbolicSecant, Laplace, Noise, StudentT, VarianceGamma, tails

ORDERS = list(range(2, 65))
FAMILIES = [Gaussian(1.0), StudentT(9, 1.0), Cauchy(0.7), Laplace(1.0), HyperbolicSecant(1.0), VarianceGamma(2.0, 1.0)]


def codeword(weights: int, seed: int = 0) -> np.ndarray:
    magnitudes = np.sort(np.abs(np.random.default_rng(seed).normal(size=weights)))
    return magnitudes / np.linalg.norm(magnitudes)


@pytest.mark.parametrize("weights", [1, 5, 1000, 26000])
@pytest.mark.parametrize(("stddev", "rate"), [(1.1, 256 / 60000), (0.5, 0.01), (4.0, 0.1), (1.0, 1.0)])
def test_gaussian_noise_under_a_codeword_costs_what_the_sampled_gaussian_costs(weights, stddev, rate):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(stddev))
    expected = np.array(RdpAccountant(ORDERS).compose(event).rdp)
    found = sampled_noise_rdp(Gaussian(stddev), codeword(weights), rate, ORDERS)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (found >= expected * (1 - 1e-12)).all()


@pytest.mark.parametrize("shift", [0.01, 0.5, 3.0])
def test_laplace_noise_on_one_coordinate_costs_what_dp_accounting_says(shift):
    noise = Laplace(math.sqrt(2))  # of scale 1
    expected = np.array(RdpAccountant(ORDERS).compose(dp_accounting.LaplaceDpEvent(1 / shift)).rdp)
    found = sampled_noise_rdp(noise, [shift], 1.0, ORDERS)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (found >= expected * (1 - 1e-9)).all()


def long_moment(noise, density, shift, k):
    """M_k by mpmath, in 30 digits."""
    import mpmath

    with mpmath.workdps(30):
        t = mpmath.mpf(shift)
        cuts = [-mpmath.inf, -30, -5, -1, 0, t / 2, t, t + 1, t + 5, t + 30, k * t + 40, mpmath.inf]
        return mpmath.log(mpmath.quad(lambda x: density(x - t) ** k * density(x) ** (1 - k), cuts))


@pytest.mark.parametrize("shift", [1e-3, 0.05, 1.0, 4.0])
def test_moments_are_those_of_long_arithmetic_and_never_below(shift):
    mpmath = pytest.importorskip("mpmath")
    densities = {
        Cauchy(1.0): lambda x: 1 / mpmath.pi / (1 + x * x),
        HyperbolicSecant(1.0): lambda x: mpmath.sech(mpmath.pi * x / 2) / 2,
        StudentT(3, scale=1.0): lambda x: 2 / (mpmath.pi * mpmath.sqrt(3) * (1 + x * x / 3) ** 2),
    }
    for noise, density in densities.items():
        found = log_moments(noise, shift, 64)
        for k in (2, 8, 64):
            exact = float(long_moment(noise, density, shift, k))
            assert exact <= found[k - 2] <= exact * (1 + 3e-9)


@pytest.mark.parametrize("noise", FAMILIES, ids=str)
def test_interpolated_moments_are_those_of_each_shift_and_not_below(noise):
    shifts = codeword(400)
    highest = 20
    each = sum(log_moments(noise, max(float(t), 1e-5), highest) for t in shifts)
    table = codeword_moments(noise, shifts, highest)[0]
    np.testing.assert_allclose(table, each, rtol=5e-3)
    assert (table >= each * (1 - 3e-9)).all()


def draws(noise: Noise, shape, random) -> np.ndarray:
    """By NumPy and scipy, none of it by tfdp."""
    match noise:
        case Gaussian(stddev):
            return random.normal(0, stddev, shape)
        case StudentT(df, stddev):
            return random.standard_t(df, shape) * stddev * math.sqrt((df - 2) / df)
        case Cauchy(scale):
            return random.standard_cauchy(shape) * scale
        case Laplace(stddev):
            return random.laplace(0, stddev / math.sqrt(2), shape)
        case HyperbolicSecant(stddev):
            return stats.hypsecant.rvs(scale=2 * stddev / math.pi, size=shape, random_state=random)
        case VarianceGamma(parameter, stddev):
            return random.normal(size=shape) * np.sqrt(random.gamma(parameter, stddev**2 / parameter, shape))


@pytest.mark.parametrize("noise", FAMILIES, ids=str)
@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_no_estimated_divergence_of_encoded_neighbours_exceeds_the_bound(noise, rate):
    """Random vectors under a permuted codeword, both directions; Monte Carlo with its standard error."""
    random = np.random.default_rng(1)
    envelope = codeword(20, seed=2)
    bound = sampled_noise_rdp(noise, envelope, rate, [2, 3])
    for _ in range(4):
        vector = random.permutation(envelope) * np.clip(random.normal(size=20), -1, 1)
        z = draws(noise, (30_000, 20), random)
        without = (noise.log_density(z - vector) - noise.log_density(z)).sum(axis=1)
        mixed = 1 - rate + rate * np.exp(without)
        for order, limit in zip((2, 3), bound, strict=True):
            for samples in (mixed**order, mixed ** (1 - order)):
                error = samples.std() / math.sqrt(len(samples))
                assert samples.mean() - 4 * error <= math.exp((order - 1) * limit)


@pytest.mark.parametrize("noise", [*FAMILIES, VarianceGamma(0.55, 1.0), StudentT(1, scale=1.0)], ids=str)
def test_a_larger_shift_never_costs_less(noise):
    shifts = np.geomspace(1e-4, 8, 60)
    moments = np.array([log_moments(noise, float(shift), 16) for shift in shifts])
    assert (np.diff(moments, axis=0) > 0).all()


def test_several_codewords_cost_what_the_most_expensive_one_costs():
    noise = Laplace(1.0)
    rows = np.array([codeword(30, 1), codeword(30, 2), 0.5 * codeword(30, 3)])
    each = [sampled_noise_rdp(noise, row, 0.01, ORDERS) for row in rows]
    np.testing.assert_allclose(sampled_noise_rdp(noise, rows, 0.01, ORDERS), np.max(each, axis=0), rtol=1e-12)


def test_a_codebook_costs_what_its_codewords_in_full_cost():
    codebook = Codebook(20000, size=2)
    full = np.array([codebook.codeword(i) for i in range(2)])
    found = sampled_noise_rdp(StudentT(9, 1.0), codebook, 0.01, [2, 16, 64])
    np.testing.assert_allclose(found, sampled_noise_rdp(StudentT(9, 1.0), full, 0.01, [2, 16, 64]), rtol=1e-9)


def test_noise_and_codeword_may_be_in_any_unit():
    word = codeword(300)
    ours = sampled_noise_rdp(StudentT(5, 1.0), word, 0.02, ORDERS)
    np.testing.assert_allclose(ours, sampled_noise_rdp(StudentT(5, 40.0), 40 * word, 0.02, ORDERS), rtol=1e-9)


def test_a_codeword_of_nothing_beside_others_costs_nothing_more():
    word = codeword(300)
    both = sampled_noise_rdp(Laplace(1.0), np.array([np.zeros(300), word]), 0.1, [2, 5])
    np.testing.assert_allclose(both, sampled_noise_rdp(Laplace(1.0), word, 0.1, [2, 5]), rtol=1e-12)


def test_nothing_contributed_costs_nothing():
    assert (sampled_noise_rdp(Gaussian(1.0), np.zeros(3), 0.1, [2, 5]) == 0).all()


@dataclasses.dataclass(frozen=True)
class Lighter(Noise):
    """Density proportional to exp(-cosh x): (f(x - t) / f(x))^k f(x) diverges where k e^-t < k - 1."""

    scale: float

    def log_density(self, x):
        z = np.minimum(np.abs(np.asarray(x, dtype=float)) / self.scale, 300)
        return -np.cosh(z) - math.log(2 * 0.42102443824070834 * self.scale)  # K_0(1)

    def upper_quantile(self, tail):
        return tails.upper_quantile(self, tail)

    @property
    def unit(self) -> float:
        return 0.5 * self.scale


def test_an_order_with_an_infinite_moment_is_infinite():
    """At t = log 1.6 moments diverge where k > 1.6 (k - 1) does not hold: from k = 3 on."""
    divergences = sampled_noise_rdp(Lighter(1.0), [math.log(1.6)], 0.1, [2, 3, 8])
    assert np.isfinite(divergences[0]) and np.isinf(divergences[1:]).all()


class Shifted(Gaussian):
    def log_density(self, x):
        return super().log_density(np.asarray(x) - 0.1)


class Bimodal(Gaussian):
    def log_density(self, x):
        x = np.asarray(x, dtype=float)
        return np.logaddexp(super().log_density(x - 2), super().log_density(x + 2)) - math.log(2)


class TooLarge(Gaussian):
    def log_density(self, x):
        return super().log_density(x) + 0.01


class NotDrawn(Gaussian):
    def upper_quantile(self, tail):
        return 0.5 * super().upper_quantile(tail)


class NoFields(Noise):
    """Without the decorator its scale is no field: two of different scales would be equal."""

    def __init__(self, scale: float):
        object.__setattr__(self, "scale", scale)

    def log_density(self, x):
        return Gaussian(self.scale).log_density(x)

    def upper_quantile(self, tail):
        return Gaussian(self.scale).upper_quantile(tail)


@dataclasses.dataclass(frozen=True)
class NotCompared(Gaussian):
    df: float = dataclasses.field(default=1.0, compare=False)


class NotScaled(Gaussian):
    def log_density(self, x):
        return Gaussian(math.sqrt(self.stddev)).log_density(x)

    def upper_quantile(self, tail):
        return Gaussian(math.sqrt(self.stddev)).upper_quantile(tail)


class Bounded(Laplace):
    def log_density(self, x):
        return np.where(np.abs(x) < 3 * self.stddev, super().log_density(x), -np.inf)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (VarianceGamma(0.4, 1.0), "not finite at 0.*shape above 1/2"),
        (VarianceGamma(0.5, 1.0), "not finite at 0"),
        (Shifted(1.0), "not symmetric about 0"),
        (Bimodal(1.0), "grows somewhere with"),
        (TooLarge(1.0), "does not integrate to 1"),
        (NotDrawn(1.0), "upper_quantile is of another distribution"),
        (NotScaled(2.0), "does not multiply it"),
        (Bounded(1.0), "not finite everywhere"),
        (NoFields(1.0), "not all its parameters are fields"),
        (NotCompared(1.0), "not all its parameters are fields"),
        ("gaussian", "noise must be a tfdp.noise.Noise"),
    ],
    ids=str,
)
def test_a_noise_without_the_properties_the_proof_needs_is_refused(noise, message):
    with pytest.raises(ValueError, match=message):
        sampled_noise_rdp(noise, [1.0], 0.1, [2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], 0.1, [1]), "at least 2"),
        (([1.0], 0.1, [2.5]), "whole number"),
        (([1.0], 0.1, []), "orders is empty"),
        (([1.0], 0, [2]), "sampling_rate"),
        (([float("nan")], 0.1, [2]), "finite vector"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sampled_noise_rdp(Gaussian(1.0), *arguments)
