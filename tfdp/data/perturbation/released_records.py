"""Records of one form on their way out: features with noise, labels randomised or as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.data.perturbation.blocks import PerturbedBlocks
from tfdp.data.perturbation.claims import Release
from tfdp.data.perturbation.fingerprints import Fingerprints
from tfdp.data.perturbation.leaves import as_record, check_label, feature_leaves
from tfdp.data.perturbation.seeds import SEED_WORDS, RecordSeeds
from tfdp.data.records import Records


class PerturbedRecords:
    """Releases records that look as ``spec`` says: a lot of x or (x, y), leading dimension None.

    Attributes:
        touched: how many of the record's leaves, in their order, are changed at all.
        rows: how many records are released at once, at best.
    """

    def __init__(self, spec: Any, release: Release, seeds: RecordSeeds, fingerprints: Fingerprints):
        self._spec, self._labels = as_record(spec), release.labels
        self._seeds, self._fingerprints = seeds, fingerprints
        self._leaves = feature_leaves(self._spec[0], release.stddev, release.clip_norm)
        self.touched = len(self._leaves)
        if self._labels is not None:
            check_label(self._spec, self._labels)
            self.touched += 1
        self._blocks = PerturbedBlocks(self._leaves, release.stddev, release.clip_norm, fingerprints)
        self.rows = self._blocks.rows

    def released(self, first: tf.Tensor, leaves: list[tf.Tensor], most: int) -> list[tf.Tensor]:
        """The touched leaves of the records numbered from ``first`` on; in a graph, or at once.

        Nothing of a block is released if one of its records can't be: not finite, or not what it was before.

        Args:
            first: a number.
            leaves: with a leading dimension of ``most`` or less, the same for all.
            most: how many records there may be.
        """
        count = len(self._leaves)
        features, labels = leaves[:count], leaves[count:]
        rows = tf.shape(leaves[0])[0]
        seeds = _in_python(self._drawn_seeds, [first, rows], [tf.uint64] * count)
        for one in seeds:
            one.set_shape((None, SEED_WORDS))
        whole_blocks = -(-most // self.rows) * self.rows
        noisy, squares, prints = self._blocks.released(features, seeds, whole_blocks)
        types = [tf.bool] + [label.dtype for label in labels]
        checked, *randomized = _in_python(self._checked, [first, squares, prints, *labels], types)
        with tf.control_dependencies([checked]):
            return [tf.identity(one) for one in (*noisy, *randomized)]

    def _drawn_seeds(self, first: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
        return [self._seeds.of(leaf.form, int(first), int(rows)) for leaf in self._leaves]

    def _checked(self, first: np.ndarray, squares: np.ndarray, prints: np.ndarray, *labels: np.ndarray) -> list:
        _check_finite(squares)
        places = [self._labels.places(label).astype(np.uint64) for label in labels]
        self._fingerprints.check("features", int(first), prints)
        for one in places:
            weight = self._fingerprints.weights("label", 1)
            self._fingerprints.check(self._labels.form, int(first), (one + np.uint64(1)) * weight)
        return [np.True_] + [self._randomized(label, int(first)) for label in labels]

    def _randomized(self, label: np.ndarray, first: int) -> np.ndarray:
        return self._labels.released(label, self._seeds.of(self._labels.form, first, len(label)))

    def blocks(self, records: Records) -> Iterator[tuple[slice, list[np.ndarray]]]:
        """All leaves of all records, some rows at a time."""
        for start in range(0, records.size, self.rows):
            part = slice(start, min(start + self.rows, records.size))
            arrays = records.read(np.arange(part.start, part.stop))
            touched = [tf.convert_to_tensor(array) for array in arrays[: self.touched]]
            released = self.released(tf.constant(start, tf.int64), touched, self.rows)
            yield part, [one.numpy() for one in released] + arrays[self.touched :]

    def in_memory(self, records: Records) -> tuple[Any, ...]:
        """The record's parts, whole."""
        whole: list[np.ndarray] = []
        for part, arrays in self.blocks(records):
            whole = whole or [np.empty((records.size, *array.shape[1:]), array.dtype) for array in arrays]
            for one, array in zip(whole, arrays, strict=True):
                one[part] = array
        return records.pack(whole)


def _in_python(function: Callable, inputs: list[tf.Tensor], types: list[tf.DType]) -> list[tf.Tensor]:
    """What needs the key or remembers records: at once, or when the graph runs, which then holds neither."""
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(one) for one in function(*(one.numpy() for one in inputs))]
    return tf.numpy_function(function, inputs, types)


def _check_finite(squares: np.ndarray) -> None:
    bad = ~np.isfinite(squares)
    if bad.any():
        raise ValueError(
            f"The features of {int(bad.sum())} of {len(bad)} records are not finite (NaN, infinite, or beyond 1e150). Fill in or "
            "leave out such values before the perturbation."
        )
