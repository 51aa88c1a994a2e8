"""What is done to a release before weights are moved by it."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.mechanisms.lots import SHAPES, SIZE, flat, shaped
from tests.mechanisms.test_noise_samplers import FAMILIES
from tfdp.gradients import Ellipsoid
from tfdp.mechanisms import GaussianMechanism, SecretGenerator, denoised
from tfdp.mechanisms.denoising import distribution, ks_distance
from tfdp.noise import Gaussian, Noise, StudentT


@pytest.mark.parametrize(("noise", "cdf"), FAMILIES, ids=lambda part: repr(part) if isinstance(part, Noise) else "")
@pytest.mark.parametrize("size", [1, 50, 3000])
def test_the_scale_is_that_of_scipys_kolmogorov_smirnov_test(noise, cdf, size):
    random = np.random.default_rng(size)
    values = noise.size * (random.standard_t(3, size) + random.choice([0.0, 0.3]))
    expected = scipy.stats.kstest(values, cdf).statistic
    np.testing.assert_allclose(ks_distance(tf.constant(values), noise), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("noise", "cdf"), FAMILIES, ids=lambda part: repr(part) if isinstance(part, Noise) else "")
def test_the_distribution_function_is_that_of_scipy_everywhere(noise, cdf):
    x = noise.size * np.concatenate([np.linspace(-8, 8, 4001), [-1e30, -1e9, 1e9, 1e30]])
    np.testing.assert_allclose(distribution(tf.constant(x), noise), cdf(x), rtol=0, atol=1e-8)


def test_equal_coordinates_are_as_far_from_noise_as_scipy_says():
    expected = scipy.stats.kstest(np.full(SIZE, 0.5), scipy.stats.norm(0, 2.0).cdf).statistic
    np.testing.assert_allclose(ks_distance(tf.fill([SIZE], 0.5), Gaussian(2.0)), expected, atol=1e-8)


def test_a_release_is_scaled_in_the_units_of_its_noise():
    released = shaped(np.random.default_rng(0).standard_normal(SIZE) * 0.01)
    unit = 1.5 / 256  # clip over lot
    scale = scipy.stats.kstest(flat(released) / unit, scipy.stats.norm(0, 1.1).cdf).statistic
    found = denoised("ks", released, Gaussian(1.1), unit)
    np.testing.assert_allclose(flat(found), scale * flat(released), rtol=1e-6)


def test_in_an_ellipsoid_coordinates_are_compared_on_their_own_scales():
    random = np.random.default_rng(1)
    scales, centre, standard = (
        10.0 ** random.uniform(-1, 1, SIZE),
        random.standard_normal(SIZE),
        random.standard_normal(SIZE),
    )
    released = shaped(centre + 0.1 * scales * standard)
    found = denoised("ks", released, Gaussian(1.0), 0.1, Ellipsoid(shaped(scales), shaped(centre)))
    scale = scipy.stats.kstest(standard, "norm").statistic
    np.testing.assert_allclose(flat(found), scale * flat(released), rtol=1e-4)


def test_noise_alone_is_scaled_down_by_one_over_the_root_of_the_weights():
    mechanism = GaussianMechanism(2.0, 1.3)
    (released,), _ = mechanism.release({}, [tf.zeros([10_000])], None, 64.0, SecretGenerator(0))
    (found,) = denoised("ks", [released], mechanism.noise_of_release, mechanism.unit_of_release(64.0))
    assert np.linalg.norm(found) < 0.02 * np.linalg.norm(released)


def test_without_noise_there_is_nothing_to_compare_with():
    assert GaussianMechanism(1.0, 0.0).noise_of_release is None
    released = shaped(np.ones(SIZE))
    np.testing.assert_array_equal(flat(denoised("ks", released, None, 1.0)), np.ones(SIZE))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 17, 1001])
def test_smoothing_solves_the_linear_system_on_the_ring(size):
    g = np.random.default_rng(size).standard_normal(size).astype("f4")
    laplacian = np.zeros((size, size))
    for i in range(size):
        for neighbour in ((i + 1) % size, (i - 1) % size):
            laplacian[i, i] -= 1
            laplacian[i, neighbour] += 1
    expected = np.linalg.solve(np.eye(size) - laplacian, g)
    (found,) = denoised("laplacian", [tf.constant(g)], None, 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_smoothing_runs_over_all_weights_in_one_ring_and_keeps_their_shapes():
    released = shaped(np.arange(SIZE, dtype="f4"))
    found = denoised("laplacian", released, StudentT(9, 1.0), 1.0)
    assert [tuple(part.shape) for part in found] == SHAPES
    (ring,) = denoised("laplacian", [tf.constant(flat(released), tf.float32)], None, 1.0)
    np.testing.assert_allclose(flat(found), ring, rtol=1e-6)
    assert flat(found).sum() == pytest.approx(flat(released).sum(), rel=1e-6)
