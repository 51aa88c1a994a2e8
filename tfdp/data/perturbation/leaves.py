"""Which records can be perturbed: what is checked before anything is read."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.data.perturbation.labels import RandomizedLabels
from tfdp.data.records import map_leaves

# What noise without its last tails costs is taken for records of this size (``tfdp.data.perturbation.claims``).
MOST_COORDINATES = 2**30
_SMALL_INTEGERS = (tf.bool, tf.uint8, tf.int8, tf.uint16, tf.int16)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One tensor of a record's features: its place in the record, and its shape in one record."""

    name: str
    shape: tuple[int, ...]
    dtype: tf.DType

    @property
    def coordinates(self) -> int:
        return math.prod(self.shape)

    @property
    def form(self) -> str:
        """Features in another type or shape are another version of the data: their noise is another, and a second one is refused."""
        return f"{self.name} {self.dtype.name} {self.shape}"

    @property
    def released_dtype(self) -> np.dtype:
        """Floats keep their type, integers of a small, public range come out as float32."""
        return (self.dtype if self.dtype.is_floating else tf.float32).as_numpy_dtype


def as_record(element: Any) -> tuple[Any, ...]:
    """As Keras reads an element: a tuple is (x,) or (x, y), all else is x. Sample weights are refused."""
    record = element if isinstance(element, tuple) else (element,)
    if len(record) == 3:
        raise ValueError(
            "A record is x or (x, y) here: sample weights would be released as they are. Perturb (x, y), and give weights that "
            "don't depend on the records to fit."
        )
    if not 1 <= len(record) <= 2:
        raise ValueError(
            f"The elements are tuples of {len(record)}. A record is x or (x, y); several inputs go into a tuple or a dict of their "
            "own: ((input_1, input_2), y)."
        )
    return record


def feature_leaves(x_spec: Any, stddev: float, clip_norm: float) -> list[Leaf]:
    """The leaves of a lot of features (leading dimension: rows), each checked.

    | dtype                             | what happens                                             |
    |-----------------------------------|----------------------------------------------------------|
    | float32                           | stays                                                    |
    | float16, bfloat16                 | stays, if it can hold the noise                          |
    | float64                           | stays, with values rounded as float32                    |
    | bool, (u)int8, (u)int16           | their range is public: released as float32               |
    | larger integers, strings, complex | refused                                                  |
    """
    named = tf.nest.flatten(map_leaves(checked_leaf, x_spec, "x"))
    if not named:
        raise ValueError("x holds no tensors: there is nothing to perturb.")
    coordinates = sum(leaf.coordinates for leaf in named)
    if not 0 < coordinates <= MOST_COORDINATES:
        raise ValueError(
            f"A record has {coordinates:,} numbers. Records of 1 to {MOST_COORDINATES:,} numbers can be perturbed."
        )
    for leaf in named:
        largest = float(min(tf.as_dtype(leaf.released_dtype).max, tf.float32.max))
        if clip_norm + 11 * stddev > largest:
            raise ValueError(
                f"{leaf.name} is {leaf.dtype.name}, which can't hold noise of standard deviation {stddev:g}. Cast it to float32, or "
                "write a smaller clip_norm and stddev in the same proportion."
            )
    return named


def checked_leaf(spec: Any, name: str) -> Leaf:
    if not isinstance(spec, tf.TensorSpec):
        raise ValueError(
            f"{name} is a {type(spec).__name__}, not a dense tensor. Noise hides a record only if all records have one shape: pad "
            "them, or write tf.sparse.to_dense."
        )
    if spec.shape.rank is None or spec.shape.rank == 0:
        raise ValueError(
            f"{name} has shape {spec.shape}, so it has no rows. Write batch_size= only for a data set of batches; set shapes with "
            "tf.ensure_shape."
        )
    if None in spec.shape[1:].as_list():
        raise ValueError(
            f"{name} has records of shape {spec.shape[1:]}. Noise hides a record only if all records have one, known shape: pad "
            "or crop them, or set the shape with tf.ensure_shape."
        )
    if spec.dtype.is_integer and spec.dtype not in _SMALL_INTEGERS:
        raise ValueError(
            f"{name} is {spec.dtype.name}: integers without a public range are mostly numbers of words or categories, which noise "
            "makes no sense of. Write categories as tf.one_hot, and amounts as tf.cast(x, tf.float32), scaled to what clip_norm "
            "keeps."
        )
    if not (spec.dtype.is_floating or spec.dtype in _SMALL_INTEGERS):
        raise ValueError(f"{name} is {spec.dtype.name}: noise is added to real numbers. Write it as float32.")
    return Leaf(name, tuple(spec.shape[1:].as_list()), spec.dtype)


def check_label(record: tuple[Any, ...], labels: RandomizedLabels) -> None:
    """One number a record, of a type that holds every class: so that it can be randomised."""
    leaves = tf.nest.flatten(record[1:])
    if len(leaves) != 1 or not isinstance(leaves[0], tf.TensorSpec):
        raise ValueError(
            f"randomized_response= needs one label a record, but there are {len(leaves)}. Give (x, y) with one tensor y."
        )
    shape, dtype = leaves[0].shape, leaves[0].dtype
    if shape.rank not in (1, 2) or (shape.rank == 2 and shape[1] != 1) or not (dtype.is_integer or dtype.is_floating):
        raise ValueError(
            f"randomized_response= needs labels that are one number each, but a lot of them has shape {shape} and type "
            f"{dtype.name}. Write one-hot labels as tf.argmax(y, axis=-1)."
        )
    if not labels.fit_in(dtype.as_numpy_dtype):
        raise ValueError(
            f"Labels are {dtype.name}, which does not hold all {labels.count} public classes: another label would come out in place "
            "of one that does not fit. Write them as int64."
        )
