"""Normal noise in whole numbers, every one of them rounded from a true normal.

Floats leak: which of them ``sum + noise`` can be depends on the sum's last bits (Mironov 2012). Whole numbers do not, if each comes
with the probability that a rounded normal has. Computed normals, rounded, come close to that; the rest is interval refining (Haney et al. 2022, "Precision-based
attacks and interval refining", arXiv:2207.13793).

Formal guarantee of ``rounded_normals``: with random bits for the generator's, each number is round(stddev Z), Z independent standard
normals, but for a distance of 2^-90 in total variation a draw.

Proof. Let K be 75 and B 53 of the 128 bits of a pair (``tfdp.mechanisms.normals``), V and W uniform on (0, 1]. Then U = (K + V) 2^-75 is
uniform on (0, 1], A = pi 2^-52 (B + W) is uniform on (-pi, pi], and Z = sqrt(-2 ln U) (cos A, sin A) two independent standard normals. The code computes
z from the 128 bits in float64. Let R be the pair's radius.

- ``exact_normals_from_bits`` errs by 1e-15 (R + 1 / R) in the radius and 1e-15 R in the direction; not knowing V moves R by at most
  2^-75 / (U R), below 4.4e-15 for U >= 2^-30, not knowing W moves Z by 7e-16 R; the product with stddev is rounded by 1.2e-16 of its size.
- So for 2^-3.5 <= R <= 6.44 all of it is below 3.3e-14 + 1e-15 / R < 2^-44, for 2^-13.5 <= R < 2^-3.5 below 2^-36 (in units of stddev).
- Where stddev z is farther than that from every half, stddev Z rounds to the same number, whatever V and W are. Where it is not, or R
  is outside of these, V and W are drawn (128 bits each) and stddev Z is computed with 80 digits.

The second case has a probability of about stddev 2^-42 + 5e-9 a draw. It takes longer, which says that the noise was close to a half or
far out, or a pair close to 0, and nothing of what it is added to.
"""

import decimal
import functools
import hashlib
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import tensorflow as tf

from tfdp.mechanisms import normals, philox
from tfdp.mechanisms.secret_generator import SecretGenerator

LARGEST_STDDEV = 2.0**26  # 17 standard deviations are a number of 32 bits, and no true draw has been further out
_UNDECIDED = -(2**31)
_FARTHEST, _NEAR, _NEAREST = 41.5, 2.0**-7, 2.0**-27  # squares of R
_ERROR, _ERROR_NEAR = 2.0**-44, 2.0**-36
_DIGITS = 80
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")


def rounded_normals(generator: SecretGenerator, shapes: Sequence[Sequence[int]], stddev: float) -> list[tf.Tensor]:
    """Independent round(stddev Z), ``int32``, for all ``shapes`` in one draw. Not in a function that XLA compiles.

    Args:
        generator: the secret bits.
        shapes: fully known shapes, one for each tensor.
        stddev: at most ``LARGEST_STDDEV``; a few thousand at least, or rounding is what most of the noise is.
    """
    sizes = [int(np.prod(shape)) for shape in shapes]
    pairs = max(1, (sum(sizes) + 1) // 2)
    state = generator.reserve(pairs + 1)  # the last block is for what is undecided
    draw = _compiled if pairs >= normals.MANY_PAIRS else _plain
    rounded = draw(pairs, stddev, state)
    rounded = tf.cond(
        tf.reduce_any(tf.equal(rounded, _UNDECIDED)),
        lambda: _decided(rounded, state, pairs, stddev),
        lambda: tf.identity(rounded),
    )
    parts = tf.split(tf.reshape(rounded, [-1])[: sum(sizes)], sizes)
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def _plain(pairs: int, stddev: float, state: tf.Tensor) -> tf.Tensor:
    drawn = normals.exact_normals_from_bits(*philox.from_kernel(state, pairs))
    return rounded_where_certain(tf.bitcast(drawn, tf.float64), stddev)


def _compiled(pairs: int, stddev: float, state: tf.Tensor) -> tf.Tensor:
    """Two loops, because XLA has no other name for a complex number's memory."""
    draw, decide = _loops(pairs)
    return decide(tf.bitcast(draw(state), tf.float64), tf.constant(stddev, tf.float64))


@functools.lru_cache(maxsize=64)
def _loops(pairs: int):
    def draw(state):
        return normals.exact_normals_from_bits(*philox.blocks(state, pairs))

    return tuple(tf.function(f, jit_compile=True, autograph=False) for f in (draw, rounded_where_certain))


def rounded_where_certain(z: tf.Tensor, stddev: float | tf.Tensor) -> tf.Tensor:
    """``[pairs, 2]``, float64, to ``int32``: the lowest of all where bits that were not drawn decide."""
    square = tf.reduce_sum(tf.square(z), axis=1, keepdims=True)
    error = tf.where(square < _NEAR, tf.constant(_ERROR_NEAR, tf.float64), tf.constant(_ERROR, tf.float64))
    error = tf.where((square > _FARTHEST) | (square < _NEAREST), tf.constant(1.0, tf.float64), error)
    scaled = stddev * z
    nearest = tf.round(scaled)
    certain = tf.abs(scaled - nearest) + stddev * error < 0.5
    return tf.where(certain, tf.cast(nearest, tf.int32), _UNDECIDED)


def _decided(rounded: tf.Tensor, state: tf.Tensor, pairs: int, stddev: float) -> tf.Tensor:
    places = tf.where(tf.equal(rounded, _UNDECIDED))  # [m, 2]: a pair, and which of both
    words = [tf.stack(philox.blocks_of_rows(philox.advanced(state, n), 1), axis=1) for n in (places[:, 0], pairs)]
    found = tf.numpy_function(
        functools.partial(_exactly, stddev),
        [places, tf.squeeze(words[0], 2), tf.reshape(words[1], [-1])],
        tf.int32,
        stateful=False,
    )
    return tf.tensor_scatter_nd_update(rounded, places, found)


def _exactly(stddev: float, places: np.ndarray, words: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    found = []
    for (pair, part), (radius_bits, angle_bits) in zip(places.tolist(), words.tolist(), strict=True):
        more = hashlib.shake_256(fresh.tobytes() + pair.to_bytes(8, "little")).digest(32)  # one V and W a pair
        v, w = (int.from_bytes(half, "little") + 1 for half in (more[:16], more[16:]))
        found.append(exactly_rounded(stddev, radius_bits, angle_bits, v, w)[part])
    return np.array(found, np.int32)


def exactly_rounded(stddev: float, radius_bits: int, angle_bits: int, v: int, w: int) -> tuple[int, int]:
    """A pair from all of its bits: V = v 2^-128 and W = w 2^-128."""
    low, signed = angle_bits % 2**11, angle_bits - 2**64 * (angle_bits >= 2**63)
    with decimal.localcontext(prec=_DIGITS):
        u = Decimal(((2**11 * radius_bits + 2**11 - 1 - low) << 128) + v) / 2**203
        angle = _PI * (((signed >> 11) << 128) + w) / 2**180
        radius = Decimal(stddev) * (-2 * u.ln()).sqrt()
        sizes = (radius * _cosine(angle), radius * _cosine(angle - _PI / 2))
        return tuple(int(size.to_integral_value(decimal.ROUND_HALF_EVEN)) for size in sizes)


def _cosine(x: Decimal) -> Decimal:
    """By its series: x is at most 3 pi / 2."""
    total, term, k = Decimal(0), Decimal(1), 0
    while abs(term) > Decimal(10) ** -_DIGITS:
        total, k = total + term, k + 2
        term = -term * x * x / (k * (k - 1))
    return total
