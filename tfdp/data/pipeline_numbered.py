"""The records of a tf.data pipeline by number: what is left of it without shuffle(), batch(), prefetch() and repeat().

The pipeline is read from its sources upwards. A map() before batch() is called with one record, a map() after it with a
batch of that record alone: so no record can enter what another one becomes, whatever the function computes. A part that can't
be read by number is read once and kept in memory, if the dataset has a cache().
"""

import tensorflow as tf

from tfdp.data.numbered import NotNumbered, Numbered
from tfdp.data.pipeline_functions import check_functions
from tfdp.data.pipeline_graph import (
    BATCHING,
    ONE_RECORD_AT_A_TIME,
    REASON_AGAINST_PRIVACY,
    REPEATING,
    inspect,
)
from tfdp.data.pipeline_nodes import cardinality_of, inputs_of, is_constant, is_once, kind_of, nodes_of, written
from tfdp.data.pipeline_parts import SOURCES, TRANSFORMATIONS, constant, gathering, is_memory_cache, zipped

_READ_AT_ONCE = 1024


def numbered(dataset: tf.data.Dataset) -> Numbered:
    """The dataset's records by number.

    Raises:
        NotNumbered: they can't be read so.
        ValueError: a function can be seen to read records other than its own.
    """
    found = _read(dataset, cached=any(map(is_memory_cache, nodes_of(dataset))), keep=True)
    check_functions(dataset, found.size)
    return found


def _read(node: tf.data.Dataset, cached: bool, keep: bool) -> Numbered:
    """This part of the pipeline.

    Args:
        node: its uppermost transformation.
        cached: whether what can't be read by number may be read once.
        keep: whether what is below a cache() is kept; parts of a zip() are not, for they are read together.
    """
    kind = kind_of(node)
    if hasattr(node, REASON_AGAINST_PRIVACY):
        raise ValueError(f"{getattr(node, REASON_AGAINST_PRIVACY)}.")
    if hasattr(node, ONE_RECORD_AT_A_TIME):
        raise NotNumbered("the noise on a record depends on its place in the data set")
    if not all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(node.element_spec)):
        raise NotNumbered("its elements are not dense tensors (pad them to one shape)")
    if kind == "Zip":
        parts = inputs_of(node)
        return zipped(node, [constant(one) if is_constant(one) else _read(one, cached, keep=False) for one in parts])
    if kind in SOURCES:
        return SOURCES[kind](node)
    if kind in TRANSFORMATIONS:
        (below,) = inputs_of(node)
        found = _read(below, cached, keep)
        return found if kind == "Cache" and not keep else TRANSFORMATIONS[kind](node, found)
    if not cached:
        raise NotNumbered(
            f"records of {written(node)} have no numbers to be read by. If they fit into memory, write .cache() after it: then they are "
            "read once"
        )
    return _read_once(node)


def _read_once(node: tf.data.Dataset) -> Numbered:
    """All records, in memory."""
    if any(kind_of(part) in BATCHING for part in nodes_of(node)):
        raise NotNumbered(f"{written(node)} takes batches apart, whose records may have met in them")
    endless = cardinality_of(node) == tf.data.INFINITE_CARDINALITY
    if endless or any(kind_of(part) in REPEATING and not is_once(part) for part in nodes_of(node)):
        raise NotNumbered(f"{written(node)} repeats its records (make_csv_dataset: num_epochs=1)")
    try:
        blocks = [tf.nest.flatten(block) for block in node.batch(_READ_AT_ONCE)]
    except tf.errors.InvalidArgumentError as error:
        raise NotNumbered(f"the records of {written(node)} differ in shape") from error
    if not blocks:
        raise NotNumbered(f"{written(node)} brings no records")
    with tf.device("CPU:0"):
        tensors = [tf.concat(parts, 0) for parts in zip(*blocks, strict=True)]
    size = int(tensors[0].shape[0])
    return Numbered(size, node.element_spec, gathering(tensors), unchecked=inspect(node.batch(1), size).unchecked)
