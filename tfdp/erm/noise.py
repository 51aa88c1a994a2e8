"""Noise for weights of small models: standard normals in float64 from the operating system's entropy.

The law of a pair of draws is that of ``tfdp.mechanisms.normals`` (1. of its guarantees): a true pair given that its radius is at
most 10.197, up to rounding, so ``tfdp.accounting.finite_support_delta`` prices it too. Here the bits come from the operating system
itself, and everything is computed in float64.
"""

from __future__ import annotations

import math
import os

import numpy as np

_LOW_BITS = 11
_GRID = 2.0**-24  # of a standard deviation


class SecretNormals:
    """Draws standard normals.

    Args:
        seed: makes them reproducible, for tests. There is no privacy then.
    """

    def __init__(self, seed: int | None = None):
        self.seeded = seed is not None
        self._generator = np.random.default_rng(seed)
        self._bytes = os.urandom if seed is None else self._generator.bytes

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        size = math.prod(shape)
        pairs = (size + 1) // 2
        words = np.frombuffer(self._bytes(16 * pairs), np.uint64).reshape(2, pairs)
        return normals_from_bits(*words)[:size].reshape(shape)

    def permutation(self, count: int) -> np.ndarray:
        """An order of so many records. It need not be secret."""
        return self._generator.permutation(count)


def normals_from_bits(radius_bits: np.ndarray, angle_bits: np.ndarray) -> np.ndarray:
    """Box and Muller: u = (K + 1) 2^-75 with K of 75 bits, the angle from the other 53."""
    low = (angle_bits % np.uint64(2**_LOW_BITS)).astype(np.float64)
    u = radius_bits.astype(np.float64) * 2.0**-64 + (2**_LOW_BITS - low) * 2.0 ** -(64 + _LOW_BITS)
    radius = np.sqrt(-2 * np.log(np.minimum(u, 1.0)))
    angle = (angle_bits >> np.uint64(_LOW_BITS)).astype(np.float64) * (2 * math.pi * 2.0**-53)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


def on_a_grid(weights: np.ndarray, noise_stddev: float) -> np.ndarray:
    """Noised weights, rounded to multiples of a public power of two, at most 2^-24 standard deviations of their noise.

    The last bits of a sum of floats say something of its parts (Mironov 2012, "On significance of the least significant bits for
    differential privacy"); rounding afterwards costs nothing, and leaves none of them.
    """
    grid = 2.0 ** math.floor(math.log2(noise_stddev * _GRID))
    return np.round(weights / grid) * grid
