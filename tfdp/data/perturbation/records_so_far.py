"""Records as algorithm 2 has perturbed them so far: arrays, and the data set that always shows their values of now."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfdp.data import pipeline_graph
from tfdp.data.perturbation.dataset import check_order
from tfdp.data.perturbation.influence import checked_arrays
from tfdp.data.perturbation.leaves import as_record, checked_leaf

_ROWS = 1024
_OTHERS = (
    "Records that InfluencePerturbation gave noise to: which ones, and how much, depends on all other records, so that a "
    "private optimizer's steps on them would protect nobody as they say. Train privately on the records themselves"
)


class RecordsSoFar:
    """D_priv while it is made.

    Attributes:
        x, y: the records as they are.
        noised: which of them carry noise.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray):
        x = np.asarray(x)
        if x.ndim and x.dtype.kind in "iu":
            checked_leaf(tf.TensorSpec((None, *x.shape[1:]), x.dtype), "x")
        self.x, self.y = checked_arrays(x, y)
        self.noised = np.zeros(len(self.x), bool)
        with tf.device("CPU:0"):
            self._shown = tf.Variable(self.x, trainable=False)
            self._ready = tf.Variable(False, trainable=False)
            self._read = tf.Variable(False, trainable=False)

    @property
    def released(self) -> np.ndarray:
        return self._shown.numpy()

    def show(self, number: int, x: np.ndarray, noised: bool) -> None:
        """From now on, in place of what the record was."""
        self._shown.scatter_update(tf.IndexedSlices(x[None], [number]))
        self.noised[number] = noised

    def dataset(self) -> tf.data.Dataset:
        """Of (x, y), each as it is when it is read. Reading is an error until ``get_ready``."""
        numbered = tf.data.Dataset.from_tensor_slices((np.arange(len(self.x)), self.y))
        shown = numbered.map(self._now)
        setattr(shown, pipeline_graph.REASON_AGAINST_PRIVACY, _OTHERS)
        return shown

    def get_ready(self) -> None:
        self._ready.assign(True)

    def was_read(self) -> bool:
        """Whether a record of the data set was read since the last time this was asked."""
        read = bool(self._read.numpy())
        self._read.assign(False)
        return read

    def _now(self, number: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ready = tf.debugging.Assert(
            self._ready,
            [
                "No record has noise yet: fit needs a callback that gives it to them, callbacks=[perturb.callback()] for the "
                "InfluencePerturbation that was applied to this data set."
            ],
        )
        with tf.control_dependencies([ready, self._read.assign(True)]):
            return tf.gather(self._shown, number), y


def read(dataset: tf.data.Dataset) -> RecordsSoFar:
    """All records of a data set of (x, y), in its order."""
    _check(dataset)
    parts = [[part.numpy() for part in lot] for lot in dataset.batch(_ROWS)]
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    return RecordsSoFar(x, y)


def _check(dataset: tf.data.Dataset) -> None:
    """Before anything is read."""
    if not isinstance(dataset, tf.data.Dataset):
        raise ValueError(
            f"A tf.data.Dataset is perturbed here, not a {type(dataset).__name__}: arrays go to train(x, y, ...)."
        )
    check_order(dataset, pipeline_graph.transformations(dataset))
    if int(dataset.cardinality()) == tf.data.UNKNOWN_CARDINALITY:
        raise ValueError(
            "The number of records is not known, and all of them are kept in memory. Write "
            "dataset.apply(tf.data.experimental.assert_cardinality(n)) before the perturbation."
        )
    if pipeline_graph.ends_in_batches(dataset):
        raise ValueError("The elements are batches. Write dataset.apply(perturbation).shuffle(...).batch(...).")
    record = as_record(dataset.element_spec)
    if len(record) != 2:
        raise ValueError("The elements have no labels: contributions need records (x, y).")
    for spec, name in zip(record, ("x", "y"), strict=True):
        if not isinstance(spec, tf.TensorSpec):
            raise ValueError(f"{name} must be one dense tensor a record, not {spec}.")
    if record[0].shape.rank == 0:
        raise ValueError("x is one number a record: it must be a vector or more, such as tf.reshape(x, [1]).")
    checked_leaf(tf.TensorSpec((None, *record[0].shape) if record[0].shape.rank else None, record[0].dtype), "x")
