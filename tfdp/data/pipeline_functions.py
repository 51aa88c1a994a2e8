"""What can be seen of the functions that a pipeline calls: whether one of them reads records other than its own.

A row of a table at a random place is another record than the element's own, and some record several times a pass. What a
function reads at a place that depends on the element alone is not judged: `range(n).map(lambda i: x[i])` is an ordinary pipeline.
"""

from collections.abc import Sequence

import tensorflow as tf

from tfdp.data.function_marks import (
    ELEMENT,
    OF_PYTHON,
    OUTSIDE,
    OWN,
    RANDOM_OPERATION,
    READING,
    TABLE,
    Marks,
    Seen,
    marks_of_constant,
    marks_of_inputs,
    writes_any,
)
from tfdp.data.pipeline_nodes import cardinality_of, function_graph, inputs_of, is_constant, kind_of, nodes_of

_MAPS = {"Map", "ParallelMap", "MapAndBatch"}
_CURE = "Make each record of its own content alone; for random numbers use tf.random.stateless_uniform and the like"
_READS_AT_RANDOM = (
    "A map() reads a tensor that is the same for all records (captured, or a constant) at a random place, so that a record may enter "
    f"several times a pass. {_CURE}"
)
_READS_A_DATASET = (
    "A map() reads another data set, or a queue, so that a record may enter several times a pass. Join what belongs to one record "
    "with zip(), before shuffle()"
)
_CARRIES_ON = (
    "A map() writes what it makes of a record into a variable, where it may enter what becomes of other records. Make each record "
    "of its own content alone; what needs all of them (means, vocabularies) is computed beforehand"
)
_SAME_AGAIN = (
    "{name}() brings the same data set for each of its elements, so that every record enters several times a pass. Let the "
    "function make its data set of its argument, such as the name of a file"
)
_INSIDE = "The data sets that {name}() brings are made with {what}, which may bring a record twice. Leave it out there"
_MORE_THAN_ONCE = {
    "RepeatDataset": "repeat()",
    "ShuffleAndRepeatDataset": "repeat()",
    "ConcatenateDataset": "concatenate()",
    "WindowDataset": "window()",
    "SlidingWindowDataset": "window()",
    "ScanDataset": "scan()",
    "FilterDataset": "filter()",
    "TakeWhileDataset": "take_while()",
    "UniqueDataset": "unique()",
    "GroupByWindowDataset": "group_by_window()",
    "GroupByReducerDataset": "group_by_reducer()",
    "DirectedInterleaveDataset": "sample_from_datasets() or choose_from_datasets()",
    "RandomDataset": "random()",
}
_MOVING = {"ShuffleDataset", "SkipDataset", "TakeDataset", "ShardDataset"}


def check_functions(pipeline: tf.data.Dataset, size: int) -> None:
    """Raises ValueError where the function of a map(), flat_map() or interleave() shows that it reads other records."""
    functions = [(node, graph) for node in nodes_of(pipeline) if (graph := function_graph(node)) is not None]
    writes = any(writes_any(graph) for _, graph in functions)
    for node, graph in functions:
        _check_function(node, graph, size, writes)


def _check_function(dataset: tf.data.Dataset, graph: tf.Graph, size: int, writes: bool) -> None:
    seen = Seen(size, writes)
    brought = seen.outputs_of(graph, marks_of_inputs(graph, size, _marks_below(dataset, size, writes)))
    if seen.carries_on:
        raise ValueError(f"{_CARRIES_ON}.")
    if seen.reads_at_random:
        raise ValueError(f"{_READS_AT_RANDOM}.")
    if seen.reads_a_dataset:
        raise ValueError(f"{_READS_A_DATASET}.")
    names = {"FlatMap": "flat_map", "Interleave": "interleave", "ParallelInterleave": "interleave"}
    if kind_of(dataset) in names:
        _check_brought(dataset, names[kind_of(dataset)], brought, seen.kinds)


def _check_brought(dataset: tf.data.Dataset, name: str, brought: Sequence[Marks], kinds: set[str]) -> None:
    one = cardinality_of(dataset._input_dataset) == 1  # from_generator() is a flat_map() of one element
    if not one and not any(ELEMENT in marks for marks in brought):
        raise ValueError(f"{_SAME_AGAIN.format(name=name)}.")
    repeating = [what for operation, what in _MORE_THAN_ONCE.items() if operation in kinds]
    if repeating:
        raise ValueError(f"{_INSIDE.format(name=name, what=repeating[0])}.")
    if "ZipDataset" in kinds and kinds & _MOVING:
        raise ValueError(f"{_INSIDE.format(name=name, what='zip() and shuffle(), skip(), take() or shard()')}.")


def is_a_number(dataset: tf.data.Dataset, size: int) -> bool:
    """Whether the function of this map() makes numbers of numbers, and holds no records that it could bring in."""
    graph = function_graph(dataset)
    if graph is None:
        return False
    seen = Seen(size)
    seen.outputs_of(graph, marks_of_inputs(graph, size))
    return not seen.has_tables and not seen.kinds & (OF_PYTHON | READING)


def draws(dataset: tf.data.Dataset) -> bool:
    """Whether the function of this map() may give something else the next time."""
    seen = _seen_in(dataset)
    return seen is None or bool(seen.kinds & OF_PYTHON) or any(RANDOM_OPERATION.search(kind) for kind in seen.kinds)


def draws_from_a_seed(dataset: tf.data.Dataset) -> bool:
    """Whether the function of this map() draws random numbers that whoever knows a seed can tell."""
    seen = _seen_in(dataset)
    return seen is not None and seen.seeded


def _seen_in(dataset: tf.data.Dataset) -> Seen | None:
    graph = function_graph(dataset)
    if graph is None:
        return None
    seen = Seen(0)
    seen.outputs_of(graph, marks_of_inputs(graph, 0))
    return seen


def counts(scan: tf.data.Dataset) -> bool:
    """Whether this scan() is that of Dataset.counter()."""
    graph = function_graph(scan)
    allowed = {"Placeholder", "Const", "AddV2", "Identity", "NoOp"}
    return graph is not None and {operation.type for operation in graph.get_operations()} <= allowed


def _marks_below(dataset: tf.data.Dataset, size: int, writes: bool) -> list[Marks]:
    """Of each tensor in the elements that a transformation is given."""
    below = [_marks_of_elements(source, size, writes) for source in inputs_of(dataset)]
    if kind_of(dataset) == "Zip":
        return [marks for part in below for marks in part]
    return [frozenset().union(*several) for several in zip(*below, strict=False)]


def _marks_of_elements(dataset: tf.data.Dataset, size: int, writes: bool) -> list[Marks]:
    """Of each tensor in its elements: what zip() joins to the records, and what map() puts beside them, may be a table."""
    leaves = tf.nest.flatten(dataset.element_spec)
    if is_constant(dataset):
        return [marks_of_constant(leaf.shape, size) if isinstance(leaf, tf.TensorSpec) else OWN for leaf in leaves]
    found, graph = _marks_below(dataset, size, writes), function_graph(dataset)
    is_map = graph is not None and kind_of(dataset) in _MAPS
    if is_map:
        found = Seen(size, writes).outputs_of(graph, marks_of_inputs(graph, size, found))
        found = [marks if TABLE in marks else (marks - {OUTSIDE}) | OWN for marks in found]
    if (is_map or graph is None) and len(found) == len(leaves):
        return found
    return [OWN.union(*found)] * len(leaves)  # which tensor has become which is not known
