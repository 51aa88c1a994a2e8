"""Noise of every family from secret bits, in the graph.

Formal guarantees of ``noise_draws``. Each draw has 128 random bits of its own. Let U be uniform on (0, 1], S a fair sign and A
uniform on (-pi, pi). Then these have exactly the law of the noise Z:

| family            | draw                                                                              |
|-------------------|-----------------------------------------------------------------------------------|
| Gaussian          | ``standard_normals`` times the standard deviation                                 |
| StudentT          | scale sqrt(df (U^(-2 / df) - 1)) cos A       (Bailey 1994, Math. Comp. 62, 779)   |
| Cauchy            | S scale tan(pi / 2 (1 - U))                                                       |
| Laplace           | S (stddev / sqrt 2) (-ln U)                                                       |
| HyperbolicSecant  | S (2 stddev / pi) (-ln tan(pi U / 4))                                             |
| any other         | S Q(U / 2), Q the noise's ``upper_quantile`` (``quantile_table``)                 |

1. Tails. The code has u = (K + 1) 2^-75 for 75 random bits K in place of U, as ``normals`` has: the law of a draw is within
   rounding that of Z given U > 2^-75. What that costs is ``tfdp.accounting.noise_tails_delta``.
2. Rounding. All is float64. u in place of U moves -ln U by less than 1 / K, below 1e-9 for K >= 2^30, which fails with
   probability 2^-45; formulas and rounding by about 1e-15 of a draw; the quantile table by less than 1e-9. What is released is
   rounded to float32 afterwards, which moves it by up to 6e-8 of its size. As for the Gaussian, what such
   rounding may reveal of the data in the last bits (Mironov 2012) is neither prevented nor accounted for.
"""

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfdp.mechanisms import philox, quantile_table
from tfdp.mechanisms.normals import standard_normals, uniform
from tfdp.mechanisms.secret_generator import SecretGenerator
from tfdp.noise import Cauchy, Gaussian, HyperbolicSecant, Laplace, Noise, StudentT


def noise_draws(noise: Noise, generator: SecretGenerator, shapes: Sequence[Sequence[int]]) -> list[tf.Tensor]:
    """Independent draws (float64) for all ``shapes``, with the guarantees of the module's docstring.

    Args:
        noise: the family, with its size.
        generator: the secret bits.
        shapes: fully known shapes, one for each tensor.
    """
    shapes = [tf.TensorShape(shape).as_list() for shape in shapes]
    if type(noise) is Gaussian:
        return [noise.stddev * tf.cast(z, tf.float64) for z in standard_normals(generator, shapes)]
    sizes = [math.prod(shape) for shape in shapes]
    total = max(1, sum(sizes))
    draws = from_bits(noise, *philox.from_kernel(generator.reserve(total), total))[: sum(sizes)]
    parts = tf.split(draws, tf.constant(sizes, tf.int64), num=len(sizes))
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def from_bits(noise: Noise, size_bits: tf.Tensor, sign_bits: tf.Tensor) -> tf.Tensor:
    """Maps two random ``uint64`` words to a draw, float64. The lowest 11 of the ``sign_bits`` refine the size."""
    u = uniform(size_bits, sign_bits)
    if type(noise) is StudentT:
        return _student(noise, u, tf.cast(tf.bitcast(sign_bits, tf.int64), tf.float64) * (math.pi * 2.0**-63))
    formula = _SIZES.get(type(noise))  # not for subclasses: theirs may be another law
    size = quantile_table.sizes(noise, u) if formula is None else formula(noise, u)
    return tf.where(tf.bitcast(sign_bits, tf.int64) < 0, -size, size)


def _student(noise: StudentT, u: tf.Tensor, angle: tf.Tensor) -> tf.Tensor:
    radius = tf.sqrt(noise.df * tf.math.expm1(-2 / noise.df * tf.math.log(u)))
    return noise.factor * radius * tf.cos(angle)


def _cauchy(noise: Cauchy, u: tf.Tensor) -> tf.Tensor:
    return noise.scale / tf.tan(math.pi / 2 * u)


def _laplace(noise: Laplace, u: tf.Tensor) -> tf.Tensor:
    return noise.stddev / math.sqrt(2) * -tf.math.log(u)


def _secant(noise: HyperbolicSecant, u: tf.Tensor) -> tf.Tensor:
    return 2 * noise.stddev / math.pi * -tf.math.log(tf.tan(math.pi / 4 * u))


_SIZES: dict[type[Noise], Callable[[Noise, tf.Tensor], tf.Tensor]] = {
    Cauchy: _cauchy,
    Laplace: _laplace,
    HyperbolicSecant: _secant,
}
