"""Encoded gradients (Nasr et al. 2020, algorithm 2): each example's gradient, cut to a codeword's magnitudes, and their sum.

Some examples at a time, some millions of numbers in all: gradients are built, sorted, compared with all codewords, cut,
and added up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfdp.accounting import Codebook
from tfdp.gradients import LotGradients
from tfdp.gradients.compilation import under_xla
from tfdp.gradients.factored import rows
from tfdp.mechanisms import sorted_rows

_NUMBERS_AT_ONCE = 2**22
_ENOUGH_ROWS = 64  # a part with fewer costs more a row: it may have four times as many numbers
# Contributions are whole multiples of this part of the clip, at most 1 clip a coordinate: float64 holds the sum of 2^20 of
# them without rounding.
GRID = 2.0**-32
_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_LARGEST = 2.0**21  # of the whole numbers that sums over runs are rounded to


class Encoder:
    """Encodes examples under a codebook, in a graph.

    Formal guarantee of ``sum_of``: let S be the sum it returns, float64, in units of the clip. An example (with ``group`` > 1, a
    group of examples) contributes one vector v. For the codeword c that was chosen and an order o of the coordinates,
    ``|v[o[j]]| <= c[j]`` for every j, exactly, in the float32 numbers that ``Codebook.magnitudes`` holds and the accountants
    price. Sums have no rounding error for up to 2^20 contributions: S of two lots of which one has one example
    more differ by its v to the last bit, whatever the order and the parts in which they were added up. (Given each example's
    gradient as computed: kernels may round it otherwise in a lot of another size.)

    | case                                          | what happens                                                           |
    |-----------------------------------------------|------------------------------------------------------------------------|
    | an example with a NaN or Inf in its gradient  | contributes exactly 0, and is counted                                  |
    | a row that is not present                     | contributes exactly 0                                                  |
    | equal magnitudes in a gradient                | the coordinate that comes first gets the smaller magnitude             |
    | a gradient of 0                               | contributes exactly 0                                                  |

    The similarity of a sorted gradient with a codeword is computed as that with the codeword's distance from the codewords'
    mean, which all have in common: codewords of many weights are so much alike that their similarities agree to five digits.
    Where weights share their magnitude in runs, it takes the runs' sums. These are rounded to whole numbers of 21 bits, so that
    products of matrices have no rounding error either: which codeword a record is given depends on nothing but the record,
    not on how many others were compared beside it.

    Args:
        codebook: its description; the codewords are rebuilt from it and captured by graphs, never saved.
    """

    def __init__(self, codebook: Codebook):
        self.codebook = codebook
        self._codewords, self._distances = _in_units_of_the_grid(codebook), _distances(codebook)

    def sum_of(
        self, lot: LotGradients, present: tf.Tensor, clip: float, group: int = 1
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The sum of the encoded gradients of the examples that are present, and how many of them were not finite.

        With a ``group``, of the mean gradients of so many consecutive rows each.
        """
        weights, size = self.codebook.weights, tf.shape(present)[0]
        groups = -(-size // group)
        at_once = _NUMBERS_AT_ONCE // (weights * group)
        parts = -(-groups // max(1, at_once, min(_ENOUGH_ROWS, 4 * at_once)))
        step = -(-groups // parts) * group  # of equal parts

        def part(start, total, not_finite):
            places = start + tf.range(step)
            shown = tf.minimum(places, size - 1)
            there = tf.gather(present, shown) & (places < size)
            gradients, bad = _built(lot.some(shown)), tf.zeros([], tf.int64)
            if group > 1:
                gradients, there, bad = _means(gradients, there, group)
            more, worse = self._encoded_sum(gradients, there, 1 / GRID / clip)
            return start + step, total + more, not_finite + bad + worse

        state = [tf.zeros([], tf.int32), tf.zeros([weights], tf.float64), tf.zeros([], tf.int64)]
        _, total, not_finite = tf.while_loop(lambda start, *_: start < size, part, state, parallel_iterations=1)
        sizes = [math.prod(v.shape) for v in lot.variables]
        parts = tf.split(total * GRID, tf.constant(sizes, tf.int64), num=len(sizes))
        return [tf.reshape(p, v.shape) for p, v in zip(parts, lot.variables, strict=True)], not_finite

    def _encoded_sum(self, gradients: tf.Tensor, there: tf.Tensor, scale: float) -> tuple[tf.Tensor, tf.Tensor]:
        """``[N, weights]`` times ``scale`` to the sum of what it is encoded to, whole numbers, and how many rows were not finite.

        NumPy does it, as an operation of the graph, which XLA can't leave.
        """
        return (self._by_xla if under_xla() else self._by_numpy)(gradients, there, scale)

    def _by_numpy(self, gradients: tf.Tensor, there: tf.Tensor, scale: float) -> tuple[tf.Tensor, tf.Tensor]:
        counts, farthest = self.codebook.counts, np.abs(self._distances).max(axis=0)

        def encoded_sum(gradients, places, sizes, whole, products):
            chosen = sorted_rows.nearest(self._distances, farthest, whole, products)
            return sorted_rows.cut_and_add(self._codewords, counts, scale, gradients, places, sizes, chosen)

        sort = functools.partial(sorted_rows.sort, counts)
        places, sums, sizes = _in_numpy(sort, [gradients, there], [tf.int64, tf.float32, tf.int32])
        whole = tf.cast(_whole(tf.ensure_shape(sums, [None, len(counts)])), tf.float32)
        with tf.device("CPU"):  # float32, and no format with fewer bits that stands for it on some accelerators
            products = tf.matmul(whole, tf.constant(self._distances, tf.float32), transpose_b=True)
        total = _in_numpy(encoded_sum, [gradients, places, sizes, whole, products], tf.float64)
        not_finite = tf.reduce_sum(tf.cast(tf.equal(sizes, sorted_rows.NOT_FINITE), tf.int64))
        return tf.ensure_shape(total, [self.codebook.weights]), tf.ensure_shape(not_finite, [])

    def _by_xla(self, gradients: tf.Tensor, there: tf.Tensor, scale: float) -> tuple[tf.Tensor, tf.Tensor]:
        weights, counts = self.codebook.weights, self.codebook.counts
        finite = there & tf.reduce_all(tf.math.is_finite(gradients), 1)
        gradients = rows(gradients, finite)
        negated, places = tf.math.top_k(-tf.abs(gradients), k=weights)
        run_of_weight = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        sums = tf.transpose(tf.math.unsorted_segment_sum(tf.transpose(-negated), run_of_weight, len(counts)))
        chosen = tf.argmax(tf.matmul(_whole(sums), tf.constant(self._distances), transpose_b=True), axis=1)
        codewords = tf.gather(tf.gather(tf.constant(self._codewords), chosen), run_of_weight, axis=1)
        cut = tf.floor(tf.minimum(-negated * scale, codewords))
        signed = tf.where(tf.gather(gradients, places, batch_dims=1) < 0, -cut, cut)
        values, places = tf.reshape(tf.cast(signed, tf.float64), [-1]), tf.reshape(places, [-1])
        not_finite = tf.reduce_sum(tf.cast(there & ~finite, tf.int64))
        return tf.math.unsorted_segment_sum(values, places, weights), not_finite


def _whole(sums: tf.Tensor) -> tf.Tensor:
    """Each row's sums over runs in whole numbers of a unit of their own, float64."""
    sums = tf.minimum(tf.cast(sums, tf.float64), _LARGEST_FLOAT)
    return tf.round(sums * (_LARGEST / tf.maximum(tf.reduce_max(sums, 1, keepdims=True), 1e-300)))


def _in_numpy(function: Callable, inputs: list[tf.Tensor], types) -> list[tf.Tensor]:
    return tf.numpy_function(function, inputs, types, stateful=False)


@functools.lru_cache(maxsize=2)
def _in_units_of_the_grid(codebook: Codebook) -> np.ndarray:
    return codebook.magnitudes / np.float32(GRID)


@functools.lru_cache(maxsize=2)
def _distances(codebook: Codebook) -> np.ndarray:
    """``[size, runs]``: what is left of the codewords, at norm 1, without their mean, in whole numbers of a unit of their own.

    A row's sizes add up to at most 2^31 (and rounding): times numbers up to ``_LARGEST`` and added up in any
    order, float64 holds them exactly.
    """
    magnitudes, counts = codebook.magnitudes, codebook.counts
    norms = np.sqrt(np.square(magnitudes, dtype=np.float64) @ counts)
    inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    mean = (inverse @ magnitudes.astype(np.float64)) / codebook.size
    distances = np.empty(magnitudes.shape)
    for number, row in enumerate(magnitudes):
        distances[number] = row * inverse[number] - mean
    largest = np.abs(distances).sum(axis=1).max()
    return np.rint(distances * (2.0**31 / largest)) if largest > 0 else distances


def _built(lot: LotGradients) -> tf.Tensor:
    """All gradients, ``[N, weights]``."""
    return tf.concat([tf.reshape(g, [tf.shape(g)[0], math.prod(g.shape[1:])]) for g in lot.materialise()], 1)


def _means(gradients: tf.Tensor, there: tf.Tensor, group: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Of each group's rows that are there and finite; whether there are any; and how many that are there are not finite."""
    usable = there & tf.reduce_all(tf.math.is_finite(gradients), 1)
    sums = tf.reduce_sum(tf.reshape(rows(gradients, usable), [-1, group, gradients.shape[1]]), 1)
    numbers = tf.reduce_sum(tf.reshape(tf.cast(usable, tf.float32), [-1, group]), 1)
    means = sums / tf.maximum(numbers, 1.0)[:, None]
    return means, numbers > 0, tf.reduce_sum(tf.cast(there & ~usable, tf.int64))
