"""The records of a part of a tf.data pipeline by number, without shuffle(), batch() and repeat()."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Flat = list[tf.Tensor]


class NotNumbered(Exception):
    """Why the records of a pipeline can't be read by number, as a part of a sentence."""


@dataclasses.dataclass(frozen=True)
class Numbered:
    """Records by number.

    Attributes:
        size: how many there are; math.inf of a constant that a zip() joins to records.
        spec: what an element of the pipeline looks like at this point: a record, or a batch of them.
        element: in a graph, the tensors of one record, made of its number, or of the tensors that `kept` has under that number.
        vectorised: `element` takes a vector of numbers as well, for a batch of these records.
        order: the number in `element` of each record; None if they are the same.
        batch_size: of the batch() that was taken off.
        after: the functions of the map()s after batch(), which take batches.
        mixed, repeated: whether a shuffle() or repeat() was taken off.
        kept: the records below a cache(), which are read once.
        maps: the map()s whose functions are called.
        unchecked: what stands on the user's word of a part that was read once, as sentences.
    """

    size: float
    spec: Any
    element: Callable[..., Flat]
    vectorised: bool = True
    order: np.ndarray | None = None
    batch_size: int | None = None
    after: tuple[Callable[..., Flat], ...] = ()
    mixed: bool = False
    repeated: bool = False
    kept: "Numbered | None" = None
    maps: tuple[tf.data.Dataset, ...] = ()
    unchecked: tuple[str, ...] = ()

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Their numbers in `element`."""
        return numbers if self.order is None else self.order[numbers]

    def chosen(self, numbers: np.ndarray) -> "Numbered":
        """Only the records of these numbers, in this order."""
        if not len(numbers):
            raise NotNumbered("take(), skip() and shard() leave no record")
        return dataclasses.replace(self, size=len(numbers), order=self.places(numbers))

    def by_number(self) -> Callable[[tf.Tensor], Flat]:
        """`element`, of numbers in a graph; for parts that keep nothing."""
        if self.order is None:
            return self.element
        order = tf.constant(self.order)
        return lambda number: self.element(tf.gather(order, number))
