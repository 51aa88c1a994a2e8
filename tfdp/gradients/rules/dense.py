"""Matrix products: Dense, EinsumDense (and through it every attention layer)."""

import math

import keras
import tensorflow as tf

from tfdp.gradients.factored import Materialised, OuterSum, in_shape
from tfdp.gradients.rules.registry import at_pre_activation, rule

_FEW_CHANNELS = 16  # fewer are added up number by number


def bias_gradient(bias: keras.Variable, d: tf.Tensor) -> tuple[keras.Variable, Materialised]:
    """A bias is added to the output by broadcasting: its gradient is ``d`` summed over the broadcast dimensions."""
    rank = len(d.shape) - 1
    aligned = (1,) * (rank - len(bias.shape)) + tuple(bias.shape)
    axes = [1 + i for i, size in enumerate(aligned) if size == 1 and d.shape[1 + i] != 1]
    if len(axes) > 1 and (d.shape[-1] or _FEW_CHANNELS) < _FEW_CHANNELS:  # along one dimension first, in long runs
        d, axes = tf.reduce_sum(tf.cast(d, tf.float32), axes[0], keepdims=True), axes[1:] + axes[:1]
    summed = tf.reduce_sum(tf.cast(d, tf.float32), axes) if axes else d
    return bias, Materialised(summed, bias.shape)


def places(values: tf.Tensor) -> tf.Tensor:
    """``[N, ..., c]`` to ``[N, 1, T, c]``; a plain ``[N, c]`` has one place."""
    if len(values.shape) == 2:
        return values
    sizes = values.shape[1:-1]
    count = math.prod(sizes) if all(size is not None for size in sizes) else -1
    return in_shape(values, 1, count, values.shape[-1])


@rule(keras.layers.Dense, tap=at_pre_activation)
def dense(call, d):
    (d,) = d
    layer = call.layer
    gradients = [(layer._kernel, OuterSum(places(call.inputs), places(d), layer._kernel.shape))]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]


@rule(keras.layers.EinsumDense, tap=at_pre_activation)
def einsum_dense(call, d):
    layer, (d,) = call.layer, d
    labels = labels_of(layer.equation, len(call.inputs.shape))
    gradients = [(layer._kernel, product(call.inputs, d, labels, layer._kernel.shape))]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]


def labels_of(equation: str, rank: int | None = None) -> tuple[str, str, str]:
    """Of input, kernel and output. What "..." stands for has labels as well where the input's rank is given."""
    operands, output = equation.replace(" ", "").split("->")
    inputs, kernel = operands.split(",")
    if "..." in inputs and rank is not None:
        named = "ABCDEFGHIJKLMNOP"[: rank - len(inputs.replace("...", ""))]
        inputs, output = (labels.replace("...", named) for labels in (inputs, output))
    return inputs, kernel, output


def product(x: tf.Tensor, d: tf.Tensor, labels: tuple[str, str, str], shape) -> OuterSum:
    """The kernel's gradient. Labels of the equation fall into four kinds: the example (first of both), places (input and output only),
    weights' rows (input and kernel), weights' columns (kernel and output), and groups (all three). Over one that only the input has,
    the input is summed."""
    if any(len(set(one)) < len(one) for one in labels):
        raise ValueError(f"{labels} has a label twice in one operand, which is a diagonal.")
    inputs, kernel, output = labels
    summed = [c for c in inputs if c not in kernel + output]
    if summed:
        x = tf.reduce_sum(tf.cast(x, tf.float32), [inputs.index(c) for c in summed])
        inputs = "".join(c for c in inputs if c not in summed)
    example = inputs[0]
    groups = [c for c in kernel if c in inputs and c in output]
    p = [c for c in kernel if c in inputs and c not in output]
    q = [c for c in kernel if c in output and c not in inputs]
    t = [c for c in inputs[1:] if c not in kernel]
    size = dict(zip(kernel, shape, strict=True))
    a = _grouped(x, inputs, example, groups, t, p, size)
    b = _grouped(d, output, example, groups, t, q, size)
    unfolded = groups + p + q
    layout = (tuple(size[c] for c in unfolded), tuple(unfolded.index(c) for c in kernel))
    return OuterSum(a, b, shape, layout)


def _grouped(values, labels, example, groups, t, columns, size) -> tf.Tensor:
    """``values`` as ``[N, G, T, columns]``."""
    order = [labels.index(c) for c in [example, *groups, *t, *columns]]
    values = values if order == sorted(order) else tf.transpose(values, order)
    sizes = [values.shape[1 + len(groups) + i] for i in range(len(t))]
    count = math.prod(sizes) if all(s is not None for s in sizes) else -1
    width = math.prod(size[c] for c in columns)
    return in_shape(values, math.prod(size[c] for c in groups), count, width)
