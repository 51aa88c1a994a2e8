"""Secret normals in float64."""

import math

import numpy as np
import pytest
import scipy.stats

from tfdp.erm.noise import SecretNormals, normals_from_bits, on_a_grid


def test_draws_are_normal():
    draws = SecretNormals(seed=5)((100_001,))
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(draws[:50_000], draws[50_001:])[0, 1]) < 0.02  # the two of a pair


def test_tails_end_where_their_price_says():
    bits = np.array([0, 0, 2**64 - 1], np.uint64), np.array([2**11 - 1, 0, 0], np.uint64)
    first = normals_from_bits(*bits)[:3]
    assert first[0] == pytest.approx(math.sqrt(150 * math.log(2)))
    assert first[1] == pytest.approx(math.sqrt(128 * math.log(2)))
    assert first[2] == 0


def test_no_seed_of_numpy_moves_the_noise():
    draws = []
    for _ in range(2):
        np.random.seed(1)
        draws.append(SecretNormals()((4,)))
    assert not np.isclose(*draws).any()


def test_seeded_draws_repeat_and_say_so():
    np.testing.assert_array_equal(SecretNormals(3)((2, 3)), SecretNormals(3)((2, 3)))
    assert SecretNormals(3).seeded
    assert not SecretNormals().seeded


def test_weights_lie_on_a_grid_that_is_fine_beside_their_noise():
    weights = np.random.default_rng(0).normal(size=100)
    rounded = on_a_grid(weights, 0.3)
    assert np.abs(rounded - weights).max() <= 0.3 * 2.0**-24
    steps = rounded / 2.0 ** math.floor(math.log2(0.3 * 2.0**-24))
    np.testing.assert_array_equal(steps, np.round(steps))
