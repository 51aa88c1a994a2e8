"""Where what is the same to all examples meets them.

A weight that a layer adds to its input, or a table that is looked up at 0, 1, 2, ..., has no axis of examples, and the gradient there is
that of the whole lot. Yet somewhere in the graph the tensor *meets* the examples: it is added to a tensor that has a row an
example, multiplied by one, broadcast to the lot's size. The gradient at what such an operation puts out has a row an example
again, and from there each example's own gradient goes back, one operation after the other (``gradients/operations.py``), to the
tensor where it started. Nothing but these operations is run again: it costs what they cost, and layers that draw random
numbers are no hindrance.

All uses of the tensor are followed, whatever the data; one that can't be is an error, and another way is taken.
"""

import functools

import tensorflow as tf

from tfdp.gradients.operations import (
    NoWayBack,
    carried_back,
    check_carried_back,
    check_own_gradients,
    own_gradients,
)

_READS = ("ReadVariableOp", "ResourceGather", "VarHandleOp", "ResourceGatherNd")
_SHAPES = ("Shape", "ShapeN")
_NO_GRADIENT = ("StopGradient", "Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")


class LotGraph:
    """The part of a graph that an objective depends on, and which of its tensors depend on the lot."""

    def __init__(self, objective: tf.Tensor):
        self.objective = objective
        self._graph = objective.graph
        self._operations = self._before(objective)

    @staticmethod
    def _before(objective: tf.Tensor) -> dict[str, tf.Operation]:
        found, left = {}, [objective.op]
        while left:
            operation = left.pop()
            if operation.name not in found:
                found[operation.name] = operation
                left += [tensor.op for tensor in operation.inputs]
        return found

    def varies(self, tensor: tf.Tensor) -> bool:
        """Whether it depends on records, or on how many there are. Sizes of other axes are no records."""
        return tensor.graph is not self._graph or tensor.name in self._varying

    @functools.cached_property
    def number(self) -> dict[str, int]:
        """Operations in their order."""
        return {operation.name: number for number, operation in enumerate(self._graph.get_operations())}

    @functools.cached_property
    def _varying(self) -> set[str]:
        fixed = {inner.name for outer, inner in self._graph.captures if not _is_symbolic(outer)}
        varying, shapes = set(), set()
        for operation in self._graph.get_operations():
            outputs = {tensor.name for tensor in operation.outputs}
            if operation.type == "Placeholder":
                (tensor,) = operation.outputs
                depends = tensor.dtype != tf.resource and tensor.name not in fixed
            elif operation.op_def.is_stateful and operation.type not in _READS:
                depends = True
            else:
                depends = any(tensor.name in varying for tensor in operation.inputs)
                if depends and operation.type in _SHAPES:
                    shapes |= outputs
                elif operation.type == "StridedSlice" and operation.inputs[0].name in shapes:
                    depends = not _one_later_axis(operation)
            varying |= outputs if depends else set()
        return varying

    def uses(self, tensor: tf.Tensor) -> list[tf.Operation]:
        return [operation for operation in tensor.consumers() if operation.name in self._operations]

    def moves_the_objective(self, tensor: tf.Tensor) -> bool:
        """Whether there is a way to it along which numbers may have gradients."""
        left, seen = [tensor], set()
        while left:
            tensor = left.pop()
            if tensor is self.objective:
                return True
            if tensor.name not in seen and _may_carry_gradients(tensor):
                seen.add(tensor.name)
                left += [o for use in self.uses(tensor) if use.type not in _NO_GRADIENT for o in use.outputs]
        return False


def _may_carry_gradients(tensor: tf.Tensor) -> bool:
    """Complex numbers do, and the lists of tensors that loops are given."""
    return tensor.dtype.is_floating or tensor.dtype.is_complex or tensor.dtype == tf.variant


def _is_symbolic(tensor) -> bool:
    return isinstance(tensor, tf.Tensor) and not hasattr(tensor, "numpy")


def _one_later_axis(operation: tf.Operation) -> bool:
    """Whether of a shape one size is taken that is not the first."""
    begin = tf.get_static_value(operation.inputs[1])
    return begin is not None and begin.size == 1 and begin[0] > 0 and operation.get_attr("shrink_axis_mask") == 1


class Meetings:
    """All operations in which one tensor, the same to all examples, meets them.

    Attributes:
        outputs: what these operations put out: where gradients are to be taken.
        inputs: their operands that depend on the lot.

    Raises:
        NoWayBack: some use of the tensor can't be followed.
    """

    def __init__(self, constant: tf.Tensor, graph: LotGraph):
        if constant.graph is not graph.objective.graph:
            raise NoWayBack(constant.op, "reads a weight in a loop, or in a function of its own")
        if graph.varies(constant):
            raise NoWayBack(constant.op, "depends on the lot")
        self.constant, self._graph = constant, graph
        self._on_the_way = {constant.name: constant}
        self._before: dict[str, tf.Operation] = {}
        meeting: dict[str, tf.Operation] = {}
        left = [constant]
        while left:
            for use in graph.uses(left.pop()):
                if use.type in _NO_GRADIENT or use.name in self._before or use.name in meeting:
                    continue
                if any(graph.varies(tensor) for tensor in use.outputs):
                    meeting[use.name] = use
                    continue
                self._before[use.name] = use
                for tensor in use.outputs:
                    if _may_carry_gradients(tensor):
                        self._on_the_way[tensor.name] = tensor
                        left.append(tensor)
                if graph.objective.op is use:
                    raise NoWayBack(use, "is the loss itself")
        self._meeting = [use for use in meeting.values() if graph.moves_the_objective(use.outputs[0])]
        for use in self._meeting:
            for tensor in self._own(use):
                check_own_gradients(use, tensor)
        for use in self._before.values():
            if any(graph.moves_the_objective(tensor) for tensor in use.outputs):
                check_carried_back(use)
        self.outputs = [use.outputs[0] for use in self._meeting]
        operands = {t.name: t for use in self._meeting for t in use.inputs if graph.varies(t) and _is_of_records(t)}
        self.inputs = list(operands.values())

    def _own(self, operation: tf.Operation) -> list[tf.Tensor]:
        return list({t.name: t for t in operation.inputs if t.name in self._on_the_way}.values())

    def gradient(self, d: list[tf.Tensor | None], inputs: list[tf.Tensor], batch: tf.Tensor) -> tf.Tensor | None:
        """``[B, *constant.shape]`` from the gradients at ``outputs``; None where the loss does not depend on it.

        ``inputs`` stand for those of the same name.
        """
        copies = {tensor.name: copy for tensor, copy in zip(self.inputs, inputs, strict=True)}
        found: dict[str, tf.Tensor] = {}

        def add(tensor: tf.Tensor, gradient: tf.Tensor) -> None:
            found[tensor.name] = found[tensor.name] + gradient if tensor.name in found else gradient

        for use, cotangent in zip(self._meeting, d, strict=True):
            if cotangent is None:  # inside an operation whose gradient is written by hand
                raise NoWayBack(use, "hands on no gradient")
            operands = [copies.get(tensor.name, tensor) for tensor in use.inputs]
            for tensor in self._own(use):
                add(tensor, own_gradients(use, tensor, operands, cotangent, batch))
        for use in sorted(self._before.values(), key=lambda use: -self._graph.number[use.name]):
            gradients = [found.get(tensor.name) for tensor in use.outputs]
            if any(gradient is not None for gradient in gradients):
                for tensor in self._own(use):
                    add(tensor, carried_back(use, tensor, gradients))
        return found.get(self.constant.name)


def _is_of_records(tensor: tf.Tensor) -> bool:
    """Not a size or a list of sizes, which count the lot's rows."""
    return tensor.dtype.is_floating or bool(tensor.shape.rank and tensor.shape[0] is None)
