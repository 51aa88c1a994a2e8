"""What is done to a release before weights are moved by it: denoising, which sees nothing but releases and public numbers.

Post-processing costs no privacy, whatever it does.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import tensorflow as tf

from tfdp.accounting import checks
from tfdp.gradients import Ellipsoid
from tfdp.noise import Noise

KS, LAPLACIAN = "ks", "laplacian"
_SMOOTHING = 1.0  # sigma of Wang et al. 2019; 1 to 3 in the paper
_ENTRIES = 2**13  # of the table of a noise's distribution function
_LEAST_TAIL = 1e-20


def check_denoise(denoise: str | None) -> str | None:
    if denoise is not None and not checks.is_one_of(denoise, (KS, LAPLACIAN)):
        raise ValueError(f"denoise must be {KS!r}, {LAPLACIAN!r} or None, not {denoise!r}.")
    return denoise


def denoised(
    denoise: str, released: list[tf.Tensor], noise: Noise | None, unit: float, ellipsoid: Ellipsoid | None = None
) -> list[tf.Tensor]:
    """A release, scaled or smoothed.

    - ``"ks"`` (Nasr et al. 2020, section 3.2): times the Kolmogorov-Smirnov distance of its coordinates from the distribution of
      the noise, a number from 0 to 1: steps are short where there is nothing to be seen but noise.
    - ``"laplacian"`` (DP-LSSGD, Wang et al. 2019, arXiv:1906.12056): ``(I - L)^-1`` times it, L the discrete Laplacian of the
      coordinates on a ring, in the order of the weights.

    Args:
        denoise: which of the two.
        released: a private gradient.
        noise: of each coordinate, in units of ``unit`` and the ellipsoid's scales; None leaves ``"ks"`` nothing to do.
        unit: one clip, in the release.
        ellipsoid: in which it was clipped and noised.
    """
    if denoise == LAPLACIAN:
        return smoothed(released)
    if noise is None:
        return released
    coordinates = released
    if ellipsoid is not None and ellipsoid.centre is not None:
        coordinates = [g - a for g, a in zip(coordinates, ellipsoid.centre, strict=True)]
    if ellipsoid is not None:
        coordinates = [g / s for g, s in zip(coordinates, ellipsoid.scales, strict=True)]
    flat = tf.concat([tf.reshape(tf.cast(g, tf.float64), [-1]) for g in coordinates], 0)
    scale = tf.cast(ks_distance(flat / unit, noise), tf.float32)
    return [scale * g for g in released]


def ks_distance(values: tf.Tensor, noise: Noise) -> tf.Tensor:
    """The largest distance between the values' empirical distribution function and that of the noise, float64.

    The noise's own is interpolated to about 1e-9.
    """
    number = values.shape[0]
    below = distribution(tf.sort(tf.cast(values, tf.float64)), noise)
    steps = tf.range(number + 1, dtype=tf.float64) / number
    return tf.reduce_max(tf.maximum(steps[1:] - below, below - steps[:-1]))


def distribution(x: tf.Tensor, noise: Noise) -> tf.Tensor:
    """P(Z <= x), float64, from a table of P(Z > |x|) in asinh(|x| / unit), by cubics; 0 and 1 beyond tails of 1e-20."""
    cubics, step = _survival_table(noise.standard)
    place = tf.asinh(tf.abs(x) / (noise.size * noise.standard.unit)) / step
    cell = tf.minimum(tf.floor(place), _ENTRIES - 1.0)
    within = tf.minimum(place - cell, 1.0)
    a, b, c, d = tf.unstack(tf.gather(tf.constant(cubics), tf.cast(cell, tf.int32)), axis=-1)
    beyond = a + within * (b + within * (c + within * d))
    return tf.where(x >= 0, 1 - beyond, beyond)


@functools.lru_cache(maxsize=8)
def _survival_table(noise: Noise) -> tuple[np.ndarray, float]:
    unit = noise.unit
    end = math.asinh(float(noise.upper_quantile(np.array(_LEAST_TAIL))) / unit)
    s, step = np.linspace(0, end, _ENTRIES + 1, retstep=True)
    x = unit * np.sinh(s)
    values, slopes = noise.survival(x), -np.exp(noise.log_density(x)) * unit * np.cosh(s) * step
    rise, left, right = np.diff(values), slopes[:-1], slopes[1:]
    cubics = np.stack([values[:-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise], axis=1)
    return cubics, float(step)


def smoothed(released: list[tf.Tensor]) -> list[tf.Tensor]:
    """Solves ``(I - L) y = g``: L's eigenvalues on a ring of n are ``2 cos(2 pi k / n) - 2``, its eigenvectors Fourier's."""
    shapes = [g.shape for g in released]
    flat = tf.concat([tf.reshape(g, [-1]) for g in released], 0)
    number = flat.shape[0]
    waves = 2 * np.pi * np.arange(number // 2 + 1) / number
    damping = tf.constant(1 + _SMOOTHING * (2 - 2 * np.cos(waves)))
    spectrum = tf.signal.rfft(tf.cast(flat, tf.float64)) / tf.cast(damping, tf.complex128)
    smooth = tf.cast(tf.signal.irfft(spectrum, fft_length=[number]), tf.float32)
    parts = tf.split(smooth, [shape.num_elements() for shape in shapes])
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]
