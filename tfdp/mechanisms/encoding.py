"""Encoded gradients (Nasr et al. 2020, algorithm 2): each example's gradient, cut to a codeword's magnitudes, and their sum.

Some examples at a time, about two million numbers in all: gradients are built, sorted, compared with all codewords, cut,
and added up.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import tensorflow as tf

from tfdp.accounting import Codebook
from tfdp.gradients import LotGradients
from tfdp.gradients.compilation import under_xla
from tfdp.gradients.factored import rows

_NUMBERS_AT_ONCE = 2**21
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
    | equal magnitudes in a gradient                | the coordinate that comes first has the smaller magnitude of the code |
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
        self._first_single = (
            int(np.flatnonzero(counts > 1).max(initial=-1)) + 1
        )  # of the runs; all later ones are of one weight
        self._in_runs = int(counts[: self._first_single].sum())
        self._run_of_weight = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        with tf.init_scope():
            self._magnitudes, self._distances = _tensors(codebook)

    def sum_of(
        self, lot: LotGradients, present: tf.Tensor, clip: float, group: int = 1
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The sum of the encoded gradients of the examples that are present, and how many of them were not finite.

        With a ``group``, of the mean gradients of so many consecutive rows each.
        """
        weights, size = self.codebook.weights, tf.shape(present)[0]
        at_once = max(1, _NUMBERS_AT_ONCE // (weights * group)) * group
        whole = (size + group - 1) // group * group
        step = tf.minimum(at_once, whole)

        def part(start, total, not_finite):
            places = start + tf.range(step)
            shown = tf.minimum(places, size - 1)
            usable, gradients = _usable(lot.some(shown), tf.gather(present, shown) & (places < size))
            bad = tf.reduce_sum(tf.cast(tf.gather(present, shown) & (places < size) & ~usable, tf.int64))
            if group > 1:
                gradients = _means(gradients, usable, group)
            return start + step, total + self._encoded_sum(gradients * (1 / clip)), not_finite + bad

        state = [tf.zeros([], tf.int32), tf.zeros([weights], tf.int64), tf.zeros([], tf.int64)]
        _, total, not_finite = tf.while_loop(lambda start, *_: start < size, part, state, parallel_iterations=1)
        total = tf.cast(total, tf.float64) * GRID
        sizes = [math.prod(v.shape) for v in lot.variables]
        parts = tf.split(total, tf.constant(sizes, tf.int64), num=len(sizes))
        return [tf.reshape(p, v.shape) for p, v in zip(parts, lot.variables, strict=True)], not_finite

    def _encoded_sum(self, gradients: tf.Tensor) -> tf.Tensor:
        """``[N, weights]`` in units of the clip, to the sum of what they are encoded to, in units of the grid."""
        ordered, places = _by_magnitude(gradients)
        codewords = tf.gather(self._magnitudes, self._nearest(tf.abs(ordered)))
        if self._in_runs:
            codewords = tf.gather(codewords, self._run_of_weight, axis=1)
        # Cut to the codeword, then towards 0 to the grid (a cast to whole numbers): neither makes a magnitude larger.
        cut = tf.clip_by_value(ordered, -codewords, codewords)
        return _sum_by_place(tf.cast(cut * (1 / GRID), tf.int64), places, self.codebook.weights)

    def _nearest(self, magnitudes: tf.Tensor) -> tf.Tensor:
        """The number of the codeword whose angle with each row, sorted in ascending order, is the smallest."""
        single = magnitudes[:, self._in_runs :]
        scores = tf.matmul(single, self._distances[self._first_single :])
        if self._in_runs:
            across = tf.transpose(magnitudes[:, : self._in_runs])
            sums = tf.math.unsorted_segment_sum(across, self._run_of_weight[: self._in_runs], self._first_single)
            scores += tf.matmul(sums, self._distances[: self._first_single], transpose_a=True)
        return tf.argmax(scores, axis=1)


@functools.lru_cache(maxsize=2)
def _tensors(codebook: Codebook) -> tuple[tf.Tensor, tf.Tensor]:
    """Codewords ``[size, runs]``, and ``[runs, size]`` what is left of them, at norm 1, without their mean."""
    magnitudes, counts = codebook.magnitudes, codebook.counts
    norms = np.sqrt(np.square(magnitudes, dtype=np.float64) @ counts)
    inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    mean = (inverse @ magnitudes.astype(np.float64)) / codebook.size
    distances = np.empty(magnitudes.shape[::-1], np.float32)
    for number, row in enumerate(magnitudes):
        distances[:, number] = row * inverse[number] - mean
    return tf.constant(magnitudes), tf.constant(distances)


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


def _by_magnitude(gradients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Each row in ascending order of magnitude, and which coordinate each number is of.

    TensorFlow sorts by comparing through indices, at a tenth of the speed of NumPy's vectorised sort of whole numbers: outside
    of XLA, which can't leave the graph, NumPy does it, as an operation of the graph.
    """
    if under_xla():
        _, places = tf.math.top_k(-tf.abs(gradients), k=gradients.shape[1])
        return tf.gather(gradients, places, batch_dims=1), places
    ordered, places = tf.numpy_function(_sorted_rows, [gradients], [tf.float32, tf.int32], stateful=False)
    return tf.ensure_shape(ordered, gradients.shape), tf.ensure_shape(places, gradients.shape)


def _sorted_rows(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A row at a time, which stays in the processor's cache: magnitude, place and sign packed into one whole number."""
    ordered, places = np.empty(gradients.shape, np.int32), np.empty(gradients.shape, np.int32)
    place = np.arange(gradients.shape[1], dtype=np.int64) * 2
    for bits, magnitudes, where in zip(gradients.view(np.int32), ordered, places, strict=True):
        # Positive floats are ordered like their bits; the highest is the sign's.
        packed = ((bits & 0x7FFFFFFF).astype(np.int64) << 32) | place | (bits < 0)
        packed.sort()
        low = packed.astype(np.int32)  # the lower half
        np.right_shift(low.view(np.uint32), 1, out=where.view(np.uint32))
        np.bitwise_or((packed >> 32).astype(np.int32), low << 31, out=magnitudes)
    return ordered.view(np.float32), places


def _sum_by_place(values: tf.Tensor, places: tf.Tensor, weights: int) -> tf.Tensor:
    places, values = tf.reshape(places, [-1]), tf.reshape(values, [-1])
    if under_xla():
        return tf.math.unsorted_segment_sum(values, places, weights)
    return tf.raw_ops.DenseBincount(input=places, size=weights, weights=values, binary_output=False)
