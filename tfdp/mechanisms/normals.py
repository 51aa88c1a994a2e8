"""Normal noise with full tails: random bits to standard normals (Box and Muller 1958).

``tf.random.normal``, ``tf.random.stateless_normal`` and ``tf.random.Generator.normal`` cut the tails: they raise Box and
Muller's uniform to at least 1e-7, so no draw lies beyond 5.68 standard deviations. A true pair of draws has a radius
beyond that with probability 1e-7: with a million weights, every 20 steps.

Formal guarantees of ``standard_normals``. Let U be uniform on (0, 1] and A on (-pi, pi), and R = sqrt(-2 ln U).
Then Z = (R cos A, R sin A) are two independent standard normals. Each pair is made from 128 random bits, 64 a draw. Let K
be 75 of them as a number: the code computes R from u = (K + 1) 2^-75. That is within 2^-75 of a U' that is uniform on
(2^-75, 1], hence has the law of U given U > 2^-75. It computes A from 53 bits, and 11 more that
are also in K and move Z by less than 8e-15.

1. Tails. The radius ends at r_max = sqrt(150 ln 2) = 10.197. A true pair passes it with probability
   exp(-r_max^2 / 2) = 2^-75 exactly. So a pair has the law of a true pair given that its radius is at most r_max.
   What that costs a whole run is ``tfdp.accounting.finite_support_delta``.
2. Rounding. Bits and true pairs can be put in one probability space in which the computed pair is a rounding of
   a true pair whose radius is at most r_max:

   - u in place of U' moves R by less than 1 / (K R): below 1e-9 / R for K >= 2^30, which fails with probability
     2^-45;
   - float64 rounds u and R: at most 1e-15 (R + 1 / R), and never more than 1.1e-8 near R = 0;
   - for many weights cosine and sine are float32 functions of an angle that is reduced as a whole number, and R is rounded to
     float32: at most 4e-7 R (1.5e-7 seen), where rounding a float32 result alone costs up to 6e-8 |Z|. This moves no tail
     probability up to 10 standard deviations by more than a factor of 1 +- 1e-4. For few weights both are float64, and the result
     alone is rounded.
3. Not claimed. Computed noise is discrete, and which floats a weight can take may depend on the data in its last
   bits (Mironov 2012, "On significance of the least significant bits for differential privacy"). Nothing here
   prevents that, and no number of this project accounts for it; ``tfdp.mechanisms.grid_noise`` does. The bits come from Philox, a statistical generator
   with a secret state of 192 bits, not a cryptographic one: their secrecy assumes that nobody inverts Philox.

For many weights bits and map are compiled into one loop by XLA. What XLA takes to be dear (a logarithm, a division, a root) and finds used
twice gets a loop of its own, and so would everything before it: so the logarithm is a polynomial, and the root is used once,
in a complex product. For 1.46 million draws on one core that takes 10 ms, with TensorFlow's kernels for bits, logarithm,
cosine and sine 32 ms, and ``tf.random.normal`` 26 ms. For few weights the loop would not pay for the 50 MB that XLA takes: there
TensorFlow's own functions do it, in a dozen operations where the polynomials are 130.
"""

import functools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfdp.accounting.finite_support import RADIUS_BITS
from tfdp.gradients.compilation import under_xla
from tfdp.mechanisms import philox
from tfdp.mechanisms.secret_generator import SecretGenerator

_LOW_BITS = RADIUS_BITS - 64  # the angle's lowest: no float32 angle can hold them, so they refine the radius

# ln(1 + f) / f at the 22 Chebyshev nodes of [sqrt(1/2) - 1, sqrt(2) - 1], interpolated: relative error below 2.5e-17.
_LOGARITHM = (
    1.0,
    -0.5,
    0.33333333333333537,
    -0.24999999999997108,
    0.19999999999929363,
    -0.1666666666715576,
    0.14285714295327004,
    -0.12499999966241118,
    0.11111110440888418,
    -0.10000000966080463,
    0.0909093591945981,
    -0.08333332844101682,
    0.07691663204351862,
    -0.07142172345131702,
    0.06675866913218241,
    -0.06268517244682761,
    0.058114015263314125,
    -0.053305710079268986,
    0.05448352859705689,
    -0.06284277461333498,
    0.05625422199553143,
    -0.023612682238620716,
)
MANY_PAIRS = 50_000
_ROW = 16  # numbers in 64 bytes, where TensorFlow lets tensors begin
_ROOT_OF_A_HALF = 0x3FE6A09E667F3BCD  # sqrt(1/2) as a float64
_COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(9))  # in x^2; on [-pi/4, pi/4] below 3e-18
_SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(9))  # of sin(x) / x; below 2e-19
_FLOAT32_TERMS = (6, 5)  # of both: 3e-10 and 2e-9


def standard_normals(
    generator: SecretGenerator, shapes: Sequence[Sequence[int]], stddev: float = 1.0
) -> list[tf.Tensor]:
    """Independent normals (float32) for all ``shapes`` in one draw, with the guarantees of the module's docstring.

    Args:
        generator: the secret bits.
        shapes: fully known shapes, one for each tensor.
        stddev: what they are multiplied by.

    In a function that XLA compiles, call it within ``tfdp.gradients.compilation.compiling(xla=True)``.
    """
    shapes = [tf.TensorShape(shape).as_list() for shape in shapes]
    if not shapes:
        return []
    sizes = [math.prod(shape) for shape in shapes]
    pairs = max(1, (sum(sizes) + 1) // 2)
    if pairs >= MANY_PAIRS:
        pairs = -(-2 * pairs // _ROW) * _ROW // 2
    flat = tf.reshape(_drawn(generator.reserve(pairs), pairs), [2 * pairs])
    if stddev != 1.0:
        flat *= stddev
    parts = _cut(flat, sizes, 2 * pairs - sum(sizes))
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def _cut(flat: tf.Tensor, sizes: Sequence[int], left: int) -> list[tf.Tensor]:
    """Parts of these sizes. Of many numbers those of whole rows come first: TensorFlow splits rows off without copying them."""
    rows = [size // _ROW if flat.shape[0] >= 2 * MANY_PAIRS and size % _ROW == 0 else 0 for size in sizes]
    others = [size for size, count in zip(sizes, rows, strict=True) if not count]
    whole = iter([])
    if any(rows):
        *found, flat = tf.split(tf.reshape(flat, [-1, _ROW]), [*filter(None, rows), -1])
        whole, flat = iter(found), tf.reshape(flat, [-1])
    rest = iter(tf.split(flat, [*others, left]))
    return [next(whole) if count else next(rest) for count in rows]


def _drawn(state: tf.Tensor, pairs: int) -> tf.Tensor:
    """``[pairs, 2]``, float32."""
    if under_xla():
        return _as_floats(_from_blocks(pairs, state))
    if pairs >= MANY_PAIRS:
        return _as_floats(_compiled(pairs)(state))
    return normals_by_kernels(*philox.from_kernel(state, pairs))


def _from_blocks(pairs: int, state: tf.Tensor) -> tf.Tensor:
    return normals_from_bits(*philox.blocks(state, pairs))


@functools.lru_cache(maxsize=64)
def _compiled(pairs: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """One loop, whatever the graph around it is."""
    return tf.function(functools.partial(_from_blocks, pairs), jit_compile=True, autograph=False)


def _as_floats(drawn: tf.Tensor) -> tf.Tensor:
    """``[pairs, 2]``: another name for the same memory, which XLA does not have for complex numbers."""
    if under_xla():
        return tf.stack([tf.math.real(drawn), tf.math.imag(drawn)], axis=-1)
    return tf.bitcast(drawn, tf.float32)


def normals_from_bits(radius_bits: tf.Tensor, angle_bits: tf.Tensor) -> tf.Tensor:
    """Maps two random ``uint64`` words to two independent standard normals: real and imaginary part of a ``complex64``.

    Formal guarantees: every input gives finite values; their squares sum to at most 150 ln 2, which is reached;
    that sum does not grow with ``radius_bits``. The last two hold up to rounding.

    | radius_bits | angle_bits | result                                                     |
    |-------------|------------|------------------------------------------------------------|
    | 0           | 2**64 - 1  | (10.197, 0), the largest there is                          |
    | 0           | 2**63 - 1  | (-10.197, 0)                                               |
    | 0           | 0          | (9.419, 0): the angle's lowest 11 bits refine the radius   |
    | 2**64 - 1   | any        | (0, 0)                                                     |
    """
    return tf.cast(tf.cast(radius(radius_bits, angle_bits), tf.float32), tf.complex64) * _direction(angle_bits)


def normals_by_kernels(radius_bits: tf.Tensor, angle_bits: tf.Tensor) -> tf.Tensor:
    """The same map by few operations, each with a kernel of its own: ``[pairs, 2]``, computed in float64 and rounded once."""
    size = tf.sqrt(-2.0 * tf.math.log(uniform(radius_bits, angle_bits)))
    angle = tf.cast(tf.bitcast(angle_bits, tf.int64), tf.float64) * (math.pi * 2.0**-63)
    return tf.cast(tf.stack([size * tf.cos(angle), size * tf.sin(angle)], axis=1), tf.float32)


def exact_normals_from_bits(radius_bits: tf.Tensor, angle_bits: tf.Tensor) -> tf.Tensor:
    """The same in float64 throughout, ``complex128``: cosine and sine, too, to about 1e-16.

    For noise that is released by itself rather than summed over a lot: as float32 it would show its grain.
    """
    return tf.cast(radius(radius_bits, angle_bits), tf.complex128) * _direction(angle_bits, tf.float64)


def radius(radius_bits: tf.Tensor, angle_bits: tf.Tensor) -> tf.Tensor:
    """sqrt(-2 ln u) in float64."""
    return tf.sqrt(-2.0 * _logarithm(uniform(radius_bits, angle_bits)))


def uniform(radius_bits: tf.Tensor, angle_bits: tf.Tensor) -> tf.Tensor:
    """u = (K + 1) 2^-75 in float64, for K = 2^11 radius_bits + 2^11 - 1 - (angle_bits mod 2^11)."""
    # With all higher bits set, the lowest 11 read as -2^11 .. -1: mask and offset in one pass over the weights.
    below = tf.bitwise.bitwise_or(tf.bitcast(angle_bits, tf.int64), -(2**_LOW_BITS))
    return tf.cast(radius_bits, tf.float64) * 2.0**-64 - tf.cast(below, tf.float64) * 2.0**-RADIUS_BITS


def _logarithm(u: tf.Tensor) -> tf.Tensor:
    """ln u = k ln 2 + ln(1 + f), for the k with which 1 + f = u 2^-k lies between sqrt(1/2) and sqrt(2). u is positive."""
    bits = tf.bitcast(u, tf.int64)
    k = tf.bitwise.right_shift(bits - _ROOT_OF_A_HALF, tf.constant(52, tf.int64))
    f = tf.bitcast(bits - tf.bitwise.left_shift(k, tf.constant(52, tf.int64)), tf.float64) - 1
    return tf.cast(k, tf.float64) * math.log(2) + f * _polynomial(_LOGARITHM, f)


def _direction(angle_bits: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """cos + i sin of pi 2^-63 times the bits, read as a whole number with a sign: a quarter turn's number and what is left."""
    quarter = tf.bitwise.right_shift(angle_bits + tf.constant(2**61, tf.uint64), tf.constant(62, tf.uint64))
    left = angle_bits - tf.bitwise.left_shift(quarter, tf.constant(62, tf.uint64))
    x = tf.cast(tf.bitcast(left, tf.int64), dtype) * (math.pi * 2.0**-63)
    square = x * x
    terms = _FLOAT32_TERMS if dtype == tf.float32 else (len(_COSINE), len(_SINE))
    cosine, sine = _polynomial(_COSINE[: terms[0]], square), x * _polynomial(_SINE[: terms[1]], square)
    odd = _bit(quarter, 0)
    return tf.complex(
        _negated_where(_bit(quarter + 1, 1), tf.where(odd, sine, cosine)),
        _negated_where(_bit(quarter, 1), tf.where(odd, cosine, sine)),
    )


def _bit(words: tf.Tensor, place: int) -> tf.Tensor:
    return tf.not_equal(tf.bitwise.bitwise_and(words, tf.constant(2**place, tf.uint64)), 0)


def _negated_where(condition: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return tf.where(condition, -x, x)


def _polynomial(coefficients: Sequence[float], x: tf.Tensor) -> tf.Tensor:
    """Of rising powers, by Horner's rule."""
    value = tf.fill(tf.shape(x), tf.constant(coefficients[-1], x.dtype))
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value
