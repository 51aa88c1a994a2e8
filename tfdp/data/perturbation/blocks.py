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
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfdp.data.perturbation.fingerprints import Fingerprints
from tfdp.data.perturbation.leaves import Leaf
from tfdp.mechanisms import normals, philox

INSIDE = 1 - 2.0**-20
_GRAIN = -20
_MOST_ROWS, _MOST_DRAWS = 128, 2**20


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
        self._weights = [fingerprints.weights(leaf.form, leaf.coordinates) for leaf in leaves]
        sizes = [INSIDE * clip_norm]
        if stddev:
            grain = 2.0 ** (math.floor(math.log2(stddev)) + _GRAIN)
            sizes += [stddev / grain, 1 / grain, grain]
        self._sizes = [np.array(size) for size in sizes]
        self._block = _compiled(tuple((leaf.coordinates, leaf.dtype) for leaf in leaves), stddev > 0)

    def released(
        self, features: list[tf.Tensor], seeds: list[tf.Tensor], most: int
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """The released leaves; and of each record, as it was read, the square of its norm and its fingerprint.

        Args:
            features: ``[rows, ...]`` for each leaf.
            seeds: ``[rows, 3]`` for each leaf.
            most: how many rows there may be, a multiple of ``rows``.
        """
        rows = tf.shape(features[0])[0]
        flat = [
            _filled(tf.reshape(one, (rows, leaf.coordinates)), most)
            for one, leaf in zip(features, self._leaves, strict=True)
        ]
        filled = [_filled(one, most) for one in seeds]
        calls = []
        for start in range(0, most, self.rows):
            block = slice(start, start + self.rows)
            calls.append(
                self._block([one[block] for one in flat], [one[block] for one in filled], self._weights, self._sizes)
            )
        *noisy, squares, prints = (_joined(parts)[:rows] for parts in zip(*calls, strict=True))
        return [self._as_leaf(*one) for one in zip(noisy, self._leaves, strict=True)], squares, prints

    def _as_leaf(self, pairs: tf.Tensor, leaf: Leaf) -> tf.Tensor:
        numbers = tf.reshape(tf.bitcast(pairs, tf.float32), (-1, 2 * pairs.shape[1]))[:, : leaf.coordinates]
        return tf.reshape(tf.cast(numbers, leaf.released_dtype), (-1, *leaf.shape))


def _filled(tensor: tf.Tensor, most: int) -> tf.Tensor:
    """With rows of zeros up to so many."""
    missing = most - tf.shape(tensor)[0]
    whole = tf.cond(missing == 0, lambda: tensor, lambda: tf.pad(tensor, [[0, missing], [0, 0]]))
    return tf.ensure_shape(whole, (most, tensor.shape[1]))


def _joined(parts: tuple[tf.Tensor, ...]) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)


@functools.lru_cache(maxsize=64)
def _compiled(form: tuple[tuple[int, tf.DType], ...], noisy: bool) -> Callable:
    """Once for each form of records, whatever the size of the noise."""
    return tf.function(_block, jit_compile=True, autograph=False)


def _block(arrays, seeds, weights, sizes):
    """The released leaves, squares of norms, fingerprints."""
    wide = [tf.cast(array, tf.float64) for array in arrays]
    squares = tf.add_n([tf.reduce_sum(one * one, axis=1) for one in wide])
    scale = tf.minimum(tf.constant(1.0, tf.float64), sizes[0] / tf.sqrt(squares))[:, None]
    noisy = [_noisy(one * scale, seed, sizes[1:]) for one, seed in zip(wide, seeds, strict=True)]
    prints = [tf.reduce_sum(_bits(array) * weight, axis=1) for array, weight in zip(arrays, weights, strict=True)]
    return *noisy, squares, tf.add_n(prints)


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
