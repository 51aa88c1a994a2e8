"""Encoded gradients (Nasr et al. 2020, algorithm 2): each example's gradient, cut to a codeword's magnitudes, and their sum.

Some examples at a time, about two million numbers in all: gradients are built, sorted, compared with all codewords, cut,
and added up.
"""

from __future__ import annotations

import functools
import math
import sys

import numpy as np
import tensorflow as tf

from tfdp.accounting import Codebook
from tfdp.gradients import LotGradients
from tfdp.gradients.compilation import under_xla
from tfdp.gradients.factored import rows

_NUMBERS_AT_ONCE = 2**21
_MOST_IN_FULL = 2**15  # weights: 1,000 codewords of so many take 131 MB
_LOW = 0 if sys.byteorder == "little" else 1  # which half of a packed number decides last
# Contributions are whole multiples of this part of the clip, at most 1 clip a coordinate: float64 holds the sum of 2^20 of
# them without rounding.
GRID = 2.0**-32


class Encoder:
    """Encodes examples under a codebook, in a graph.

    Formal guarantee of ``sum_of``: let S be the sum it returns, float64, in units of the clip. An example (with ``group`` > 1, a
    group of examples) contributes one vector v. For the codeword c that was chosen and an order o of the coordinates,
    ``|v[o[j]]| <= c[j]`` for every j, exactly, in the float32 numbers that ``Codebook.magnitudes`` holds and the accountants
    price. Sums have no rounding error for up to 2^20 contributions: S of two lots of which one has one example
    more differ by its v to the last bit, whatever the order and the parts in which they were added up.

    | case                                          | what happens                                                           |
    |-----------------------------------------------|------------------------------------------------------------------------|
    | an example with a NaN or Inf in its gradient  | contributes exactly 0, and is counted                                  |
    | a row that is not present                     | contributes exactly 0                                                  |
    | equal magnitudes in a gradient                | the coordinate that comes first gets the smaller magnitude             |
    | a gradient of 0                               | contributes exactly 0                                                  |

    The similarity of a sorted gradient with a codeword is computed as that with the codeword's distance from the codewords'
    mean, which all have in common: codewords of many weights are so much alike that float32 could not tell the similarities
    themselves apart. Where weights share their magnitude in runs, it takes the runs' sums.

    Args:
        codebook: its description; the codewords are rebuilt from it and captured by graphs, never saved.
    """

    def __init__(self, codebook: Codebook):
        self.codebook = codebook
        counts = codebook.counts
        self._runs_are_longer = len(counts) < codebook.weights
        self._run_of_weight = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self._long_runs = int(np.flatnonzero(counts > 1).max(initial=-1)) + 1  # all later runs are of one weight
        self._in_long_runs = int(counts[: self._long_runs].sum())
        self._last_of_long_run = np.cumsum(counts[: self._long_runs]) - 1
        with tf.init_scope():
            self._magnitudes, self._distances = _tensors(codebook)

    def sum_of(
        self, lot: LotGradients, present: tf.Tensor, clip: float, group: int = 1
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The sum of the encoded gradients of the examples that are present, and how many of them were not finite.

        With a ``group``, of the mean gradients of so many consecutive rows each.
        """
        weights, size = self.codebook.weights, tf.shape(present)[0]
        groups = -(-size // group)
        parts = -(-groups // max(1, _NUMBERS_AT_ONCE // (weights * group)))
        step = -(-groups // parts) * group  # of equal parts

        def part(start, total, not_finite):
            places = start + tf.range(step)
            shown = tf.minimum(places, size - 1)
            there = tf.gather(present, shown) & (places < size)
            usable, gradients = _usable(lot.some(shown), there)
            bad = tf.reduce_sum(tf.cast(there & ~usable, tf.int64))
            if group > 1:
                gradients = _means(gradients, usable, group)
            return start + step, total + self._encoded_sum(gradients * (1 / GRID / clip)), not_finite + bad

        state = [tf.zeros([], tf.int32), tf.zeros([weights], tf.int64), tf.zeros([], tf.int64)]
        _, total, not_finite = tf.while_loop(lambda start, *_: start < size, part, state, parallel_iterations=1)
        total = tf.cast(total, tf.float64) * GRID
        sizes = [math.prod(v.shape) for v in lot.variables]
        parts = tf.split(total, tf.constant(sizes, tf.int64), num=len(sizes))
        return [tf.reshape(p, v.shape) for p, v in zip(parts, lot.variables, strict=True)], not_finite

    def _encoded_sum(self, gradients: tf.Tensor) -> tf.Tensor:
        """``[N, weights]`` to the sum of what they are encoded to; both in units of the grid, a power of two of the clip."""
        weights = self.codebook.weights
        magnitudes, places, sums = self._by_magnitude(gradients)
        # The nearest codeword: that whose angle with the sorted magnitudes is the smallest.
        chosen = tf.argmax(tf.matmul(sums, self._distances), axis=1)
        codewords = tf.gather(self._magnitudes, chosen)
        if codewords.shape[1] < weights:
            codewords = tf.gather(codewords, self._run_of_weight, axis=1)
        # Cut to the codeword, then down to the grid (a cast to whole numbers): neither makes a magnitude larger.
        cut = tf.cast(tf.minimum(magnitudes, codewords), tf.int64)
        positive, negative = tf.unstack(tf.reshape(_sum_by_place(cut, places, 2 * weights), [weights, 2]), axis=1)
        return positive - negative

    def _by_magnitude(self, gradients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Each row's magnitudes in ascending order; twice the coordinate that each is of, and 1 more if it is negative; and
        the sums of the magnitudes over the codewords' runs.

        TensorFlow sorts by comparing through indices, at a tenth of the speed of NumPy's vectorised sort of whole numbers:
        outside of XLA, which can't leave the graph, NumPy does it, as an operation of the graph.
        """
        weights, runs = self.codebook.weights, len(self.codebook.counts)
        if not under_xla():
            kinds = [tf.float32, tf.int32, tf.float32]
            found = tf.numpy_function(self._sorted_rows, [gradients], kinds, stateful=False)
            return tuple(
                tf.ensure_shape(t, [None, size]) for t, size in zip(found, (weights, weights, runs), strict=True)
            )
        negated, places = tf.math.top_k(-tf.abs(gradients), k=weights)
        signed = 2 * places + tf.cast(tf.gather(gradients, places, batch_dims=1) < 0, tf.int32)
        if not self._runs_are_longer:
            return -negated, signed, -negated
        sums = tf.math.unsorted_segment_sum(tf.transpose(-negated), self._run_of_weight, runs)
        return -negated, signed, tf.transpose(sums)

    def _sorted_rows(self, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A row at a time, which stays in the processor's cache: magnitude and signed place packed into one whole number."""
        weights = gradients.shape[1]
        magnitudes, places = np.empty(gradients.shape, np.float32), np.empty(gradients.shape, np.int32)
        runs = len(self.codebook.counts)
        sums = np.empty((len(gradients), runs), np.float32) if self._runs_are_longer else magnitudes
        place, packed = np.arange(0, 2 * weights, 2, dtype=np.int32), np.empty(weights, np.int64)
        low, high = packed.view(np.int32)[_LOW::2], packed.view(np.int32)[1 - _LOW :: 2]
        for gradient, ordered, where, summed in zip(gradients, magnitudes, places, sums, strict=True):
            bits = gradient.view(np.int32)
            np.bitwise_and(bits, 0x7FFFFFFF, out=high)  # positive floats are ordered like their bits
            np.add(place, bits < 0, out=low)
            packed.sort()
            ordered.view(np.int32)[:], where[:] = high, low
            if self._runs_are_longer:
                summed[self._long_runs :] = ordered[self._in_long_runs :]
                up_to = np.cumsum(ordered[: self._in_long_runs], dtype=np.float64)[self._last_of_long_run]
                summed[0], summed[1 : self._long_runs] = up_to[0], np.diff(up_to)
        return magnitudes, places, sums


@functools.lru_cache(maxsize=2)
def _tensors(codebook: Codebook) -> tuple[tf.Tensor, tf.Tensor]:
    """Codewords in units of the grid, in runs or in full, and ``[runs, size]`` what is left of them, at norm 1, without their mean."""
    magnitudes, counts = codebook.magnitudes, codebook.counts
    norms = np.sqrt(np.square(magnitudes, dtype=np.float64) @ counts)
    inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    mean = (inverse @ magnitudes.astype(np.float64)) / codebook.size
    distances = np.empty(magnitudes.shape[::-1], np.float32)
    for number, row in enumerate(magnitudes):
        distances[:, number] = row * inverse[number] - mean
    codewords = magnitudes / np.float32(GRID)
    in_full = codebook.weights <= _MOST_IN_FULL
    return tf.constant(np.repeat(codewords, counts, axis=1) if in_full else codewords), tf.constant(distances)


def _usable(lot: LotGradients, present: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Which examples take part, and ``[N, weights]`` their gradients, all others' replaced by 0."""
    parts = [tf.reshape(g, [tf.shape(g)[0], math.prod(g.shape[1:])]) for g in lot.materialise()]
    flat = tf.concat(parts, 1)
    usable = present & tf.reduce_all(tf.math.is_finite(flat), 1)
    return usable, rows(flat, usable)


def _means(gradients: tf.Tensor, usable: tf.Tensor, group: int) -> tf.Tensor:
    """Of each group's examples that take part."""
    sums = tf.reduce_sum(tf.reshape(gradients, [-1, group, gradients.shape[1]]), 1)
    numbers = tf.reduce_sum(tf.reshape(tf.cast(usable, tf.float32), [-1, group]), 1)
    return sums / tf.maximum(numbers, 1.0)[:, None]


def _sum_by_place(values: tf.Tensor, places: tf.Tensor, weights: int) -> tf.Tensor:
    places, values = tf.reshape(places, [-1]), tf.reshape(values, [-1])
    if under_xla():
        return tf.math.unsorted_segment_sum(values, places, weights)
    return tf.raw_ops.DenseBincount(input=places, size=weights, weights=values, binary_output=False)
