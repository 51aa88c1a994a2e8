"""Whole-numbered noise: every number is a true normal, rounded, whichever way it was found."""

import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.mechanisms.test_normals import ONES, bits_at_every_scale, words
from tfdp.mechanisms import SecretGenerator, grid_noise, normals
from tfdp.mechanisms.grid_noise import exactly_rounded, rounded_normals, rounded_where_certain

UNDECIDED = -(2**31)
LAST = 2**128  # V = 1 and W = 1, the other end of what the bits leave open


def float64_normals(radius_bits, angle_bits) -> np.ndarray:
    """[n, 2]"""
    drawn = normals.exact_normals_from_bits(words(radius_bits), words(angle_bits)).numpy()
    return np.stack([drawn.real, drawn.imag], 1)


def some_bits(number: int) -> list[tuple[int, int]]:
    radius_bits, angle_bits = bits_at_every_scale()
    chosen = np.r_[: number // 4, np.random.default_rng(0).integers(0, len(radius_bits), number - number // 4)]
    return list(zip(radius_bits[chosen].tolist(), angle_bits[chosen].tolist(), strict=True))


def test_what_is_decided_does_not_depend_on_the_bits_that_were_not_drawn():
    """At the halves, where rounding turns over: standard deviations are chosen so that draws lie just beside one."""
    bits = some_bits(400)
    z = float64_normals(*zip(*bits, strict=True))
    beside = np.where(np.arange(400) % 2, 1, -1) * 10.0 ** np.random.default_rng(1).uniform(-10, -5, 400)
    whole = np.random.default_rng(2).integers(10**4, 10**7, 400)
    with np.errstate(divide="ignore"):
        stddev = np.minimum((whole + 0.5 + beside) / np.abs(z[:, 0]), 2.0**26)
    found = rounded_where_certain(tf.constant(z), tf.constant(stddev[:, None])).numpy()
    decided = found != UNDECIDED
    assert 0.2 < decided.mean() < 0.9  # both happen
    for (radius_bits, angle_bits), s, got, sure in zip(bits, stddev, found, decided, strict=True):
        if sure.any():
            for v in (1, LAST):
                exact = exactly_rounded(s, radius_bits, angle_bits, v, v)
                assert all(g == e for g, e, certain in zip(got, exact, sure, strict=True) if certain)


def test_what_is_undecided_is_found_from_the_same_bits(monkeypatch):
    """With nothing decided in float64 all numbers come from decimals: they are the same."""
    stddev, shapes = 1e5, [(3, 4), (), (29,)]
    quick = [n.numpy() for n in rounded_normals(SecretGenerator(seed=1), shapes, stddev)]
    monkeypatch.setattr(grid_noise, "rounded_where_certain", lambda z, stddev: tf.fill(tf.shape(z), UNDECIDED))
    slow = [n.numpy() for n in rounded_normals(SecretGenerator(seed=1), shapes, stddev)]
    for one, other, shape in zip(quick, slow, shapes, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.shape == shape
        assert one.dtype == np.int32


def test_few_and_many_draws_are_made_of_the_same_bits(monkeypatch):
    one_by_one = rounded_normals(SecretGenerator(seed=6), [(5001,)], 1e5)[0].numpy()
    monkeypatch.setattr(normals, "MANY_PAIRS", 1)
    np.testing.assert_array_equal(rounded_normals(SecretGenerator(seed=6), [(5001,)], 1e5)[0].numpy(), one_by_one)


def test_numbers_have_the_law_of_a_rounded_normal():
    """With so little noise that every whole number can be counted."""
    stddev, size = 1.7, 200_000
    drawn = rounded_normals(SecretGenerator(seed=5), [(size,)], stddev)[0].numpy()
    ends = np.arange(-6, 8) - 0.5
    cells = np.diff(scipy.stats.norm.cdf(np.r_[-math.inf, ends, math.inf] / stddev))
    counts = np.histogram(drawn, np.r_[-1e9, ends, 1e9])[0]
    assert scipy.stats.chisquare(counts, size * cells).pvalue > 1e-3
    assert abs(np.corrcoef(drawn[::2], drawn[1::2])[0, 1]) < 4 / math.sqrt(size / 2)


@pytest.mark.parametrize(
    ("radius_bits", "angle_bits", "v", "w", "expected"),
    [
        (0, 2047, 1, 1, (math.sqrt(2 * 203 * math.log(2)), 0)),  # the farthest of all
        (0, 0, LAST, 1, (math.sqrt(128 * math.log(2)), 0)),
        (ONES, 0, LAST, LAST, (0, 0)),
        (2**63, 2**62, LAST, 1, (0, math.sqrt(2 * math.log(2)))),
        (2**63, 2**63, LAST, 1, (-math.sqrt(2 * math.log(2)), 0)),
        (2**63, ONES - 2**62 + 1, LAST, 1, (0, -math.sqrt(2 * math.log(2)))),
    ],
)
def test_extreme_bits_give_the_values_of_the_formula(radius_bits, angle_bits, v, w, expected):
    found = exactly_rounded(1e6, radius_bits, angle_bits, v, w)
    np.testing.assert_allclose(found, 1e6 * np.array(expected), atol=0.51)


def test_pairs_near_0_or_far_out_are_never_decided_in_float64():
    z = float64_normals([ONES, 0, 2**20, 2**63], [5, 5, 2**61, 12345])
    undecided = rounded_where_certain(tf.constant(z), 1e4).numpy() == UNDECIDED
    np.testing.assert_array_equal(undecided, [[True] * 2, [True] * 2, [True] * 2, [False] * 2])
