"""What each source and each transformation of a tf.data pipeline makes of records that are read by number.

shuffle(), repeat() and batch() are noted and taken off; drop_remainder with them: every record may be drawn.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.data.numbered import Flat, NotNumbered, Numbered
from tfdp.data.pipeline_graph import OWN_ELEMENT
from tfdp.data.pipeline_nodes import inputs_of, is_constant, is_once, kind_of


def is_memory_cache(node: tf.data.Dataset) -> bool:
    return kind_of(node) == "Cache" and not node._filename.numpy()


def gathering(tensors: Flat) -> Callable[[tf.Tensor], Flat]:
    """The element of this number, in a graph, of tensors with a row for each."""
    return lambda number: [tf.gather(tensor, number) for tensor in tensors]


def _slices(node: tf.data.Dataset) -> Numbered:
    tensors = node._tensors
    return Numbered(int(tensors[0].shape[0]), node.element_spec, gathering(tensors))


def _single(node: tf.data.Dataset) -> Numbered:
    return Numbered(1, node.element_spec, lambda number: list(node._tensors), vectorised=False)


def _range(node: tf.data.Dataset) -> Numbered:
    start, step, dtype = int(node._start), int(node._step), node.element_spec.dtype
    size = len(range(start, int(node._stop), step))
    return Numbered(size, node.element_spec, lambda number: [tf.cast(start + step * number, dtype)])


def constant(node: tf.data.Dataset) -> Numbered:
    """One tensor that is repeated: the same for every record that a zip() joins it to."""
    (below,) = inputs_of(node)
    times = int(node._count)
    return dataclasses.replace(_single(below), size=math.inf if times < 0 else times, unchecked=(f"{OWN_ELEMENT}.",))


def zipped(node: tf.data.Dataset, parts: list[Numbered]) -> Numbered:
    if any(part.mixed or part.repeated for part in parts):
        raise NotNumbered("zip() joins data sets that are shuffled or repeated")
    batched = parts[0].batch_size is not None
    lengths = {(part.batch_size, part.size if batched else None) for part in parts}
    if len(lengths) > 1 or any(part.after for part in parts):
        raise NotNumbered("zip() joins batches of different lengths, or what map() made of batches")
    elements = [part.by_number() for part in parts]
    specs = [leaf for part in parts for leaf in tf.nest.flatten(part.spec)]
    only_constants = all(map(is_constant, inputs_of(node)))
    return Numbered(
        size=1 if only_constants else min(part.size for part in parts),
        spec=tf.nest.pack_sequence_as(node.element_spec, specs),
        element=lambda number: [tensor for element in elements for tensor in element(number)],
        vectorised=all(part.vectorised for part in parts),
        batch_size=parts[0].batch_size,
        repeated=only_constants,
        maps=tuple(node for part in parts for node in part.maps),
        unchecked=tuple(sentence for part in parts for sentence in part.unchecked),
    )


def _passed_by(node: tf.data.Dataset, below: Numbered) -> Numbered:
    return below


def _mapped(node: tf.data.Dataset, below: Numbered) -> Numbered:
    if below.spec != node._input_dataset.element_spec:  # made for batches of one length: it is made anew, for any
        empty = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=below.spec)
        try:
            node = empty.map(node._map_func._func)
        except (ValueError, TypeError) as error:
            raise NotNumbered("a map() after batch(drop_remainder=True) takes batches of one length only") from error
    function = node._map_func.function
    if below.batch_size is not None and not all(_has_rows(spec) for spec in tf.nest.flatten(node.element_spec)):
        raise NotNumbered("a map() after batch() gives something else than one row for each record")
    found = dataclasses.replace(below, spec=node.element_spec, maps=(*below.maps, node))
    if below.batch_size is not None:
        return dataclasses.replace(found, after=(*below.after, function))
    return dataclasses.replace(found, element=lambda *given: list(function(*below.element(*given))), vectorised=False)


def _has_rows(spec: Any) -> bool:
    """Whether it may be one row for each record, of batches of any length."""
    shape = spec.shape if isinstance(spec, tf.TensorSpec) else tf.TensorShape(())
    return shape.rank is None or (shape.rank > 0 and shape[0] is None)


def kept(node: tf.data.Dataset, below: Numbered) -> Numbered:
    """Rows of one shape that are to be cached in memory are kept there. Files are neither written nor read."""
    batched = below.batch_size is not None
    shapes = [spec.shape for spec in tf.nest.flatten(below.spec)]
    fixed = all(shape.rank is not None and shape[int(batched) :].is_fully_defined() for shape in shapes)
    if not is_memory_cache(node) or not below.maps or not fixed:
        return below
    return dataclasses.replace(below, element=lambda *row: list(row), vectorised=True, order=None, after=(), kept=below)


def _shuffled(node: tf.data.Dataset, below: Numbered) -> Numbered:
    """A shuffle() that gives one order for good decides what take() and skip() take, so its order is found out."""
    fixed = not node._reshuffle_each_iteration and (int(node._seed) or int(node._seed2))
    if not fixed or below.mixed or below.repeated or below.batch_size is not None:
        return dataclasses.replace(below, mixed=True)
    numbers = tf.data.Dataset.range(int(below.size))
    shuffled = tf.raw_ops.ShuffleDatasetV3(
        input_dataset=numbers._variant_tensor,
        buffer_size=node._buffer_size,
        seed=node._seed,
        seed2=node._seed2,
        seed_generator=tf.raw_ops.DummySeedGenerator(),
        output_types=[tf.int64],
        output_shapes=[()],
        reshuffle_each_iteration=False,
    )
    order = tf.data.experimental.from_variant(shuffled, numbers.element_spec).batch(int(below.size))
    return below.chosen(order.get_single_element().numpy())


def _shuffled_and_repeated(node: tf.data.Dataset, below: Numbered) -> Numbered:
    return dataclasses.replace(below, mixed=True, repeated=True)


def _repeated(node: tf.data.Dataset, below: Numbered) -> Numbered:
    return below if is_once(node) else dataclasses.replace(below, repeated=True)


def _part(node: tf.data.Dataset, below: Numbered) -> Numbered:
    """take(), skip() and shard(), of records or of batches."""
    name, batch = kind_of(node).lower(), below.batch_size or 1
    count = int(node._index if name == "shard" else node._count)
    if name == "take" and below.repeated and below.batch_size and not 0 <= count * batch < below.size:
        return below  # it says how many steps an epoch has
    if below.mixed or below.repeated:
        after = "repeat()" if below.repeated else "shuffle()"
        raise NotNumbered(
            f"{name}() after {after} leaves it to chance which records are in a pass. Put {name}() before {after}"
        )
    numbers = np.arange(int(below.size))
    if name == "shard":
        return below.chosen(numbers[numbers // batch % int(node._num_shards) == count])
    end = len(numbers) if count < 0 else count * batch
    return below.chosen(numbers[:end] if name == "take" else numbers[end:])


def _batched(node: tf.data.Dataset, below: Numbered) -> Numbered:
    if below.batch_size is not None:
        raise NotNumbered("batch() is applied twice")
    spec = tf.nest.map_structure(_with_rows, below.spec)
    return dataclasses.replace(below, spec=spec, batch_size=int(node._batch_size))


def _with_rows(spec: tf.TensorSpec) -> tf.TensorSpec:
    return tf.TensorSpec(None if spec.shape.rank is None else (None, *spec.shape), spec.dtype)


def _padded(node: tf.data.Dataset, below: Numbered) -> Numbered:
    specs, values = tf.nest.flatten(below.spec), tf.nest.flatten(node._padding_values)
    wanted = [np.asarray(shape).tolist() for shape in tf.nest.flatten(node._padded_shapes)]
    if any(spec.shape.rank is None for spec in specs):
        raise NotNumbered("padded_batch() is given records of unknown rank")
    shapes = [
        [own if new < 0 else new for own, new in zip(spec.shape, shape, strict=True)]
        for spec, shape in zip(specs, wanted, strict=True)
    ]
    if any(None in shape for shape in shapes):
        raise NotNumbered("padded_batch() pads a record to its longest neighbour (give it fixed padded_shapes)")

    def padded(tensor: tf.Tensor, shape: list[int], value: tf.Tensor) -> tf.Tensor:
        missing = tf.constant(shape, tf.int32) - tf.shape(tensor)
        padded = tf.pad(tensor, tf.stack([tf.zeros_like(missing), missing], axis=1), constant_values=value)
        return tf.ensure_shape(padded, shape)

    def element(*given: tf.Tensor) -> Flat:
        return [padded(*leaf) for leaf in zip(below.element(*given), shapes, values, strict=True)]

    own = [tf.TensorSpec(shape, spec.dtype) for shape, spec in zip(shapes, specs, strict=True)]
    spec = tf.nest.pack_sequence_as(below.spec, own)
    return _batched(node, dataclasses.replace(below, spec=spec, element=element, vectorised=False))


SOURCES = {"TensorSlice": _slices, "Tensor": _single, "Range": _range}
TRANSFORMATIONS = {
    "Map": _mapped,
    "ParallelMap": _mapped,
    "Cache": kept,
    "Shuffle": _shuffled,
    "ShuffleAndRepeat": _shuffled_and_repeated,
    "Repeat": _repeated,
    "Take": _part,
    "Skip": _part,
    "Shard": _part,
    "Batch": _batched,
    "ParallelBatch": _batched,
    "PaddedBatch": _padded,
    "Prefetch": _passed_by,
    "Options": _passed_by,
    "AssertCardinality": _passed_by,
}
