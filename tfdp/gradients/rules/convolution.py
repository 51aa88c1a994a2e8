"""Convolutions: a convolution is a matrix product of the patches it sees.

With ``a_t`` the patch under output place ``t`` and ``d_t`` the gradient there, the kernel's gradient is
``sum_t a_t (x) d_t``. A depthwise convolution is one such product a channel (a group each), a transposed convolution is
an ordinary one with input and output gradient in each other's place, a separable one is a depthwise and a 1 x 1 one.
"""

import itertools
import math

import keras
import tensorflow as tf

from tfdp.gradients.factored import OuterSum
from tfdp.gradients.rules.dense import bias_gradient, places
from tfdp.gradients.rules.registry import at_pre_activation, rule

layers = keras.layers


def _channels_last(layer, values: tf.Tensor) -> tf.Tensor:
    if layer.data_format == "channels_first":
        return tf.transpose(values, [0, *range(2, len(values.shape)), 1])
    return values


def _size(values: tf.Tensor, axis: int) -> int | tf.Tensor:
    return values.shape[axis] if values.shape[axis] is not None else tf.shape(values)[axis]


def patches(x: tf.Tensor, kernel_size, strides, dilation, padding: str) -> tf.Tensor:
    """``[N, *space, C]`` to ``[N, T, K, C]``: for every place the K values under the kernel, by strided slices."""
    rank = len(kernel_size)
    spans = [(k - 1) * r + 1 for k, r in zip(kernel_size, dilation, strict=True)]
    sizes = [_size(x, 1 + axis) for axis in range(rank)]
    if padding == "valid":
        counts = [(n - span) // s + 1 for n, span, s in zip(sizes, spans, strides, strict=True)]
    else:
        counts = [-(-n // s) for n, s in zip(sizes, strides, strict=True)]
        missing = [(c - 1) * s + span - n for c, s, span, n in zip(counts, strides, spans, sizes, strict=True)]
        if padding == "causal":
            pads = [[span - 1, 0] for span in spans]
        else:
            missing = [max(m, 0) if isinstance(m, int) else tf.maximum(m, 0) for m in missing]
            pads = [[m // 2, m - m // 2] for m in missing]
        x = tf.pad(x, [[0, 0], *pads, [0, 0]])
    slices = []
    for offset in itertools.product(*(range(k) for k in kernel_size)):
        window = [slice(None)]
        for o, r, s, c in zip(offset, dilation, strides, counts, strict=True):
            window.append(slice(o * r, o * r + (c - 1) * s + 1, s))
        slices.append(x[tuple(window)])
    stacked = tf.stack(slices, axis=-2)
    count = math.prod(counts) if all(isinstance(c, int) for c in counts) else -1
    return tf.reshape(stacked, tf.stack([tf.shape(x)[0], count, len(slices), x.shape[-1]]))


def _kernel_gradient(x, d, layer) -> OuterSum:
    groups = getattr(layer, "groups", 1)
    kernel = layer._kernel
    seen = patches(x, layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding)
    batch, count, width = tf.shape(x)[0], _size(seen, 1), seen.shape[2]
    d = places(d)[:, 0]
    if groups == 1:
        a = tf.reshape(seen, tf.stack([batch, 1, count, width * seen.shape[3]]))
        return OuterSum(a, d[:, None], kernel.shape)
    each, filters = seen.shape[3] // groups, kernel.shape[-1] // groups
    a = tf.transpose(tf.reshape(seen, tf.stack([batch, count, width, groups, each])), [0, 3, 1, 2, 4])
    a = tf.reshape(a, tf.stack([batch, groups, count, width * each]))
    d = tf.transpose(tf.reshape(d, tf.stack([batch, count, groups, filters])), [0, 2, 1, 3])
    return OuterSum(a, d, kernel.shape, layout=((groups, width * each, filters), (1, 0, 2)))


@rule(layers.Conv1D, layers.Conv2D, layers.Conv3D, tap=at_pre_activation)
def convolution(call, d):
    layer, d = call.layer, _channels_last(call.layer, d[0])
    x = _channels_last(layer, call.inputs)
    gradients = [(layer._kernel, _kernel_gradient(x, d, layer))]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]


def _depthwise_gradient(x, d, layer, kernel) -> OuterSum:
    """One group a channel: ``[K]`` values of the channel times the ``[M]`` outputs it makes."""
    seen = patches(x, layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding)
    batch, count, width, channels = tf.shape(x)[0], _size(seen, 1), seen.shape[2], seen.shape[3]
    multiplier = kernel.shape[-1]
    d = tf.reshape(d, tf.stack([batch, count, channels, multiplier]))
    layout = ((channels, width, multiplier), (1, 0, 2))
    return OuterSum(tf.transpose(seen, [0, 3, 1, 2]), tf.transpose(d, [0, 2, 1, 3]), kernel.shape, layout)


@rule(layers.DepthwiseConv1D, layers.DepthwiseConv2D, tap=at_pre_activation)
def depthwise_convolution(call, d):
    layer, d = call.layer, _channels_last(call.layer, d[0])
    x = _channels_last(layer, call.inputs)
    gradients = [(layer.kernel, _depthwise_gradient(x, d, layer, layer.kernel))]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]


@rule(layers.SeparableConv1D, layers.SeparableConv2D, tap=at_pre_activation)
def separable_convolution(call, d):
    layer, d = call.layer, tf.cast(_channels_last(call.layer, d[0]), tf.float32)
    x = tf.cast(_channels_last(layer, call.inputs), tf.float32)
    between = keras.ops.depthwise_conv(
        x,
        tf.cast(layer.depthwise_kernel, tf.float32),
        strides=layer.strides,
        padding=layer.padding,
        dilation_rate=layer.dilation_rate,
        data_format="channels_last",
    )
    pointwise = layer.pointwise_kernel
    back = tf.matmul(d, tf.reshape(tf.cast(pointwise, tf.float32), pointwise.shape[-2:]), transpose_b=True)
    gradients = [
        (layer.depthwise_kernel, _depthwise_gradient(x, back, layer, layer.depthwise_kernel)),
        (pointwise, OuterSum(places(between), places(d), pointwise.shape)),
    ]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]


@rule(layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose, tap=at_pre_activation)
def transposed_convolution(call, d):
    """The kernel is ``[*k, filters, channels]``: what the output gradient shows under the kernel, times the input."""
    layer, d = call.layer, _channels_last(call.layer, d[0])
    x = _channels_last(layer, call.inputs)
    seen = patches(d, layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding)
    width = seen.shape[2] * seen.shape[3]
    a = tf.reshape(seen, tf.stack([tf.shape(x)[0], 1, _size(seen, 1), width]))
    gradients = [(layer.kernel, OuterSum(a, places(x), layer.kernel.shape))]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]
