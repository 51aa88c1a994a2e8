"""Batches that Python makes by number, as a tf.data.Dataset: a keras.utils.PyDataset."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def passes_over(batches: keras.utils.PyDataset) -> tf.data.Dataset:
    """One pass: every batch once, in an order of chance, then the dataset's own `on_epoch_end()`.

    Batches are made one after the other, in one thread: nothing of the next pass is made before this one has ended.

    Raises:
        ValueError: the dataset has no length, or a batch is not made of arrays.
    """
    length = _length(batches)

    def one_pass() -> Iterator[list[np.ndarray]]:
        if _length(batches) != length:
            raise ValueError(
                f"The PyDataset had {length} batches, and now has {_length(batches)}: a pass has a fixed length."
            )
        batches.on_epoch_begin()
        for number in np.random.default_rng().permutation(length).tolist():
            yield _arrays(batches[number])
        batches.on_epoch_end()

    spec = tf.nest.map_structure(
        lambda array: tf.TensorSpec((None, *array.shape[1:]), tf.as_dtype(array.dtype)), _arrays(batches[0])
    )
    dataset = tf.data.Dataset.from_generator(one_pass, output_signature=spec)
    return dataset.apply(tf.data.experimental.assert_cardinality(length))


def _length(batches: keras.utils.PyDataset) -> int:
    length = batches.num_batches
    if not length:
        raise ValueError(
            "This PyDataset has no length, so a pass over its records has no end. Give it a __len__: the number of batches, of "
            "which each record is in one at most."
        )
    return int(length)


def _arrays(batch: Any) -> Any:
    """As Keras reads it: lists of arrays are structures."""
    batch = tuple(batch) if isinstance(batch, list) else batch
    return keras.tree.map_structure(np.asarray, batch)
