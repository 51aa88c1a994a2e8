"""Drawn noise against scipy's distributions."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tfdp.mechanisms import SecretGenerator, noise_samplers
from tfdp.noise import Cauchy, Gaussian, HyperbolicSecant, Laplace, Noise, StudentT, VarianceGamma

DRAWS = 10**6


@dataclasses.dataclass(frozen=True)
class Logistic(Noise):
    """A user's family."""

    scale: float

    def log_density(self, x):
        z = np.abs(np.asarray(x, dtype=float)) / self.scale
        return -z - 2 * np.log1p(np.exp(-z)) - math.log(self.scale)

    def upper_quantile(self, tail):
        return self.scale * (np.log1p(-np.asarray(tail)) - np.log(tail))


FAMILIES = [
    (Gaussian(1.3), scipy.stats.norm(0, 1.3).cdf),
    (Laplace(0.7), scipy.stats.laplace(0, 0.7 / math.sqrt(2)).cdf),
    (Cauchy(2.0), scipy.stats.cauchy(0, 2.0).cdf),
    (HyperbolicSecant(1.5), scipy.stats.hypsecant(0, 2 * 1.5 / math.pi).cdf),
    (VarianceGamma(1.0, 1.1), scipy.stats.laplace(0, 1.1 / math.sqrt(2)).cdf),
    (Logistic(0.4), scipy.stats.logistic(0, 0.4).cdf),
    *[(StudentT(df, scale=1.7), scipy.stats.t(df, 0, 1.7).cdf) for df in (1, 2, 3, 4, 5, 7, 9, 15, 30)],
    (StudentT(9, stddev=1.0), scipy.stats.t(9, 0, math.sqrt(7 / 9)).cdf),
]


def drawn(noise: Noise, count: int = DRAWS, seed: int = 5) -> np.ndarray:
    (draws,) = noise_samplers.noise_draws(noise, SecretGenerator(seed), [(count,)])
    assert draws.dtype == tf.float64
    return draws.numpy()


@pytest.mark.parametrize(("noise", "cdf"), FAMILIES, ids=lambda part: repr(part) if isinstance(part, Noise) else "")
def test_a_million_draws_have_the_law_of_the_family(noise, cdf):
    assert scipy.stats.kstest(drawn(noise), cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [0.6, 0.8, 2.0, 5.5])
def test_variance_gamma_is_a_normal_of_gamma_variance(shape):
    random = np.random.default_rng(3)
    mixture = 1.2 * np.sqrt(random.gamma(shape, 1 / shape, DRAWS)) * random.standard_normal(DRAWS)
    assert scipy.stats.ks_2samp(drawn(VarianceGamma(shape, 1.2)), mixture).pvalue > 1e-3


@pytest.mark.parametrize("noise", [noise for noise, _ in FAMILIES[1:]] + [VarianceGamma(0.7, 1.0)], ids=repr)
def test_draws_are_the_noises_own_quantiles_far_into_the_tails(noise):
    """All but Student's: the same bits by the formula of the room that prices them, at tails of 1e-4 to 1e-22."""
    bits = (2.0 ** np.arange(4.5, 50, 2)).astype(np.uint64)
    u = (bits * 2.0**11 + 2.0**11) * 2.0**-75
    got = noise_samplers.from_bits(noise, tf.constant(bits), tf.zeros(len(bits), tf.uint64)).numpy()
    if isinstance(noise, StudentT):
        radius = got
        # A pair's radius is beyond r with probability (1 + r^2 / df)^(-df / 2).
        scale = noise.upper_quantile(np.array(0.25)) / scipy.stats.t(noise.df).isf(0.25)
        np.testing.assert_allclose((1 + (radius / scale) ** 2 / noise.df) ** (-noise.df / 2), u, rtol=1e-9)
    else:
        np.testing.assert_allclose(got, noise.upper_quantile(u / 2), rtol=1e-9)


@pytest.mark.parametrize("noise", [VarianceGamma(0.6, 1.0), VarianceGamma(3.0, 2.0), Logistic(1.0)], ids=repr)
def test_the_table_of_quantiles_is_exact_to_1e_minus_9_between_its_entries(noise):
    v = 10 ** np.random.default_rng(0).uniform(-6, math.log10(51.9), 20_000)
    got = noise_samplers.quantile_table.sizes(noise, tf.constant(np.exp(-v))).numpy()
    np.testing.assert_allclose(got, noise.upper_quantile(np.exp(-v) / 2), rtol=1e-9)


@pytest.mark.parametrize("noise", [noise for noise, _ in FAMILIES], ids=repr)
def test_every_bit_pattern_gives_a_finite_draw(noise):
    edges = np.array([0, 1, 2**11 - 1, 2**63 - 1, 2**63, 2**64 - 2**11, 2**64 - 1], np.uint64)
    size_bits, sign_bits = (tf.constant(np.ravel(part)) for part in np.meshgrid(edges, edges))
    draws = noise_samplers.from_bits(noise, size_bits, sign_bits).numpy()
    assert np.isfinite(draws).all() and (draws > 0).any() and (draws < 0).any()


def test_the_sign_is_fair_and_independent_of_the_size():
    draws = drawn(Laplace(1.0))
    assert abs(np.mean(draws > 0) - 0.5) < 3e-3
    assert scipy.stats.ks_2samp(draws[draws > 0], -draws[draws < 0]).pvalue > 1e-3


def test_each_call_draws_anew_in_a_graph_and_all_shapes_are_filled():
    generator = SecretGenerator()
    draw = tf.function(lambda: noise_samplers.noise_draws(StudentT(9, 1.0), generator, [(3, 2), (), (5,)]))
    first, second = draw(), draw()
    assert [part.shape.as_list() for part in first] == [[3, 2], [], [5]]
    values = np.concatenate([np.ravel(part) for part in (*first, *second)])
    assert len(np.unique(values)) == 24
    assert noise_samplers.noise_draws(Cauchy(1.0), generator, [(0,)])[0].shape == (0,)
