"""Records of one form on their way out: features with noise, labels randomised or as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.data.fingerprints import Fingerprints
from tfdp.data.perturbation_claims import Release
from tfdp.data.perturbed_blocks import PerturbedBlocks
from tfdp.data.perturbed_leaves import Leaf, as_record, check_label, feature_leaves
from tfdp.data.record_seeds import RecordSeeds
from tfdp.data.records import Records

_BLOCKS_AT_ONCE = 4


class PerturbedRecords:
    """Releases records that look as ``spec`` says: a lot of x or (x, y), leading dimension None.

    Attributes:
        touched: how many of the record's leaves, in their order, are changed at all.
        rows: how many records to release at once.
    """

    def __init__(self, spec: Any, release: Release, seeds: RecordSeeds, fingerprints: Fingerprints):
        self._spec, self._release = as_record(spec), release
        self._seeds, self._fingerprints = seeds, fingerprints
        self._leaves = feature_leaves(self._spec[0], release.stddev, release.clip_norm)
        self.touched = len(self._leaves)
        if release.labels is not None:
            check_label(self._spec)
            self.touched += 1
        self._blocks = PerturbedBlocks(self._leaves, release.stddev, release.clip_norm, fingerprints)
        self.rows = self._blocks.rows * _BLOCKS_AT_ONCE

    @property
    def released_spec(self) -> list[tf.TensorSpec]:
        """Of the leaves that are touched."""
        features = [tf.TensorSpec((None, *leaf.shape), tf.as_dtype(leaf.released_dtype)) for leaf in self._leaves]
        return features + tf.nest.flatten(self._spec[1:])[: self.touched - len(features)]

    def released(self, first: int, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The touched leaves of the records numbered from ``first`` on. Nothing is released of a block with a bad record."""
        count, rows = len(self._leaves), len(arrays[0])
        features, labels = arrays[:count], arrays[count:]
        seeds = [self._seeds.of(_form(leaf), first, rows) for leaf in self._leaves]
        noisy, prints = self._blocks.released(features, seeds)
        for label in labels:
            prints = prints + self._release.labels.places(label).astype(np.uint64) * self._fingerprints.weights(
                "label", 1
            )
        self._fingerprints.check(first, prints)
        return noisy + [self._randomized(label, first) for label in labels]

    def _randomized(self, label: np.ndarray, first: int) -> np.ndarray:
        labels = self._release.labels
        words = self._seeds.of(f"label {labels.probability.hex()} {labels.count}", first, len(label))
        return labels.released(label, words)

    def blocks(self, records: Records) -> Iterator[tuple[slice, list[np.ndarray]]]:
        """All leaves of all records, some rows at a time."""
        for start in range(0, records.size, self.rows):
            part = slice(start, min(start + self.rows, records.size))
            arrays = records.read(np.arange(part.start, part.stop))
            yield part, self.released(start, arrays[: self.touched]) + arrays[self.touched :]

    def in_memory(self, records: Records) -> tuple[Any, ...]:
        """The record's parts, whole."""
        if records.size == 0:
            raise ValueError("The data is empty: there are no records to perturb.")
        whole: list[np.ndarray] = []
        for part, arrays in self.blocks(records):
            whole = whole or [np.empty((records.size, *array.shape[1:]), array.dtype) for array in arrays]
            for one, array in zip(whole, arrays, strict=True):
                one[part] = array
        return records.pack(whole)


def _form(leaf: Leaf) -> str:
    """Features in another type or shape are another version of the data: their noise is another."""
    return f"{leaf.name} {leaf.dtype.name} {leaf.shape}"
