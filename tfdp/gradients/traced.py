"""What a traced graph does, nested functions included: the variables it reads and assigns, and where its random numbers come from.

What a model's code does in Python, at the time of tracing, can be watched only in part. What it left in the graph is all that
a step will ever do, so it is read here: every operation, every function that one calls, every branch and loop.
"""

import dataclasses
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

SECRET = 1  # made of the secret seed
KEPT = 2  # made of a value that is kept from lot to lot
KNOWN = 4  # made of random numbers whose seed is not secret
_SPREADING = KEPT | KNOWN  # what has them in part has them

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BRANCHES = {"If": "then_branch else_branch", "StatelessIf": "then_branch else_branch"}
_SWITCHES = ("Case", "StatelessCase")
_LOOPS = ("While", "StatelessWhile")
_ASSIGNS = re.compile(
    r"Assign.*VariableOp|ResourceScatter.*|ResourceStridedSliceAssign|Resource(Sparse)?(Apply|Accumulator).*|"
    r"LookupTable(Insert|Import|Remove).*|Rng(ReadAnd)?Skip|NonDeterministicInts|Stateful(Uniform|Standard|Truncated|Random).*"
)
_READS = re.compile(r"ReadVariableOp|ResourceGather(Nd)?|LookupTable(Find|Size|Export)(V\d)?")
_DRAWS = re.compile(r"Stateless(Random|TruncatedNormal|Parameterized|Multinomial|Shuffle|Sample).*|RandomIndexShuffle")
_SEEDS = re.compile(r"StatelessRandomGet.*")
_SEED_INPUTS = ("seed", "seed2", "key", "counter")
# What leaves of a secret seed as many bits as there were, or makes seeds of seeds.
_KEEPS_SECRETS = re.compile(
    r"Identity(N)?|StopGradient|Cast|Bitcast|FloorMod|Add(V2)?|Sub|BitwiseXor|RightShift|Pack|Unpack|ConcatV2|Split(V)?|StridedSlice|Slice|"
    r"Gather(V2)?|Reshape|Squeeze|ExpandDims|Tile|BroadcastTo|Transpose|TensorList.*|StatelessRandom(GetKeyCounter|UniformFullInt(V2)?)"
)
_LEAST_MODULUS = 2**30
_HANDED_ON = ("Identity", "Cast", "Bitcast", "FloorMod", "StatelessRandomGetKeyCounter")
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_HARMLESS = re.compile(
    r"Assert|CheckNumerics(V2)?|VarIsInitializedOp|VariableShape|TensorArray.*|CudnnRNN.*|Placeholder.*|_Arg|_Retval|Empty|DeviceIndex|"
    r"(Anonymous)?(Mutable)?(Dense)?HashTable.*|StatelessRandomGet.*"
)
_MANY = 256  # rounds of a loop: each changes a label of a tensor for good, or is the last


class Place(NamedTuple):
    """An operation, for messages."""

    kind: str
    name: str


@dataclasses.dataclass
class Draw:
    """A random operation, and the tensor that its seed is."""

    place: Place
    secret: bool
    seed: object
    what: tuple  # kind, type and shape


@dataclasses.dataclass
class Findings:
    """Of a graph and all that it calls. Variables are known by the ``id`` of their handle; None where it can't be told."""

    reads: set[int] = dataclasses.field(default_factory=set)
    assigned: list[tuple[int | None, Place]] = dataclasses.field(default_factory=list)
    draws: list[Draw] = dataclasses.field(default_factory=list)
    refused: list[Place] = dataclasses.field(default_factory=list)  # stateful, and on no list
    labels: list[int] = dataclasses.field(default_factory=list)  # of the tensors that were asked about


class _Value(NamedTuple):
    """What is known of a tensor: its labels, the variable it is a handle of, and the seed that it is."""

    labels: int = 0
    handle: int | None = None
    seed: object = None


_NOTHING = _Value()


def findings(
    graph: tf.Graph,
    operations: Sequence[tf.Operation],
    secrets: Iterable[tf.Tensor] = (),
    kept: frozenset[int] = frozenset(),
    asked: Iterable[tf.Tensor] = (),
) -> Findings:
    """What these operations of the graph do.

    Args:
        graph: a function's graph, or that of a branch or loop that is being traced.
        operations: some of its operations, in their order.
        secrets: the tensors that are secret seeds.
        kept: the handles of variables whose values must not reach the tensors ``asked`` about.
    """
    reader = _Reader(kept)
    values = {inside.ref(): _Value(handle=_handle(outside)) for outside, inside in getattr(graph, "captures", ())}
    values |= {tensor.ref(): _Value(SECRET, seed=tensor.ref()) for tensor in secrets}
    reader.read(operations, values)
    reader.found.labels = [values.get(tensor.ref(), _NOTHING).labels for tensor in asked]
    return reader.found


def outside_of(tensor: tf.Tensor) -> tf.Tensor:
    """What a tensor is that branches, loops or functions captured: the one in the outermost graph that has it."""
    while hasattr(getattr(tensor, "graph", None), "captures"):
        captured = next((outer for outer, inner in tensor.graph.captures if inner is tensor), None)
        if captured is None:
            return tensor
        tensor = captured
    return tensor


def _handle(tensor: tf.Tensor) -> int | None:
    return id(outside_of(tensor)) if tensor.dtype == tf.resource else None


class _Reader:
    """Goes through a graph in the order of its operations, and into what they call."""

    def __init__(self, kept: frozenset[int]):
        self.found, self._kept = Findings(), kept
        self._within: list[str] = []  # the operations whose functions are being read, outermost first
        self._known: dict[tuple, list[_Value]] = {}

    def read(self, operations: Sequence[tf.Operation], values: dict) -> None:
        for operation in operations:
            given = [values.get(tensor.ref(), _NOTHING) for tensor in operation.inputs]
            if operation.type == "Placeholder" and operation.outputs and operation.outputs[0].ref() in values:
                continue
            made = self._made_by(operation, given)
            for tensor, value in zip(operation.outputs, made, strict=True):
                values[tensor.ref()] = value

    def _made_by(self, operation: tf.Operation, given: list[_Value]) -> list[_Value]:
        kind = operation.type
        if kind in _CALLS:
            return self._called(operation, "f", given)
        if kind in _BRANCHES or kind in _SWITCHES:
            return self._branched(operation, given)
        if kind in _LOOPS:
            return self._looped(operation, given)
        if operation.graph._is_function(kind):  # an operation that is called as its function is
            return self._function(operation, kind, given)
        self._note(operation, given)
        return self._labelled(operation, given)

    def _labelled(self, operation: tf.Operation, given: list[_Value]) -> list[_Value]:
        labels = 0
        for value in given:
            labels |= value.labels
        if _READS.fullmatch(operation.type) and given[0].handle in self._kept:
            labels |= KEPT
        if self._is_draw(operation) and not self._seed_of(operation, given)[0]:
            labels |= KNOWN
        handles = [value.handle for value in given if value.handle is not None]
        seeds = [value.seed for value in given if value.seed is not None]
        made = []
        keeps = _keeps_secrets(operation)
        for tensor in operation.outputs:
            own = labels
            wide = tensor.dtype.is_integer and tensor.dtype.size >= 4
            if not (keeps and (wide or tensor.dtype == tf.variant)):
                own &= ~SECRET
            handle = handles[0] if tensor.dtype == tf.resource and len(handles) == 1 else None
            handed_on = len(seeds) == 1 and operation.type in _HANDED_ON
            made.append(_Value(own, handle, (seeds[0] if handed_on else tensor.ref()) if own & SECRET else None))
        return made

    def _note(self, operation: tf.Operation, given: list[_Value]) -> None:
        kind, place = operation.type, Place(operation.type, "/".join([*self._within, operation.name]))
        if _READS.fullmatch(kind):
            self.found.reads.add(given[0].handle)
        elif _ASSIGNS.fullmatch(kind):
            self.found.assigned.append((given[0].handle, place))
        elif self._is_draw(operation):
            self._note_draw(operation, given, place)
        elif kind in _PYTHON or (operation.op_def.is_stateful and not _HARMLESS.fullmatch(kind)):
            self.found.refused.append(place)

    def _is_draw(self, operation: tf.Operation) -> bool:
        return bool(_DRAWS.fullmatch(operation.type)) and not _SEEDS.fullmatch(operation.type)

    def _seed_of(self, operation: tf.Operation, given: list[_Value]) -> tuple[bool, object]:
        """Whether a draw's seed is secret, and which one it is."""
        names = [argument.name for argument in operation.op_def.input_arg]
        seeds = [value for name, value in zip(names, given, strict=True) if name in _SEED_INPUTS]
        secret = bool(seeds) and all(value.labels & SECRET for value in seeds)
        return secret, seeds[0].seed if secret else None

    def _note_draw(self, operation: tf.Operation, given: list[_Value], place: Place) -> None:
        output = operation.outputs[0]
        # Two draws are of one shape if it is known, or is the very same tensor.
        known = output.shape.is_fully_defined()
        shape = tuple(output.shape) if known else operation.inputs[0].ref()
        what = (operation.type, output.dtype, known, shape)
        self.found.draws.append(Draw(place, *self._seed_of(operation, given), what))

    def _function(self, operation: tf.Operation, name: str, given: list[_Value]) -> list[_Value]:
        key = (name, tuple((value.labels, value.handle, value.seed) for value in given))
        if key not in self._known:
            graph = _graph_of(operation.graph, name)
            values = {tensor.ref(): value for tensor, value in zip(graph.inputs, given, strict=True)}
            self._known[key] = [_NOTHING] * len(graph.outputs)
            self._within.append(operation.name)  # names in there don't say which layer it was
            self.read(graph.get_operations(), values)
            self._within.pop()
            self._known[key] = [values.get(tensor.ref(), _NOTHING) for tensor in graph.outputs]
        return self._known[key]

    def _called(self, operation: tf.Operation, attribute: str, given: list[_Value]) -> list[_Value]:
        return self._function(operation, operation.get_attr(attribute).name, given)

    def _branched(self, operation: tf.Operation, given: list[_Value]) -> list[_Value]:
        chosen_by, given = given[0].labels & _SPREADING, given[1:]
        if operation.type in _BRANCHES:
            names = [operation.get_attr(name).name for name in _BRANCHES[operation.type].split()]
        else:
            names = [function.name for function in operation.get_attr("branches")]
        ways = [self._function(operation, name, given) for name in names]
        return [_either(values, chosen_by) for values in zip(*ways, strict=True)]

    def _looped(self, operation: tf.Operation, given: list[_Value]) -> list[_Value]:
        for _ in range(_MANY):
            (goes_on,) = self._called(operation, "cond", given)
            after = self._called(operation, "body", given)
            rounds = goes_on.labels & _SPREADING
            joined = [_either((one, other), rounds) for one, other in zip(given, after, strict=True)]
            if joined == given:
                break
            given = joined
        return given


def _graph_of(graph: tf.Graph, name: str) -> tf.Graph:
    """The graph of a function that a graph calls."""
    function = graph._get_function(name)
    found = getattr(function, "graph", None)
    if found is not None:
        return found
    with graph.as_default():  # which holds the functions that this one calls
        return function_def_to_graph.function_def_to_graph(function.definition)


def _keeps_secrets(operation: tf.Operation) -> bool:
    if operation.type == "FloorMod":
        modulus = tf.get_static_value(operation.inputs[1])
        return modulus is not None and abs(int(modulus)) >= _LEAST_MODULUS
    if operation.type == "RightShift":
        shift = tf.get_static_value(operation.inputs[1])
        return shift is not None and int(shift) <= 2
    return bool(_KEEPS_SECRETS.fullmatch(operation.type))


_COMPARISONS = ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual")


def compared_with(graph: tf.Graph) -> set[float]:
    """The numbers that something is compared with in a graph or in what it calls; NaN where one asks for that."""
    found: set[float] = set()
    known: set[str] = set()

    def look(graph: tf.Graph) -> None:
        for operation in graph.get_operations():
            if operation.type in _COMPARISONS:
                for tensor in operation.inputs:
                    value = tf.get_static_value(tensor)
                    if value is not None and np.size(value) == 1 and np.asarray(value).dtype.kind in "iuf":
                        found.add(float(np.reshape(value, [])))
            elif operation.type in ("IsNan", "IsFinite"):
                found.add(math.nan)
            for attribute in operation.node_def.attr.values():
                for function in [attribute.func] if attribute.HasField("func") else attribute.list.func:
                    if function.name not in known:
                        known.add(function.name)
                        look(_graph_of(graph, function.name))

    look(graph)
    return found


def _either(values: Sequence[_Value], labels: int) -> _Value:
    """What is known of a tensor that is one of these: it is secret if all of them are, and kept or known if one is."""
    for value in values:
        labels |= value.labels & _SPREADING
    if all(value.labels & SECRET for value in values):
        labels |= SECRET
    handles, seeds = ({getattr(value, name) for value in values} for name in ("handle", "seed"))
    return _Value(labels, handles.pop() if len(handles) == 1 else None, seeds.pop() if len(seeds) == 1 else None)


_NAMES = (  # attributes that say what something is called, not what it does
    *("container", "shared_name", "config_proto", "config", "device", "token", "_class", "_user_specified_name"),
    *("_gradient_op_type", "_output_shapes", "forward_function_name", "backward_function_name"),
)


def digest(graph: tf.Graph) -> str:
    """Equal for two graphs that do the same by the same operations, with the same constants, whatever these are called and
    whichever copies of variables they read."""
    known: dict[str, str] = {}

    def of_function(graph: tf.Graph, name: str) -> str:
        if name not in known:
            known[name] = ""
            known[name] = of_graph(_graph_of(graph, name))
        return known[name]

    def of_attribute(graph: tf.Graph, value) -> str:
        if value.HasField("func"):
            return of_function(graph, value.func.name)
        if value.list.func:
            return ",".join(of_function(graph, function.name) for function in value.list.func)
        return hashlib.sha256(value.SerializeToString(deterministic=True)).hexdigest()

    def of_graph(graph: tf.Graph) -> str:
        place: dict = {}
        lines = []
        for operation in graph.get_operations():
            given = [place.get(tensor.ref()) for tensor in operation.inputs]
            attributes = operation.node_def.attr
            names = sorted(name for name in attributes if name not in _NAMES)
            said = [(name, of_attribute(graph, attributes[name])) for name in names]
            if graph._is_function(operation.type):
                said = [("", of_function(graph, operation.type))]
            place |= {tensor.ref(): (len(lines), number) for number, tensor in enumerate(operation.outputs)}
            lines.append(repr((operation.type, given, said)))
        lines.append(repr([place.get(tensor.ref()) for tensor in getattr(graph, "outputs", ())]))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    return of_graph(graph)


class Segment:
    """The operations that are added to the graph being traced, from here on."""

    def __init__(self):
        self.graph = tf.compat.v1.get_default_graph()
        self._start = len(self.graph.get_operations())

    def operations(self) -> list[tf.Operation]:
        return self.graph.get_operations()[self._start :]

    def strangers(self, known: Iterable[tf.Tensor]) -> list[Place]:
        """Operations that are given a tensor from outside which is none of these, no constant and no variable."""
        operations = self.operations()
        own = {id(operation) for operation in operations}
        known = {outside_of(tensor).ref() for tensor in known}
        found = []
        for operation in operations:
            given = operation.outputs if operation.type == "Placeholder" else operation.inputs
            for tensor in given:
                inside = id(tensor.op) in own and tensor.op.type != "Placeholder"
                if not inside and not _is_public(outside_of(tensor), known):
                    found.append(Place(operation.type, operation.name))
        return found


def _is_public(tensor: tf.Tensor, known: set) -> bool:
    if tensor.ref() in known or tensor.dtype == tf.resource or not hasattr(tensor, "op"):
        return True
    return isinstance(getattr(tensor, "graph", None), tf.Graph) is False or tensor.op.type == "Const"
