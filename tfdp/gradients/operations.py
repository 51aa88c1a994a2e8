"""Operations of TensorFlow, one at a time: the gradient of every example where an operand is the same to all of them.

``own_gradients`` serves operations where such an operand meets examples; ``carried_back`` those before, among operands that are
all the same to every example: there the examples' gradients go back side by side.
"""

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfdp.gradients.convolved import Convolved, Window

_SPREADING = {"Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference", "Pow", "SelectV2"}
_RESHAPING = {"Identity", "IdentityN", "Reshape", "ExpandDims", "Squeeze", "Cast"}
# What tf.vectorized_map may run without XLA: its matrix products crash the process on CPU.
_VECTORISED = {
    *_SPREADING,
    *("Neg", "Exp", "Log", "Tanh", "Sigmoid", "Softplus", "Softmax", "Relu", "Square", "Sqrt", "Rsqrt", "Erf", "Abs"),
    *("Transpose", "StridedSlice", "Slice", "GatherV2", "ConcatV2", "Pack", "Unpack", "Split", "Pad", "PadV2"),
    *("Sum", "Mean", "BroadcastTo", "Tile", "BiasAdd", "Rsqrt", "SquaredDifference", "Elu", "LogSoftmax", "Erfc"),
}
_CALLED_AXIS = {"reduction_indices", "split_dim", "dim"}  # by tf.raw_ops
_PRODUCTS = {"MatMul", "BatchMatMulV2", "Einsum"}


class NoWayBack(Exception):
    """An operation is not among those that are known here."""

    def __init__(self, operation: tf.Operation, why: str = "is not known here"):
        super().__init__(f"The operation {operation.type!r} ({operation.name}) {why}.")


def own_gradients(operation: tf.Operation, constant: tf.Tensor, inputs: Sequence[tf.Tensor], d: tf.Tensor, batch):
    """``[B, *constant.shape]``: the gradient in an operand without examples, of the operation's output for each of them.

    Args:
        inputs: the operation's, or copies.
        d: the gradient at its output, ``[rows, ...]`` with as many rows for each example.
    """
    d = tf.ensure_shape(d, operation.outputs[0].shape)
    found = check_own_gradients(operation, constant)(operation, constant, inputs, d, batch)
    shape = tf.concat([[batch, -1], tf.shape(constant)], 0)
    several = tf.ensure_shape(tf.reshape(tf.cast(found, tf.float32), shape), [None, None, *constant.shape])
    return tf.reduce_sum(several, 1)


def check_own_gradients(operation: tf.Operation, constant: tf.Tensor) -> Callable:
    """How that is done here. Raises ``NoWayBack``."""
    how = _MEETING.get(operation.type)
    output = operation.outputs[0]
    if how is None or len(operation.outputs) != 1:
        raise NoWayBack(operation)
    if output.shape.rank is None or output.shape.rank == 0 or output.shape[0] is not None:
        raise NoWayBack(operation, "puts out something that has no row an example")
    if not output.dtype.is_floating:
        raise NoWayBack(operation, "puts out numbers of another kind")
    if not any(tensor is constant for tensor in operation.inputs):
        raise NoWayBack(operation)
    return how


def carried_back(operation: tf.Operation, constant: tf.Tensor, gradients: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """``[B, *constant.shape]`` from ``[B, *output.shape]`` of each output (None: no gradient)."""
    check_carried_back(operation)
    if operation.type in _RESHAPING:
        number = next(i for i, tensor in enumerate(operation.inputs) if tensor is constant)
        (found,) = [gradients[number]] if operation.type == "IdentityN" else gradients
        return tf.reshape(found, tf.concat([tf.shape(found)[:1], tf.shape(constant)], 0))
    known = [(number, gradient) for number, gradient in enumerate(gradients) if gradient is not None]

    def one(d: list[tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(constant)
            outputs = run_again(operation, list(operation.inputs))
            outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
            reached = [outputs[number] for number, _ in known]
        d = [tf.cast(one, output.dtype) for one, output in zip(d, reached, strict=True)]
        return tf.convert_to_tensor(tape.gradient(reached, constant, d, unconnected_gradients="zero"))

    if operation.type in _PRODUCTS:
        return _product_carried_back(operation, constant, known[0][1])
    return tf.vectorized_map(one, [gradient for _, gradient in known], fallback_to_while_loop=False)


def check_carried_back(operation: tf.Operation) -> None:
    """Raises ``NoWayBack``."""
    if operation.type not in _VECTORISED | _RESHAPING | _PRODUCTS:
        raise NoWayBack(operation)


def run_again(operation: tf.Operation, inputs: Sequence[tf.Tensor]):
    """The same operation on other inputs."""
    given, left = {}, iter(inputs)
    for argument in operation.op_def.input_arg:
        if argument.type_list_attr:
            raise NoWayBack(operation)
        count = operation.get_attr(argument.number_attr) if argument.number_attr else None
        name = "axis" if argument.name in _CALLED_AXIS else argument.name
        given[name] = next(left) if count is None else [next(left) for _ in range(count)]
    inferred = {name for a in operation.op_def.input_arg for name in (a.type_attr, a.number_attr)}
    attributes = {a.name: operation.get_attr(a.name) for a in operation.op_def.attr if a.name not in inferred}
    return getattr(tf.raw_ops, operation.type)(**given, **attributes)


def _of_copies(operation: tf.Operation, constant: tf.Tensor, shape: Sequence, run: Callable, inputs, d) -> tf.Tensor:
    """``[rows, ...]``: the gradient in a copy of the operand for each row. ``shape`` is that of a copy."""
    sizes = tf.stack([tf.shape(d)[0], *shape])
    copies = tf.broadcast_to(tf.reshape(constant, tf.stack([1, *shape])), sizes)
    own = [copies if tensor is constant else copy for tensor, copy in zip(operation.inputs, inputs, strict=True)]
    with tf.GradientTape() as tape:
        tape.watch(copies)
        output = run(*own)
    return tape.gradient(output, copies, d)


def _sizes(tensor: tf.Tensor) -> list:
    dynamic = tf.shape(tensor)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(tensor.shape)]


def _spread(operation, constant, inputs, d, batch) -> tf.Tensor:
    """Operands of different ranks are aligned at their last axes; one with examples has an axis more, or one of size 1."""
    rank = operation.outputs[0].shape.rank
    aligned = [1] * (rank - constant.shape.rank) + _sizes(constant)
    if not (isinstance(aligned[0], int) and aligned[0] == 1):
        raise NoWayBack(operation, "has an operand with rows that are no examples")

    def run(*own):
        return run_again(operation, own)

    return _of_copies(operation, constant, aligned[1:], run, inputs, d)


def _tile(operation, constant, inputs, d, batch) -> tf.Tensor:
    if constant.shape[0] != 1:
        raise NoWayBack(operation, "repeats rows")

    def run(copies, multiples):
        return tf.tile(copies, tf.concat([[1], multiples[1:]], 0))

    return _of_copies(operation, constant, _sizes(constant)[1:], run, inputs, d)


def _bias(operation, constant, inputs, d, batch) -> tf.Tensor:
    if operation.inputs[1] is not constant or operation.get_attr("data_format") not in (b"NHWC", "NHWC"):
        raise NoWayBack(operation)
    axes = list(range(1, len(d.shape) - 1))
    return tf.reduce_sum(d, axes) if axes else d


def _matrix(operation, constant, inputs, d, batch) -> tf.Tensor:
    """``[rows, k] @ [k, n]``. The rows of an example are added up here, where each would have a gradient of its own."""
    if operation.inputs[1] is not constant or operation.get_attr("transpose_a"):
        raise NoWayBack(operation)
    k, n = constant.shape
    turned = operation.get_attr("transpose_b")
    x = tf.reshape(inputs[0], tf.stack([batch, -1, n if turned else k]))
    d = tf.reshape(d, tf.stack([batch, -1, k if turned else n]))
    return tf.matmul(d, x, transpose_a=True) if turned else tf.matmul(x, d, transpose_a=True)


def _matrices(operation, constant, inputs, d, batch) -> tf.Tensor:
    """Operands are broadcast in full first: TensorFlow 2.21 reads beyond one of which a batch dimension is 1."""
    rank = operation.outputs[0].shape.rank
    aligned = [1] * (rank - constant.shape.rank) + _sizes(constant)
    if not (isinstance(aligned[0], int) and aligned[0] == 1):
        raise NoWayBack(operation, "has an operand with rows that are no examples")
    around = _sizes(d)[1:-2]

    def run(*own):
        own = [tf.broadcast_to(t, tf.stack([tf.shape(d)[0], *around, *_sizes(t)[-2:]])) for t in own]
        return run_again(operation, own)

    return _of_copies(operation, constant, aligned[1:], run, inputs, d)


def _einsum(operation, constant, inputs, d, batch) -> tf.Tensor:
    equation = operation.get_attr("equation")
    equation = equation.decode() if isinstance(equation, bytes) else equation
    operands, output = equation.split("->")
    operands = operands.split(",")
    mine = [number for number, tensor in enumerate(operation.inputs) if tensor is constant]
    if "." in equation or len(mine) != 1 or len(operands) != 2:
        raise NoWayBack(operation)
    labels, other, example = operands[mine[0]], operands[1 - mine[0]], output[0]
    x = inputs[1 - mine[0]]
    if example in labels or example not in other or any(c not in other + output for c in labels):
        raise NoWayBack(operation)
    return tf.einsum(f"{output},{other}->{example}{labels}", d, x)


def _convolution(operation, constant, inputs, d, batch) -> tf.Tensor:
    x, padding, layout = inputs[0], *(tf.compat.as_str(operation.get_attr(n)) for n in ("padding", "data_format"))
    groups = x.shape[-1] != constant.shape[-2]
    if operation.inputs[1] is not constant or padding == "EXPLICIT" or not layout.endswith("C") or groups:
        raise NoWayBack(operation)
    strides, dilation = (tuple(operation.get_attr(name)[1:-1]) for name in ("strides", "dilations"))
    window = Window(tuple(constant.shape[:-2]), strides, dilation, padding.lower())
    return Convolved(x, d, window, constant.shape).materialise()


def _look_up(operation, constant, inputs, d, batch) -> tf.Tensor:
    _, ids, axis = inputs
    axis = tf.get_static_value(axis)
    if operation.inputs[0] is not constant or axis is None or axis != 0 or operation.get_attr("batch_dims") != 0:
        raise NoWayBack(operation)
    height, width = tf.shape(constant)[0], math.prod(constant.shape[1:])
    ids = tf.clip_by_value(tf.cast(ids, tf.int32), 0, height - 1)  # others would be rows of the next example
    rows = tf.reshape(ids, tf.stack([batch, -1])) + tf.range(batch)[:, None] * height
    return tf.math.unsorted_segment_sum(tf.reshape(d, tf.stack([-1, width])), tf.reshape(rows, [-1]), batch * height)


def _product_carried_back(operation, constant, d) -> tf.Tensor:
    """Of two matrices, or of as many pairs of them."""
    (a, b), mine = operation.inputs, [tensor is constant for tensor in operation.inputs]
    if sum(mine) != 1:
        raise NoWayBack(operation)
    if operation.type == "Einsum":
        equation = tf.compat.as_str(operation.get_attr("equation"))
        first, second, output = equation.replace("->", ",").split(",")
        if "." in equation:
            raise NoWayBack(operation)
    else:
        if a.shape.rank != b.shape.rank or a.shape[:-2] != b.shape[:-2]:
            raise NoWayBack(operation)
        pairs = "uvwxyz"[: a.shape.rank - 2]
        names = ("transpose_a", "transpose_b") if operation.type == "MatMul" else ("adj_x", "adj_y")
        turned = [operation.get_attr(name) for name in names]
        first, second = pairs + ("nk" if turned[0] else "kn"), pairs + ("mn" if turned[1] else "nm")
        output = pairs + "km"
    own, other, constant_labels = (b, second, first) if mine[0] else (a, first, second)
    if any(label not in other + output for label in constant_labels) or "B" in first + second + output:
        raise NoWayBack(operation)
    return tf.einsum(f"B{output},{other}->B{constant_labels}", d, own)


_MEETING: dict[str, Callable] = {
    **dict.fromkeys([*_SPREADING, "BroadcastTo"], _spread),
    "Tile": _tile,
    "BiasAdd": _bias,
    "MatMul": _matrix,
    "BatchMatMulV2": _matrices,
    "Einsum": _einsum,
    "Conv2D": _convolution,
    "Conv3D": _convolution,
    "GatherV2": _look_up,
}
