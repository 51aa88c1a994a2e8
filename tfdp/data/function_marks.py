"""What each tensor of a function that a pipeline calls depends on.

A function is a graph. Each of its tensors is marked with what it depends on:

- element: what the pipeline gave the function;
- table: numbers that were there before, and may be records: a captured tensor or variable, or a constant. Arithmetic
  with the element takes the mark away (an image less a captured mean is no table), joining and moving do not;
- outside: as table, but nothing takes the mark away;
- random: a random operation, Python's code, or a variable, if a function of the pipeline writes any.
"""

import re
from collections.abc import Sequence

import tensorflow as tf

Marks = frozenset[str]
ELEMENT, TABLE, OUTSIDE, RANDOM = "element", "table", "outside", "random"
_NOTHING: Marks = frozenset()
OWN: Marks = frozenset({ELEMENT})
_FEW = 32  # a list of so many numbers is one to choose from: angles, sizes, names

RANDOM_OPERATION = re.compile(
    r"Random|Shuffle$|Multinomial|TruncatedNormal|^Rng|^Stateful(Uniform|StandardNormal)|SampleDistorted|Timestamp"
)
# Operations that pick rows of their first input at the places that the others say.
_PICKING = {"Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd", "Slice", "StridedSlice", "Roll"}
_PICKING |= {"TensorListGetItem"}
_SHUFFLING = {"RandomShuffle", "StatelessShuffle"}
_LOOKING_UP = {"LookupTableFind", "LookupTableFindV2"}
_JOINING = {"ConcatV2", "Pack", "TensorListSetItem", "TensorListPushBack"}
READING = {"IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional", "ReduceDataset"}
READING |= {"DatasetToSingleElement", "ExperimentalDatasetToSingleElement"}
READING |= {"QueueDequeue", "QueueDequeueV2", "StackPop", "StackPopV2"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_CONDITIONS = {"If", "StatelessIf", "Case", "StatelessCase"}
_LOOPS = {"While", "StatelessWhile"}
_OF_VARIABLES = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}
# Operations that keep what they are given for the next call. Not tables: KerasHub's tokenizers keep in one what words become.
_WRITING = re.compile(
    r"Assign|Resource(?!Gather)|StackPush|QueueEnqueue|Barrier|(OrderedMap|Map)?Stage$|(Sparse)?Accumulator"
)
OF_PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}


class Seen:
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
        self.seeded |= bool(RANDOM_OPERATION.search(operation.type)) and not _is_unseeded(operation)
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
        found = marks_of_constant(operation.outputs[0].shape, self._size)
        self.has_tables |= bool(found)
        return found

    def _of_calls(self, operation: tf.Operation, inner: list[tf.Graph], own: list[Marks]) -> list[Marks]:
        if operation.type in _LOOPS:  # what comes out goes in again
            return self._of_loop(inner, own)
        asked = _NOTHING
        if operation.type in _CONDITIONS:
            asked, own = own[0] & {ELEMENT, RANDOM}, own[1:]
            self.carries_on |= ELEMENT in asked and any(map(writes_any, inner))
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
        if operation.type in READING and own and (OUTSIDE in own[0] or ELEMENT not in own[0]):
            self.reads_a_dataset = True
        places = frozenset().union(*own[1:])
        at_random = operation.type in _PICKING and RANDOM in places
        at_random |= operation.type in _LOOKING_UP and RANDOM in places and ELEMENT not in places
        if own and TABLE in own[0] and (at_random or operation.type in _SHUFFLING):
            self.reads_at_random = True
        self.carries_on |= bool(_WRITING.match(operation.type)) and any(ELEMENT in marks for marks in own)


def _after(operation: tf.Operation, own: list[Marks]) -> Marks:
    if RANDOM_OPERATION.search(operation.type):
        return frozenset({RANDOM}).union(*own) - {TABLE}
    found: Marks = frozenset().union(*own)
    if operation.type in OF_PYTHON and ELEMENT not in found:  # what Python returns each time is not known
        return found | {RANDOM}
    if operation.type in _PICKING:  # a picked row is a table only if the rows were, and the places are fixed
        return found if TABLE in own[0] and ELEMENT not in found else found - {TABLE}
    return found - {TABLE} if ELEMENT in found and operation.type not in _JOINING else found


def marks_of_inputs(graph: tf.Graph, size: int, elements: Sequence[Marks] = ()) -> list[Marks]:
    """Of what the pipeline gives the function, and of what it captured."""
    captured = {id(inside): _of_captured(outside, size) for outside, inside in graph.captures}
    marks = [captured.get(id(tensor), OWN) for tensor in graph.inputs]
    return [*elements, *marks[len(elements) :]]


def writes_any(graph: tf.Graph) -> bool:
    """Whether it keeps something for the next call, or a function that it calls does."""
    operations = graph.get_operations()
    return any(_WRITING.match(one.type) for one in operations) or any(
        writes_any(inner) for one in operations for inner in _inner(graph, one)
    )


def _of_captured(tensor: tf.Tensor, size: int) -> Marks:
    if tensor.dtype in (tf.resource, tf.variant):  # a variable, a table to look up, another data set
        return frozenset({TABLE, OUTSIDE})
    return marks_of_constant(tensor.shape, size)


def marks_of_constant(shape: tf.TensorShape, size: int) -> Marks:
    """A number, or a short list of them, is no table."""
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
