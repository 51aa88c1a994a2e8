"""The map from bits to normals, against extended precision and as a distribution."""

import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tfdp.mechanisms import SecretGenerator, normals, standard_normals

ONES = 2**64 - 1
LARGEST = math.sqrt(150 * math.log(2))


def pairs(radius_bits, angle_bits, jit_compile=False) -> np.ndarray:
    """[2, n]"""
    drawn = tf.function(normals.normals_from_bits, jit_compile=jit_compile)(
        words(radius_bits), words(angle_bits)
    ).numpy()
    return np.stack([drawn.real, drawn.imag])


def words(values) -> tf.Tensor:
    return tf.constant(np.array(values, dtype=np.uint64))


def exact_normals(radius_bits, angle_bits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The map in extended precision, from its definition: (radius, radius * cos, radius * sin)."""
    low = np.longdouble(angle_bits & np.uint64(2047))
    u = np.ldexp(np.longdouble(radius_bits), -64) + np.ldexp(2048 - low, -75)
    radius = np.sqrt(-2 * np.log(u))
    pi = np.longdouble("3.14159265358979323846264338327950288")
    angle = np.ldexp(np.longdouble(angle_bits.view(np.int64)) * pi, -63)
    return radius, radius * np.cos(angle), radius * np.sin(angle)


def bits_at_every_scale() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    n = 200_000
    shift = rng.integers(0, 64, n).astype(np.uint64)
    radius_bits = rng.integers(0, ONES, n, dtype=np.uint64, endpoint=True) >> shift
    angle_bits = rng.integers(0, ONES, n, dtype=np.uint64, endpoint=True)
    edges = np.array(
        [0, 1, 2047, 2048, 2**52, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, ONES - 1, ONES], np.uint64
    )
    pairs = np.stack(np.meshgrid(edges, edges)).reshape(2, -1)
    return np.concatenate([pairs[0], radius_bits]), np.concatenate([pairs[1], angle_bits])


@pytest.mark.parametrize(
    ("radius_bits", "angle_bits", "expected"),
    [
        (0, ONES, (LARGEST, 0)),
        (0, 2**63 - 1, (-LARGEST, 0)),
        (0, 0, (math.sqrt(128 * math.log(2)), 0)),
        (0, 2**63, (-math.sqrt(128 * math.log(2)), 0)),
        (2**63, 2**62, (0, math.sqrt(2 * math.log(2)))),
        (2**63, ONES - 2**62 + 1, (0, -math.sqrt(2 * math.log(2)))),
        (ONES, 0, (0, 0)),
        (ONES, ONES, (0, 0)),
    ],
)
def test_extreme_bits_give_the_values_of_the_formula(radius_bits, angle_bits, expected):
    np.testing.assert_allclose(pairs([radius_bits], [angle_bits])[:, 0], expected, rtol=1e-6, atol=3e-6)


def test_the_largest_draw_is_beyond_ten_standard_deviations_where_tensorflow_stops_below_six():
    assert pairs([0], [ONES])[0, 0] == np.float32(LARGEST) > 10
    assert math.sqrt(-2 * math.log(1e-7)) < 5.68


@pytest.mark.parametrize("jit_compile", [False, True])
def test_no_bits_give_nan_or_infinity_or_more_than_the_largest_radius(jit_compile):
    radius_bits, angle_bits = bits_at_every_scale()
    near_one = np.uint64(ONES) - np.arange(2**18, dtype=np.uint64) * np.uint64(2**9)
    radius_bits = np.concatenate([radius_bits, near_one])
    angle_bits = np.concatenate([angle_bits, near_one * np.uint64(0x9E3779B97F4A7C15)])
    drawn = pairs(radius_bits, angle_bits, jit_compile)
    assert np.isfinite(drawn).all()
    assert np.hypot(*drawn.astype("float64")).max() <= LARGEST * (1 + 4e-7)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_draws_are_within_their_stated_distance_of_extended_precision(jit_compile):
    radius_bits, angle_bits = bits_at_every_scale()
    radius, *exact = exact_normals(radius_bits, angle_bits)
    in_radius = np.minimum(1e-15 * (radius + 1 / np.maximum(radius, 1e-30)), 1.1e-8)
    compute = tf.function(normals.radius, jit_compile=jit_compile)
    assert (np.abs(compute(words(radius_bits), words(angle_bits)).numpy() - radius) <= in_radius).all()
    for value, true_value in zip(pairs(radius_bits, angle_bits, jit_compile), exact, strict=True):
        assert (np.abs(value - true_value) <= in_radius + 4e-7 * radius).all()


def test_few_draws_are_as_near_as_float32_can_be():
    radius_bits, angle_bits = bits_at_every_scale()
    radius, *exact = exact_normals(radius_bits, angle_bits)
    in_radius = np.minimum(1e-15 * (radius + 1 / np.maximum(radius, 1e-30)), 1.1e-8)
    drawn = normals.normals_by_kernels(words(radius_bits), words(angle_bits)).numpy().T
    for value, true_value in zip(drawn, exact, strict=True):
        assert (np.abs(value - true_value) <= in_radius + 1e-15 * radius + 6e-8 * np.abs(true_value)).all()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_exact_draws_are_exact_to_float64(jit_compile):
    radius_bits, angle_bits = bits_at_every_scale()
    radius, *exact = exact_normals(radius_bits, angle_bits)
    in_radius = np.minimum(1e-15 * (radius + 1 / np.maximum(radius, 1e-30)), 1.1e-8)
    compute = tf.function(normals.exact_normals_from_bits, jit_compile=jit_compile)
    drawn = compute(words(radius_bits), words(angle_bits)).numpy()
    for value, true_value in zip((drawn.real, drawn.imag), exact, strict=True):
        assert (np.abs(value - true_value) <= in_radius + 1e-15 * radius).all()


def test_the_radius_never_grows_with_the_bits():
    ladder = sorted({scale + step for scale in (2**k for k in range(64)) for step in (-1, 0, 1)} | {0, ONES})
    radii = normals.radius(words(ladder), words([0] * len(ladder))).numpy()
    assert (np.diff(radii) <= 1e-15).all()
    within_the_last_cell = normals.radius(words([0] * 2048), words(range(2048))).numpy()
    assert (np.diff(within_the_last_cell) > 0).all()


def test_the_radius_has_the_tail_of_a_true_pair_out_to_its_end():
    for radius in np.arange(0.05, 10.0, 0.05):
        cell = round(scipy.stats.rayleigh.sf(radius) * 2**75) - 1  # as many of the 2^75 cells lie further out
        radius_bits, low = divmod(cell, 2048)
        value = float(normals.radius(words([radius_bits]), words([2047 - low]))[0])
        assert value == pytest.approx(radius, rel=1e-3 if radius > 9 else 1e-6)


def test_a_million_draws_are_standard_normal():
    draws = standard_normals(SecretGenerator(seed=1), [(1_000_000,)])[0].numpy().astype("float64")
    n = draws.size
    assert abs(draws.mean()) < 4 / math.sqrt(n)
    assert abs(draws.std() - 1) < 4 / math.sqrt(2 * n)
    assert abs(scipy.stats.skew(draws)) < 4 * math.sqrt(6 / n)
    assert abs(scipy.stats.kurtosis(draws)) < 4 * math.sqrt(24 / n)
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-3


def test_both_draws_of_a_pair_and_the_words_of_a_pair_are_independent():
    first, second = standard_normals(SecretGenerator(seed=2), [(200_000, 2)])[0].numpy().T
    for left, right in (
        (first, second),
        (first**2, second**2),
        (first[1:], first[:-1]),
        (first[1:], second[:-1]),
    ):
        assert abs(np.corrcoef(left, right)[0, 1]) < 4 / math.sqrt(left.size)


def test_noise_of_all_variables_has_their_shapes_and_shares_no_value():
    shapes = [(3, 5), (), (0, 4), tf.TensorShape([7]), [2, 2, 2]]
    noise = standard_normals(SecretGenerator(), shapes)
    assert [tuple(tensor.shape) for tensor in noise] == [(3, 5), (), (0, 4), (7,), (2, 2, 2)]
    values = np.concatenate([tensor.numpy().ravel() for tensor in noise])
    assert len(np.unique(values)) == values.size == 31
    assert standard_normals(SecretGenerator(), []) == []


def test_few_and_many_draws_are_made_of_the_same_bits(monkeypatch):
    many = standard_normals(SecretGenerator(seed=6), [(200_000,)])[0].numpy()
    monkeypatch.setattr(normals, "MANY_PAIRS", 10**9)
    one_by_one = standard_normals(SecretGenerator(seed=6), [(200_000,)])[0].numpy()
    np.testing.assert_allclose(many, one_by_one, rtol=1e-6, atol=1e-6)


def test_an_odd_number_of_draws_leaves_one_of_a_pair_out():
    odd, even = (standard_normals(SecretGenerator(seed=4), [(size,)])[0].numpy() for size in (7, 8))
    np.testing.assert_array_equal(odd, even[:7])
    assert odd.dtype == np.float32
