"""Quantiles of a noise whose formula TensorFlow does not have, from a table.

With U uniform on (0, 1] and Q the noise's ``upper_quantile``, Q(U / 2) has the law of the noise's size |Z|. As a function of
v = -ln U it runs from 0 over a straight line (the density at 0 is finite) into a tail: straight (exponential tails), a root
(Gaussian ones) or exponential (power laws). So ln Q is interpolated: in cells of v, 512 to each power of two, by cubics through
value and slope at both ends. Below 2^-20 Q is taken to be proportional to v.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import tensorflow as tf

from tfdp.noise import Noise

_LOWEST, _HIGHEST = -20, 6  # powers of two of v; the largest v is 75 ln 2 = 52.0
_CELL_BITS = 9
_MANTISSA_BITS = 52


def sizes(noise: Noise, u: tf.Tensor) -> tf.Tensor:
    """Q(u / 2) for each u in [2^-75, 1], float64.

    Error: below 1e-9 of the value for u up to 1 - 2^-20 (4e-11 is the largest seen, of all families here), which is less than
    what rounding to float32 does to it. Nearer to 1, where a draw is less than 1e-6 of the noise's unit, it is as exact as the
    density is constant there.
    """
    v = -tf.math.log(u)
    start = 2.0**_LOWEST
    bits = tf.bitcast(tf.maximum(v, start), tf.int64)
    shift = _MANTISSA_BITS - _CELL_BITS
    cell = tf.bitwise.right_shift(bits, tf.constant(shift, tf.int64)) - _first_cell()
    within = tf.cast(tf.bitwise.bitwise_and(bits, 2**shift - 1), tf.float64) * 2.0**-shift
    a, b, c, d = tf.unstack(tf.gather(tf.constant(_cubics(noise)), cell), axis=1)
    return tf.exp(a + within * (b + within * (c + within * d))) * tf.minimum(v / start, 1.0)


def _first_cell() -> int:
    return int(np.float64(2.0**_LOWEST).view(np.int64) >> (_MANTISSA_BITS - _CELL_BITS))


@functools.lru_cache(maxsize=8)
def _cubics(noise: Noise) -> np.ndarray:
    """Coefficients of each cell's cubic in the place within the cell, from 0 to 1."""
    cells = np.arange(_first_cell(), _first_cell() + ((_HIGHEST - _LOWEST) << _CELL_BITS) + 1, dtype=np.int64)
    v = (cells << (_MANTISSA_BITS - _CELL_BITS)).view(np.float64)
    # Near 1/2 a tail has lost the digits of its distance: the noise's own formulas do what they can.
    x = noise.upper_quantile(np.exp(-v) / 2)
    # dQ/dv = (e^-v / 2) / f(Q).
    slopes = np.exp(-v - math.log(2) - noise.log_density(x)) / x
    values, widths = np.log(x), np.diff(v)
    rise, left, right = np.diff(values), slopes[:-1] * widths, slopes[1:] * widths
    return np.stack([values[:-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise], axis=1)
