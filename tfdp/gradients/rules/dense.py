"""Matrix products: Dense, EinsumDense (and through it every attention layer), ReversibleEmbedding has its own file."""

import math

import keras
import tensorflow as tf

from tfdp.gradients.factored import Materialised, OuterSum, in_shape
from tfdp.gradients.rules.registry import at_pre_activation, rule


def bias_gradient(bias: keras.Variable, d: tf.Tensor) -> tuple[keras.Variable, Materialised]:
    """A bias is added to the output by broadcasting: its gradient is ``d`` summed over the broadcast dimensions."""
    rank = len(d.shape) - 1
    aligned = (1,) * (rank - len(bias.shape)) + tuple(bias.shape)
    axes = [1 + i for i, size in enumerate(aligned) if size == 1 and d.shape[1 + i] != 1]
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


def _einsum_applies(layer: keras.layers.EinsumDense) -> bool:
    return "..." not in layer.equation


@rule(keras.layers.EinsumDense, tap=at_pre_activation, applies=_einsum_applies)
def einsum_dense(call, d):
    """Labels of the equation fall into four kinds: the example (first of both), places (input and output only), weights'
    rows (input and kernel), weights' columns (kernel and output), and groups (all three). Over one that only the input has,
    the input is summed."""
    (d,) = d
    layer, x = call.layer, call.inputs
    inputs, kernel, output = _labels(layer.equation)
    summed = [c for c in inputs if c not in kernel + output]
    if summed:
        x = tf.reduce_sum(tf.cast(x, tf.float32), [inputs.index(c) for c in summed])
        inputs = "".join(c for c in inputs if c not in summed)
    example = inputs[0]
    groups = [c for c in kernel if c in inputs and c in output]
    p = [c for c in kernel if c in inputs and c not in output]
    q = [c for c in kernel if c in output and c not in inputs]
    t = [c for c in inputs[1:] if c not in kernel]
    size = dict(zip(kernel, layer._kernel.shape, strict=True))
    a = _grouped(x, inputs, example, groups, t, p, size)
    b = _grouped(d, output, example, groups, t, q, size)
    unfolded = groups + p + q
    layout = (tuple(size[c] for c in unfolded), tuple(unfolded.index(c) for c in kernel))
    gradients = [(layer._kernel, OuterSum(a, b, layer._kernel.shape, layout))]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]


def _labels(equation: str) -> tuple[str, str, str]:
    operands, output = equation.replace(" ", "").split("->")
    inputs, kernel = operands.split(",")
    return inputs, kernel, output


def _grouped(values, labels, example, groups, t, columns, size) -> tf.Tensor:
    """``values`` as ``[N, G, T, columns]``."""
    order = [labels.index(c) for c in [example, *groups, *t, *columns]]
    values = values if order == sorted(order) else tf.transpose(values, order)
    sizes = [values.shape[1 + len(groups) + i] for i in range(len(t))]
    count = math.prod(sizes) if all(s is not None for s in sizes) else -1
    width = math.prod(size[c] for c in columns)
    return in_shape(values, math.prod(size[c] for c in groups), count, width)
