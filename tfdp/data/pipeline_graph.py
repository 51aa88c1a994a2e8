"""What can be seen of a tf.data pipeline: its transformations, from the output back to the sources.

What could not be seen is said so in `Findings.unchecked`; nothing breaks.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from tfdp.data.pipeline_functions import check_functions
from tfdp.data.pipeline_joins import check_joins, numbers
from tfdp.data.pipeline_nodes import cardinality_of, is_once, kind_of, nodes_of, ways_of

BATCHING = {"Batch", "ParallelBatch", "PaddedBatch", "MapAndBatch"}
REPEATING = {"Repeat", "ShuffleAndRepeat"}
MAPPING = {"Map", "ParallelMap", "MapAndBatch"}
_TAKING_APART = {"Unbatch", "FlatMap", "Interleave", "ParallelInterleave"}
_HARMLESS = BATCHING | REPEATING
_HARMLESS |= {"Map", "ParallelMap", "Shuffle", "Take", "Skip", "Shard", "Zip", "Unbatch"}
_HARMLESS |= {"Prefetch", "Cache", "Options", "AssertCardinality", "Restructured"}
_HARMLESS |= {"Tensor", "TensorSlice", "SparseTensorSlice", "List", "Range"}
_HARMLESS |= {"TFRecord", "TextLine", "FixedLengthRecord"}

ONE_OUT_OF_ONE = (
    "Functions of the pipeline, as in map() or from_generator(), make one record out of one record, and read no other."
)
OWN_ELEMENT = (
    "One record is one element of the data set. What several elements are made of, such as a time step in many windows, is in "
    "several records"
)
_BY_CONTENT = "chooses records by their content, so that one record moves others"
_ORDER = "The order is: shuffle, batch, repeat"
_MIXING = "may stop early or bring a record twice: concatenate() the datasets and shuffle"
_FIXED = "use padded_batch() with fixed padded_shapes"
_REFUSED = {
    "Filter": f"filter() {_BY_CONTENT}: filter the data once, before counting it",
    "TakeWhile": f"take_while() {_BY_CONTENT}: cut the data once, before counting it",
    "Unique": f"unique() {_BY_CONTENT}: remove duplicates once, before counting",
    "GroupByWindow": f"group_by_window(), also as bucket_by_sequence_length(), {_BY_CONTENT}: {_FIXED}",
    "DirectedInterleave": f"sample_from_datasets(), choose_from_datasets(), ...: {_MIXING}",
    "Window": "window() may put a record into several windows: batch() the records themselves",
    "Random": "Dataset.random() gives numbers, not records, and may give one twice: for random numbers in a map(), zip the data "
    "set with tf.data.Dataset.counter() and make the seed of tf.random.stateless_uniform and the like of what it counts",
    "Scan": "scan() carries a state from record to record: use map()",
    "DenseToRagged": f"ragged batches pack records of different shapes: {_FIXED}",
}
_DECLARED = {
    "FlatMap": "What flat_map() or from_generator() brings",
    "Interleave": "What interleave() brings",
    "ParallelInterleave": "What interleave() brings",
    "Concatenate": "What concatenate() joins",
    "Snapshot": "What snapshot() brings",
    "Load": "What load() brings",
}


REASON_AGAINST_PRIVACY = (
    "_tfdp_reason_against_privacy"  # on a data set whose records depend on one another, as a sentence
)
ONE_RECORD_AT_A_TIME = "_tfdp_one_record_at_a_time"  # on a map() of tfdp's own, which is known to read no other record
_IN_ANY_ORDER = b"false"


@dataclasses.dataclass(frozen=True)
class Findings:
    """What was seen. Cardinalities are those of tf.data: -1 is endless, -2 unknown.

    Attributes:
        pass_batches: the number of batches in a pass over the records, as each way to a source shows it.
        record_counts: the numbers of records found going into batch().
        unchecked: what the user's word stands for, as sentences.
    """

    pass_batches: frozenset[int]
    record_counts: frozenset[int]
    unchecked: tuple[str, ...]


def inspect(dataset: tf.data.Dataset, size: int) -> Findings:
    """Follows every way from the output to a source. Raises where a record of so many may enter twice a pass."""
    counting = {id(source) for source in numbers(dataset, size)}  # hold no records
    ways = [
        (way, [kind_of(node) for node in way])
        for way in ways_of(dataset)
        if not any(id(node) in counting for node in way)
    ]
    for way, kinds in ways:
        _refuse(way, kinds)
    check_functions(dataset, size)
    unchecked = list(check_joins(dataset, size))
    if any(_maps(way) for way, _ in ways):
        unchecked.append(ONE_OUT_OF_ONE)
    for _, kinds in ways:
        unchecked += _doubts(kinds, dataset.element_spec)
    batched = [(way, kinds, place) for way, kinds in ways if (place := _first(kinds, BATCHING)) is not None]
    for way, kinds, batch in batched:
        _check_order(way, kinds, batch)
    if not batched:
        unchecked.append("Each element of the dataset is a batch of records (no batch() was found).")
        batched = [(way, kinds, len(kinds)) for way, kinds in ways]
    return Findings(
        frozenset(_pass_batches(way, kinds[:batch]) for way, kinds, batch in batched),
        frozenset(_record_count(way, kinds, batch) for way, kinds, batch in batched),
        tuple(dict.fromkeys(unchecked)),
    )


def transformations(dataset: tf.data.Dataset) -> frozenset[str]:
    """The kinds of all that can be seen, without a repeat() that brings everything once."""
    return frozenset(kind_of(node) for node in nodes_of(dataset) if not (kind_of(node) in REPEATING and is_once(node)))


def may_change_order(dataset: tf.data.Dataset) -> bool:
    """Whether a part of it was told deterministic=False.

    An interleave() keeps that in its graph alone, which holds the data too: where it is too large to write, nothing is seen.
    """
    nodes = nodes_of(dataset)
    if dataset.options().deterministic is False or any(
        getattr(node, "_deterministic", "") == "false" for node in nodes
    ):
        return True
    return any(_interleaves_in_any_order(node) for node in nodes if kind_of(node) == "ParallelInterleave")


def may_repeat_records(dataset: tf.data.Dataset) -> bool:
    """Whether one source is joined to itself by concatenate(), or zipped with itself at another place.

    Two sources of the same records can't be seen to be that.
    """
    places: dict[int, set] = {}
    for way in ways_of(dataset):
        kinds = [kind_of(node) for node in way]
        joined = "Concatenate" in kinds
        if joined and id(way[-1]) in places:
            return True
        skipped = sum(_skipped(node) for node, kind in zip(way, kinds, strict=True) if kind == "Skip")
        places.setdefault(id(way[-1]), set()).add(-1 if joined else skipped)
    return any(len(found) > 1 for found in places.values())


def _skipped(skip: tf.data.Dataset) -> int:
    try:
        return int(tf.get_static_value(skip._count))
    except (AttributeError, TypeError):
        return id(skip)


def _interleaves_in_any_order(interleave: tf.data.Dataset) -> bool:
    try:
        written = tf.raw_ops.DatasetToGraphV2(input_dataset=interleave._variant_tensor, external_state_policy=1)
        graph = tf.compat.v1.GraphDef.FromString(written.numpy())
    except (tf.errors.OpError, AttributeError, ValueError, DecodeError):
        return False
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return any(node.attr["deterministic"].s == _IN_ANY_ORDER for node in nodes if "deterministic" in node.attr)


def ends_in_batches(dataset: tf.data.Dataset) -> bool:
    """Whether a batch() can be seen that nothing takes apart again."""
    last = {
        next((kind for kind in map(kind_of, way) if kind in BATCHING | _TAKING_APART), None) for way in ways_of(dataset)
    }
    return bool(last & BATCHING) and not last & _TAKING_APART


def _first(kinds: list[str], wanted: set[str]) -> int | None:
    return next((place for place, kind in enumerate(kinds) if kind in wanted), None)


def _pass_batches(way: list[tf.data.Dataset], above: list[str]) -> int:
    """The length of what the innermost repeat() repeats, or of the whole where nothing repeats."""
    repeats = [place for place, kind in enumerate(above) if kind in REPEATING]
    return cardinality_of(way[repeats[-1] + 1] if repeats and repeats[-1] + 1 < len(way) else way[0])


def _record_count(way: list[tf.data.Dataset], kinds: list[str], batch: int) -> int:
    hidden = batch + 1 >= len(way) or "Concatenate" in kinds[:batch]
    return tf.data.UNKNOWN_CARDINALITY if hidden else cardinality_of(way[batch + 1])


def _refuse(way: list[tf.data.Dataset], kinds: list[str]) -> None:
    for node in way:
        if hasattr(node, REASON_AGAINST_PRIVACY):
            raise ValueError(f"{getattr(node, REASON_AGAINST_PRIVACY)}.")
    for kind in kinds:
        if kind in _REFUSED:
            raise ValueError(f"A declared dataset must bring each record at most once a pass. {_REFUSED[kind]}.")


def _check_order(way: list[tf.data.Dataset], kinds: list[str], batch: int) -> None:
    above, below = kinds[:batch], kinds[batch + 1 :]
    if any(kind in REPEATING and not is_once(node) for kind, node in zip(below, way[batch + 1 :], strict=True)):
        raise ValueError(f"repeat() before batch() lets one batch hold a record twice. {_ORDER}.")
    if _TAKING_APART & set(above):
        raise ValueError(f"unbatch(), flat_map() or interleave() takes the batches of batch() apart. {_ORDER}.")
    again = _first(below, BATCHING)
    if again is not None and "Unbatch" not in below[:again]:
        raise ValueError("batch() is applied twice: the elements are batches of batches. Keep one batch().")
    repeats = [place for place, kind in enumerate(above) if kind in REPEATING]
    if repeats and "Shuffle" in above[: repeats[-1]]:
        raise ValueError(f"shuffle() after repeat() mixes passes. {_ORDER}.")


def _maps(way: list[tf.data.Dataset]) -> bool:
    """Whether there is a map() of the user's own: not of tfdp, nor what unbatch() makes of elements before it takes them apart."""
    return any(
        kind_of(node) in MAPPING and kind_of(above) != "Restructured" and not hasattr(node, ONE_RECORD_AT_A_TIME)
        for above, node in zip([None, *way], way, strict=False)
    )


def _doubts(kinds: list[str], element_spec: Any) -> Iterator[str]:
    above = kinds[: _first(kinds, BATCHING)]
    if {"Map", "ParallelMap"} & set(above):
        yield "map() after batch() treats every record of a batch by itself."
    lengths = [size for spec in tf.nest.flatten(element_spec) for size in spec.shape[1:]]
    if "PaddedBatch" in kinds and None in lengths:
        yield "A record's gradient does not change with its padding, which its longest neighbour decides."
    for kind in kinds:
        if kind in _DECLARED:
            yield f"{_DECLARED[kind]} holds every record at most once a pass."
        elif kind not in _HARMLESS:
            yield f"The part of the pipeline called {kind} brings every record at most once a pass."
