"""What can be seen of the functions that a pipeline calls: whether one of them reads records other than its own.

A function is a graph. Each of its tensors is marked with what it depends on:

- element: what the pipeline gave the function;
- table: numbers that were there before, and may be records: a captured tensor or variable, or a constant. Arithmetic
  with the element takes the mark away (an image less a captured mean is no table), joining and moving do not;
- outside: as table, but nothing takes the mark away;
- random: a random operation, Python's code, or a variable, if a function of the pipeline writes any.

A row of a table at a random place is another record than the element's own, and some record several times a pass. What a
function reads at a place that depends on the element alone is not judged: `range(n).map(lambda i: x[i])` is an ordinary pipeline.
"""

import re
from collections.abc import Sequence

import tensorflow as tf

from tfdp.data.pipeline_nodes import cardinality_of, function_graph, inputs_of, is_constant, kind_of, nodes_of

Marks = frozenset[str]
ELEMENT, TABLE, OUTSIDE, RANDOM = "element", "table", "outside", "random"
_NOTHING: Marks = frozenset()
_OWN: Marks = frozenset({ELEMENT})
_MAPS = {"Map", "ParallelMap", "MapAndBatch"}
_FEW = 32  # a list of so many numbers is one to choose from: angles, sizes, names

_RANDOM = re.compile(
    r"Random|Shuffle$|Multinomial|TruncatedNormal|^Rng|^Stateful(Uniform|StandardNormal)|SampleDistorted|Timestamp"
)
# Operations that pick rows of their first input at the places that the others say.
_PICKING = {"Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd", "Slice", "StridedSlice", "Roll"}
_PICKING |= {"TensorListGetItem"}
_SHUFFLING = {"RandomShuffle", "StatelessShuffle"}
_LOOKING_UP = {"LookupTableFind", "LookupTableFindV2"}
_JOINING = {"ConcatV2", "Pack", "TensorListSetItem", "TensorListPushBack"}
_READING = {"IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional", "ReduceDataset"}
_READING |= {"DatasetToSingleElement", "ExperimentalDatasetToSingleElement"}
_READING |= {"QueueDequeue", "QueueDequeueV2", "StackPop", "StackPopV2"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_CONDITIONS = {"If", "StatelessIf", "Case", "StatelessCase"}
_LOOPS = {"While", "StatelessWhile"}
_OF_VARIABLES = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}
# Operations that keep what they are given for the next call. Not tables: KerasHub's tokenizers keep in one what words become.
_WRITING = re.compile(
    r"Assign|Resource(?!Gather)|StackPush|QueueEnqueue|Barrier|(OrderedMap|Map)?Stage$|(Sparse)?Accumulator"
)
_OF_PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}

_CURE = "Make each record of its own content alone; for random numbers use tf.random.stateless_uniform and the like"
_READS_AT_RANDOM = (
    "A map() reads a tensor that is the same for all records (captured, or a constant) at a random place, so that a record may enter "
    f"several times a pass. {_CURE}"
)
_READS_A_DATASET = (
    "A map() reads another data set, so that a record may enter several times a pass. Join what belongs to one record "
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
    writes = any(_writes(graph) for _, graph in functions)
    for node, graph in functions:
        _check_function(node, graph, size, writes)


def _check_function(dataset: tf.data.Dataset, graph: tf.Graph, size: int, writes: bool) -> None:
    seen = _Seen(size, writes)
    brought = seen.outputs_of(graph, _marks_of_inputs(graph, size, _marks_below(dataset, size, writes)))
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
    seen = _Seen(size)
    seen.outputs_of(graph, _marks_of_inputs(graph, size))
    return not seen.has_tables and not seen.kinds & (_OF_PYTHON | _READING)


def draws(dataset: tf.data.Dataset) -> bool:
    """Whether the function of this map() may give something else the next time."""
    seen = _seen_in(dataset)
    return seen is None or bool(seen.kinds & _OF_PYTHON) or any(_RANDOM.search(kind) for kind in seen.kinds)


def draws_from_a_seed(dataset: tf.data.Dataset) -> bool:
    """Whether the function of this map() draws random numbers that whoever knows a seed can tell."""
    seen = _seen_in(dataset)
    return seen is not None and seen.seeded


def _seen_in(dataset: tf.data.Dataset) -> "_Seen | None":
    graph = function_graph(dataset)
    if graph is None:
        return None
    seen = _Seen(0)
    seen.outputs_of(graph, _marks_of_inputs(graph, 0))
    return seen


def counts(scan: tf.data.Dataset) -> bool:
    """Whether this scan() is that of Dataset.counter()."""
    graph = function_graph(scan)
    allowed = {"Placeholder", "Const", "AddV2", "Identity", "NoOp"}
    return graph is not None and {operation.type for operation in graph.get_operations()} <= allowed


class _Seen:
    """What was seen in a function and in those that it calls."""

    def __init__(self, size: int, writes: bool = False):
        self._size, self._writes = size, writes
        self.kinds: set[str] = set()
        self.reads_at_random = self.reads_a_dataset = self.has_tables = self.carries_on = self.seeded = False

    def outputs_of(self, graph: tf.Graph, given: Sequence[Marks]) -> list[Marks]:
        """The marks of a graph's outputs, with these of its inputs."""
        marks = {id(tensor): own for tensor, own in zip(graph.inputs, given, strict=False)}
        self.has_tables |= any(OUTSIDE in own for own in given)
        for operation in graph.get_operations():
            if operation.type == "Placeholder":
                continue
            own = [marks.get(id(tensor), _NOTHING) for tensor in operation.inputs]
            found = self._marks_after(graph, operation, own)
            for tensor, marked in zip(operation.outputs, found, strict=True):
                marks[id(tensor)] = marked
        return [marks.get(id(tensor), _NOTHING) for tensor in graph.outputs]

    def _marks_after(self, graph: tf.Graph, operation: tf.Operation, own: list[Marks]) -> list[Marks]:
        self.kinds.add(_without_version(operation))
        self.seeded |= bool(_RANDOM.search(operation.type)) and not _is_unseeded(operation)
        if operation.type == "Const":
            found = self._of_constant(operation)
        elif operation.type in _CALLS | _CONDITIONS | _LOOPS and (inner := _inner(graph, operation)):
            return self._of_calls(operation, inner, own)
        else:
            self._of_dataset(graph, operation, own)
            self._look_at(operation, own)
            found = _after(operation, own)
            if self._writes and operation.type in _OF_VARIABLES:  # it may count on from element to element
                found |= {RANDOM}
        return [found] * len(operation.outputs)

    def _of_constant(self, operation: tf.Operation) -> Marks:
        found = _table(operation.outputs[0].shape, self._size)
        self.has_tables |= bool(found)
        return found

    def _of_calls(self, operation: tf.Operation, inner: list[tf.Graph], own: list[Marks]) -> list[Marks]:
        if operation.type in _LOOPS:  # what comes out goes in again
            return self._of_loop(inner, own)
        asked = _NOTHING
        if operation.type in _CONDITIONS:
            asked, own = own[0] & {ELEMENT, RANDOM}, own[1:]
            self.carries_on |= ELEMENT in asked and any(map(_writes, inner))
        found = [self.outputs_of(graph, own) for graph in inner]
        if any(len(outputs) != len(operation.outputs) for outputs in found):
            return [frozenset().union(asked, *own)] * len(operation.outputs)
        return [frozenset().union(asked, *several) for several in zip(*found, strict=True)]

    def _of_loop(self, inner: list[tf.Graph], own: list[Marks]) -> list[Marks]:
        joined = own
        for graph in inner:
            found = self.outputs_of(graph, own)
            if len(found) == len(own):  # the condition brings one truth value
                joined = [before | after for before, after in zip(joined, found, strict=True)]
        return own if joined == own else self._of_loop(inner, joined)

    def _of_dataset(self, graph: tf.Graph, operation: tf.Operation, own: list[Marks]) -> None:
        """Functions of data sets that are made inside: they are given elements, and what they captured."""
        for inside in _inner(graph, operation):
            if "Dataset" not in operation.type:
                self.outputs_of(inside, own)
                continue
            captured = own[1 : 1 + len(operation.get_attr("Targuments"))] if _has(operation, "Targuments") else []
            elements = len(inside.inputs) - len(captured)
            self.outputs_of(inside, [frozenset({ELEMENT})] * elements + captured)

    def _look_at(self, operation: tf.Operation, own: list[Marks]) -> None:
        if operation.type in _READING and own and (OUTSIDE in own[0] or ELEMENT not in own[0]):
            self.reads_a_dataset = True
        places = frozenset().union(*own[1:])
        at_random = operation.type in _PICKING and RANDOM in places
        at_random |= operation.type in _LOOKING_UP and RANDOM in places and ELEMENT not in places
        if own and TABLE in own[0] and (at_random or operation.type in _SHUFFLING):
            self.reads_at_random = True
        self.carries_on |= bool(_WRITING.match(operation.type)) and any(ELEMENT in marks for marks in own)


def _after(operation: tf.Operation, own: list[Marks]) -> Marks:
    if _RANDOM.search(operation.type):
        return frozenset({RANDOM}).union(*own) - {TABLE}
    found: Marks = frozenset().union(*own)
    if operation.type in _OF_PYTHON and ELEMENT not in found:  # what Python returns each time is not known
        return found | {RANDOM}
    if operation.type in _PICKING:  # a picked row is a table only if the rows were, and the places are fixed
        return found if TABLE in own[0] and ELEMENT not in found else found - {TABLE}
    return found - {TABLE} if ELEMENT in found and operation.type not in _JOINING else found


def _marks_of_inputs(graph: tf.Graph, size: int, elements: Sequence[Marks] = ()) -> list[Marks]:
    """Of what the pipeline gives the function, and of what it captured."""
    captured = {id(inside): _of_captured(outside, size) for outside, inside in graph.captures}
    marks = [captured.get(id(tensor), _OWN) for tensor in graph.inputs]
    return [*elements, *marks[len(elements) :]]


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
        return [_table(leaf.shape, size) if isinstance(leaf, tf.TensorSpec) else _OWN for leaf in leaves]
    found, graph = _marks_below(dataset, size, writes), function_graph(dataset)
    if graph is not None and kind_of(dataset) in _MAPS:
        found = _Seen(size, writes).outputs_of(graph, _marks_of_inputs(graph, size, found))
        found = [marks if TABLE in marks else (marks - {OUTSIDE}) | _OWN for marks in found]
    elif graph is not None or len(found) != len(leaves):  # which of them has become which is not known
        found = [_OWN.union(*found)] * len(leaves)
    return found if len(found) == len(leaves) else [_OWN.union(*found)] * len(leaves)


def _writes(graph: tf.Graph) -> bool:
    """Whether it keeps something for the next call, or a function that it calls does."""
    operations = graph.get_operations()
    return any(_WRITING.match(one.type) for one in operations) or any(
        _writes(inner) for one in operations for inner in _inner(graph, one)
    )


def _of_captured(tensor: tf.Tensor, size: int) -> Marks:
    if tensor.dtype in (tf.resource, tf.variant):  # a variable, a table to look up, another data set
        return frozenset({TABLE, OUTSIDE})
    return _table(tensor.shape, size)


def _table(shape: tf.TensorShape, size: int) -> Marks:
    if shape.rank == 0:
        return _NOTHING
    few = shape.rank == 1 and shape[0] is not None and shape[0] <= _FEW and shape[0] < size
    return _NOTHING if few else frozenset({TABLE, OUTSIDE})


def _inner(graph: tf.Graph, operation: tf.Operation) -> list[tf.Graph]:
    """The graphs of the functions that an operation calls, as far as they can be seen."""
    names = []
    for value in operation.node_def.attr.values():
        names += [value.func.name] if value.HasField("func") else [one.name for one in value.list.func]
    found = []
    for name in names:
        try:
            inner = graph._get_function(name).graph
        except (AttributeError, TypeError, ValueError):
            continue
        if inner is not None:
            found.append(inner)
    return found


def _is_unseeded(operation: tf.Operation) -> bool:
    """Whether it takes its seed from the operating system."""
    return _has(operation, "seed2") and operation.get_attr("seed") == operation.get_attr("seed2") == 0


def _has(operation: tf.Operation, attribute: str) -> bool:
    return attribute in operation.node_def.attr


def _without_version(operation: tf.Operation) -> str:
    """A repeat() that brings everything once is none."""
    kind = re.sub(r"(Dataset)V\d$", r"\1", operation.type)
    if kind == "RepeatDataset" and tf.get_static_value(operation.inputs[1]) == 1:
        return "NoOp"
    return kind
