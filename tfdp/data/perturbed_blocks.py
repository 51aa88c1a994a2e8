"""Clip and noise for a block of records: one compiled loop, whatever the batches around it are.

A block has a fixed number of rows, and the last one is filled up: so a record comes out the same, bit for bit, in whatever batch
and at whatever place it is read, on one kind of machine.

Formal guarantees, for every record:

- Clip. Its leaves together are scaled by min(1, (1 - 2^-20) clip_norm / norm), in float64; what is left out pays for rounding of
  the norm. So the l2 norm is at most clip_norm, and two records are at most 2 clip_norm apart. No record moves another's.
- Noise. stddev times standard normals with the guarantees of ``tfdp.mechanisms.normals``, in float64, 64 random bits each, from
  Philox with counter and key from the record's own seed.
- Rounding. The sum, in float64, is rounded to whole multiples of the power of two next to 2^-20 stddev, then to float32, then to the
  type of the leaf. All that is a function of the sum, so it costs nothing; and which numbers can come out at all does
  not depend on the record, as it would without the multiples (Mironov 2012).
"""

from __future__ import annotations

import functools
import math

import numpy as np
import tensorflow as tf

from tfdp.data.fingerprints import Fingerprints
from tfdp.data.perturbed_leaves import Leaf
from tfdp.mechanisms import normals, philox

INSIDE = 1 - 2.0**-20
_GRAIN = -20
_MOST_ROWS, _MOST_DRAWS = 128, 2**18


class PerturbedBlocks:
    """Releases features of one form.

    Args:
        leaves: of a record.
        stddev: of the noise; 0 leaves it out.
        clip_norm: the most a record's features may weigh.
        fingerprints: has the weights.
    """

    def __init__(self, leaves: list[Leaf], stddev: float, clip_norm: float, fingerprints: Fingerprints):
        self._leaves = leaves
        draws = sum(leaf.coordinates for leaf in leaves)
        self.rows = min(_MOST_ROWS, 2 ** max(0, math.floor(math.log2(_MOST_DRAWS / draws))))
        self._weights = [fingerprints.weights(leaf.name, leaf.coordinates) for leaf in leaves]
        self._sizes = [np.float64(INSIDE * clip_norm)]
        if stddev:
            grain = 2.0 ** (math.floor(math.log2(stddev)) + _GRAIN)
            self._sizes += [np.float64(stddev / grain), np.float64(1 / grain), np.float64(grain)]

    def released(self, arrays: list[np.ndarray], seeds: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
        """The released leaves, and a fingerprint of each record as it was read.

        Args:
            arrays: ``[rows, ...]`` for each leaf, as many rows as there are.
            seeds: ``[rows, 3]`` for each leaf.
        """
        rows = len(arrays[0])
        flat = [array.reshape(rows, leaf.coordinates) for array, leaf in zip(arrays, self._leaves, strict=True)]
        out = [np.empty((rows, leaf.coordinates), leaf.released_dtype) for leaf in self._leaves]
        prints = np.empty(rows, np.uint64)
        for start in range(0, rows, self.rows):
            part = slice(start, min(start + self.rows, rows))
            count = part.stop - start
            inputs = [[self._filled(one[part]) for one in both] for both in (flat, seeds)]
            noisy, squares, found = _block(*inputs, self._weights, self._sizes)
            _check_finite(squares.numpy()[:count])
            prints[part] = found.numpy()[:count]
            for one, drawn in zip(out, noisy, strict=True):
                one[part] = drawn.numpy().view(np.float32)[:count, : one.shape[1]]
        return [one.reshape(rows, *leaf.shape) for one, leaf in zip(out, self._leaves, strict=True)], prints

    def _filled(self, array: np.ndarray) -> np.ndarray:
        missing = self.rows - len(array)
        return np.pad(array, ((0, missing), (0, 0))) if missing else array


@functools.partial(tf.function, jit_compile=True, autograph=False)
def _block(arrays, seeds, weights, sizes):
    """Compiled once for each form of records, whatever the noise."""
    wide = [tf.cast(array, tf.float64) for array in arrays]
    squares = tf.add_n([tf.reduce_sum(one * one, axis=1) for one in wide])
    scale = tf.minimum(tf.constant(1.0, tf.float64), sizes[0] / tf.sqrt(squares))[:, None]
    noisy = [_noisy(one * scale, seed, sizes[1:]) for one, seed in zip(wide, seeds, strict=True)]
    prints = [tf.reduce_sum(_bits(array) * weight, axis=1) for array, weight in zip(arrays, weights, strict=True)]
    return noisy, squares, tf.add_n(prints)


def _noisy(clipped: tf.Tensor, seeds: tf.Tensor, sizes: list[tf.Tensor]) -> tf.Tensor:
    """Two coordinates as one ``complex64``: another name for the same memory."""
    if clipped.shape[1] % 2:
        clipped = tf.pad(clipped, [[0, 0], [0, 1]])
    parts = [clipped[:, 0::2], clipped[:, 1::2]]
    if sizes:
        stddev_in_grains, grains_in_one, grain = sizes
        drawn = normals.exact_normals_from_bits(*philox.blocks_of_rows(seeds, parts[0].shape[1]))
        draws = [tf.math.real(drawn), tf.math.imag(drawn)]
        parts = [
            tf.round(part * grains_in_one + draw * stddev_in_grains) * grain
            for part, draw in zip(parts, draws, strict=True)
        ]
    return tf.complex(*(tf.cast(part, tf.float32) for part in parts))


def _bits(array: tf.Tensor) -> tf.Tensor:
    """A number's bits as a ``uint64``."""
    if not array.dtype.is_floating:
        return tf.cast(array, tf.uint64)
    unsigned = {2: tf.uint16, 4: tf.uint32, 8: tf.uint64}[array.dtype.size]
    bits = tf.cast(tf.bitcast(array, unsigned), tf.uint64)
    # The upper half also as the lower: a product's lower bits know nothing of the upper ones.
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64)))


def _check_finite(squares: np.ndarray) -> None:
    bad = ~np.isfinite(squares)
    if bad.any():
        raise ValueError(
            f"The features of {int(bad.sum())} of {len(bad)} records are not finite (NaN, infinite, or beyond 1e150). Fill in or "
            "leave out such values before the perturbation."
        )
