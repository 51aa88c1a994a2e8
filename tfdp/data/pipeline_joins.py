"""Whether zip() and concatenate() can bring a record twice: what they join, and what was done to it before."""

from collections.abc import Iterator

import tensorflow as tf

from tfdp.data.pipeline_functions import counts, is_a_number
from tfdp.data.pipeline_nodes import cardinality_of, inputs_of, is_constant, is_once, kind_of, nodes_of, ways_of

TOGETHER = "zip() joins parts of one and the same record"
_IN_ORDER = {"Zip", "Map", "ParallelMap", "Batch", "ParallelBatch", "PaddedBatch", "MapAndBatch", "Unbatch", "Rebatch"}
_IN_ORDER |= {"Prefetch", "Cache", "Options", "AssertCardinality", "Restructured", "FlatMap"}
_IN_ORDER |= {
    "Tensor",
    "TensorSlice",
    "SparseTensorSlice",
    "List",
    "Range",
    "TFRecord",
    "TextLine",
    "FixedLengthRecord",
}
_OF_NUMBERS = {"Zip", "Range", "Take", "Skip", "Batch", "ParallelBatch", "Prefetch", "Options", "AssertCardinality"}
_CHOOSING = {"Take", "Skip", "Shard"}
_NAMES = {
    "Shuffle": "shuffle()",
    "ShuffleAndRepeat": "shuffle()",
    "Skip": "skip()",
    "Take": "take()",
    "Shard": "shard()",
    "Repeat": "repeat()",
    "Concatenate": "concatenate()",
    "Interleave": "interleave()",
    "ParallelInterleave": "interleave()",
    "Snapshot": "snapshot()",
    "Load": "load()",
}
_ZIP_FIRST = (
    "Zip the sources as they are, such as images and labels in one order, and shuffle(), skip(), take() or repeat() what "
    "zip() gives. Records can't be mixed with others (mixup, pairs); for random numbers zip one data set with "
    "tf.data.Dataset.counter()"
)


def numbers(dataset: tf.data.Dataset, size: int) -> list[tf.data.Dataset]:
    """The inputs of its zip()s of which all can be seen: that they hold no records, but count them, as counter() does."""
    zips = [node for node in nodes_of(dataset) if kind_of(node) == "Zip"]
    found = [source for node in zips for source in inputs_of(node) if _is_a_number(source, size)]
    return [source for source in found if "Variant" not in map(kind_of, nodes_of(source))]


def check_joins(dataset: tf.data.Dataset, size: int, with_constants: bool = False) -> Iterator[str]:
    """Raises ValueError where one record can be seen to enter twice. Yields what stands on the user's word.

    Args:
        dataset: the pipeline.
        size: its number of records.
        with_constants: whether zip() may join one tensor that is repeated, as a map() may capture it: only where a record is said
            to be an element, for elements may be windows of that tensor.
    """
    in_any_order = dataset.options().deterministic is False
    for node in nodes_of(dataset):
        if kind_of(node) == "Zip":
            sources = _with_records(node, size)
            if len(sources) > 1:
                yield f"{TOGETHER}."
                for part in (part for source in sources for part in _parts(source, size)):
                    if not (with_constants and is_constant(part)):
                        _check_order(part, in_any_order)
        if kind_of(node) == "Concatenate":
            _check_concatenation(*inputs_of(node))


def _with_records(node: tf.data.Dataset, size: int) -> list[tf.data.Dataset]:
    """Its inputs, without numbers that a zip() joins to records."""
    numbered = kind_of(node) == "Zip"
    return [source for source in inputs_of(node) if not (numbered and _is_a_number(source, size))]


def _parts(source: tf.data.Dataset, size: int) -> Iterator[tf.data.Dataset]:
    yield source
    for below in _with_records(source, size):
        yield from _parts(below, size)


def _check_order(part: tf.data.Dataset, in_any_order: bool) -> None:
    moved = kind_of(part) not in _IN_ORDER and not (kind_of(part) == "Repeat" and is_once(part))
    by = _NAMES.get(kind_of(part), f"the part called {kind_of(part)}")
    if kind_of(part) == "ParallelMap" and (in_any_order or getattr(part, "_deterministic", "") == "false"):
        moved, by = True, "map(deterministic=False)"
    if moved:
        raise ValueError(
            f"zip() joins several data sets of which one was moved by {by}, so that one record may meet another and enter twice "
            f"a pass. {_ZIP_FIRST}."
        )


def _is_a_number(source: tf.data.Dataset, size: int) -> bool:
    if not all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(source.element_spec)):
        return False
    for node in nodes_of(source):
        if kind_of(node) in ("Map", "ParallelMap"):
            if not is_a_number(node, size):
                return False
        elif kind_of(node) not in _OF_NUMBERS and not _is_part_of_a_counter(source, node):
            return False
    return True


def _is_part_of_a_counter(source: tf.data.Dataset, node: tf.data.Dataset) -> bool:
    """counter() is from_tensors(0).repeat().scan(...); enumerate() counts by a range without end that can't be looked into."""
    spec = node.element_spec
    if not (isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0 and spec.dtype.is_integer):
        return False
    if kind_of(node) == "Variant":
        return cardinality_of(node) == tf.data.INFINITE_CARDINALITY
    chains = [way for way in ways_of(source) if any(part is node for part in way)]
    return all(_ends_in_a_counter(way) for way in chains)


def _ends_in_a_counter(way: list[tf.data.Dataset]) -> bool:
    return [kind_of(part) for part in way[-3:]] == ["Scan", "Repeat", "Tensor"] and counts(way[-3])


def _check_concatenation(first: tf.data.Dataset, second: tf.data.Dataset) -> None:
    for one in ways_of(first):
        for other in ways_of(second):
            shared = {id(node) for node in one} & {id(node) for node in other}
            if shared:
                _check_shares([node for node in one if id(node) not in shared], one, shared)
                _check_shares([node for node in other if id(node) not in shared], other, shared)


def _check_shares(own: list[tf.data.Dataset], way: list[tf.data.Dataset], shared: set[int]) -> None:
    cure = "Concatenate disjoint parts of a data set that is not shuffled yet, such as ds.take(n) and ds.skip(n), or leave it out"
    if not any(kind_of(node) in _CHOOSING for node in own):
        raise ValueError(f"concatenate() joins a data set with itself: every record of it enters twice a pass. {cure}.")
    if any(kind_of(node) in ("Shuffle", "ShuffleAndRepeat") for node in way if id(node) in shared or node in own[1:]):
        raise ValueError(
            f"concatenate() joins parts of a data set that is shuffled anew for each of them: they may have records in common. {cure}."
        )
