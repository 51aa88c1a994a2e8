"""A `tf.data.Dataset` with perturbed records."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdp.data import pipeline_graph
from tfdp.data.perturbation.released_records import PerturbedRecords

_UNSTABLE = {
    "Shuffle": "shuffle() before the perturbation gives records other numbers, and so other noise, in every epoch",
    "Shard": "shard() before the perturbation gives records of different shards the same numbers, and so the same noise, which their "
    "difference shows",
    "DirectedInterleave": "sample_from_datasets() before the perturbation may give records other numbers in every epoch",
    "Window": "window() before the perturbation may put a record into several windows, each with noise of its own, which costs as "
    "many releases",
    "Scan": "scan() before the perturbation carries a record on into all that come after it, each with noise of its own, which "
    "costs as many releases",
    "Random": "Dataset.random() before the perturbation may choose records, and one that is chosen twice gets noise twice, which "
    "costs two releases",
}
_UNSTABLE["ShuffleAndRepeat"] = _UNSTABLE["Shuffle"]
_REPEATED = "repeat() before the perturbation gives a record a new number, and so new noise, at every repetition, which costs as many releases"
_TWICE = (
    "concatenate() or zip() before the perturbation joins a data set with itself: a record that is in two elements gets noise twice, "
    "which costs two releases"
)
_UNORDERED = (
    "deterministic=False before the perturbation may give records other numbers, and so other noise, in every epoch"
)
_DETERMINISTIC = "Leave it out of map(), interleave(), batch() and the options"
_ORDER = "Write dataset.apply(perturbation).shuffle(...).batch(...).repeat()"


def perturbed(
    dataset: tf.data.Dataset, records: Callable[[Any], PerturbedRecords], batch_size: int | None, memory_limit: int
) -> tf.data.Dataset:
    """The data set with perturbed records in the same order, made by several threads, in batches if it was in batches.

    What comes out is kept, and the data set read once, if it is known to take no more bytes than the limit.
    """
    found = pipeline_graph.transformations(dataset)
    check_order(dataset, found)
    size = int(dataset.cardinality())
    if batch_size is not None:
        _check_batches(dataset, batch_size)
        released = _mapped(dataset, records(dataset.element_spec), batch_size)
        return _kept(released, size, batch_size, memory_limit)
    lots = tf.nest.map_structure(_with_rows, dataset.element_spec)
    release = records(lots)
    released = _mapped(dataset.batch(release.rows), release, release.rows).unbatch()
    return _kept(released, size, None, memory_limit)


def _mapped(batches: tf.data.Dataset, release: PerturbedRecords, batch_size: int) -> tf.data.Dataset:
    structure = batches.element_spec

    @tf.autograph.experimental.do_not_convert
    def one_batch(number, element):
        leaves = tf.nest.flatten(element)
        touched = leaves[: release.touched]
        first, *others = (tf.shape(leaf)[0] for leaf in touched)
        checks = [
            tf.debugging.assert_less_equal(first, batch_size, f"A batch has more than batch_size={batch_size} records.")
        ]
        checks += [
            tf.debugging.assert_equal(first, other, "The parts of a batch differ in length.") for other in others
        ]
        with tf.control_dependencies(checks):
            touched = [tf.identity(leaf) for leaf in touched]
        drawn = release.released(number * batch_size, touched, batch_size)
        for before, after in zip(touched, drawn, strict=True):
            after.set_shape(before.shape)
        return tf.nest.pack_sequence_as(structure, drawn + leaves[release.touched :])

    # enumerate() would hide where its numbers come from.
    numbered = tf.data.Dataset.zip((tf.data.Dataset.range(tf.int64.max), batches))
    mapped = numbered.map(one_batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    setattr(mapped, pipeline_graph.ONE_RECORD_AT_A_TIME, True)
    return mapped


def _kept(released: tf.data.Dataset, size: int, batch_size: int | None, memory_limit: int) -> tf.data.Dataset:
    """From the end of the first complete pass on in memory, which is then all that is read."""
    known = size > 0 and size * _bytes(released.element_spec, batch_size) <= memory_limit
    return _stable(released.cache() if known else released, size)


def _bytes(element_spec: Any, batch_size: int | None) -> float:
    """Of an element; infinite where the spec does not say."""
    total = 0.0
    for spec in tf.nest.flatten(element_spec):
        if not isinstance(spec, tf.TensorSpec) or not spec.dtype.size or spec.shape.rank is None:
            return math.inf
        lengths = spec.shape.as_list() if batch_size is None else [batch_size, *spec.shape.as_list()[1:]]
        total += math.inf if None in lengths else math.prod(lengths) * spec.dtype.size
    return total


def _stable(dataset: tf.data.Dataset, size: int) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    # Every worker numbers all records, and takes its share of what comes out.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    if size >= 0:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(size))
    return dataset.with_options(options)


def _with_rows(spec: Any) -> Any:
    if not isinstance(spec, tf.TensorSpec):
        return spec
    return tf.TensorSpec([None, *spec.shape] if spec.shape.rank is not None else None, spec.dtype)


def check_order(dataset: tf.data.Dataset, found: frozenset[str]) -> None:
    """Raises where records have no stable numbers, or there are none."""
    for kind, reason in _UNSTABLE.items():
        if kind in found:
            raise ValueError(f"{reason}. {_ORDER}.")
    if pipeline_graph.may_change_order(dataset):
        raise ValueError(f"{_UNORDERED}. {_DETERMINISTIC}.")
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY or found & pipeline_graph.REPEATING:
        raise ValueError(f"{_REPEATED}. {_ORDER}.")
    if pipeline_graph.may_repeat_records(dataset):
        raise ValueError(f"{_TWICE}. {_ORDER}, each record in one element.")
    if size == 0:
        raise ValueError("The data set is empty: there are no records to perturb.")


def _check_batches(dataset: tf.data.Dataset, batch_size: int) -> None:
    """Rows of a record that were taken for records would each be clipped by themselves."""
    specs = [spec for spec in tf.nest.flatten(dataset.element_spec) if isinstance(spec, tf.TensorSpec)]
    known = {spec.shape[0] for spec in specs if spec.shape.rank}
    if known - {None} and not pipeline_graph.ends_in_batches(dataset):
        raise ValueError(
            f"batch_size={batch_size} says that elements are batches, but the data set does not end in a batch(). Leave batch_size out if "
            "elements are records; where they are batches from elsewhere, write dataset.unbatch() and leave it out."
        )
    too_large = {rows for rows in known - {None} if rows > batch_size}
    if too_large:
        raise ValueError(f"Batches have {max(too_large)} records: write batch_size={max(too_large)}.")
