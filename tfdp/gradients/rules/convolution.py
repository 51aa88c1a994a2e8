"""Convolutions: a convolution is a matrix product of the patches it sees.

With ``a_t`` the patch under output place ``t`` and ``d_t`` the gradient there, the kernel's gradient is
``sum_t a_t (x) d_t`` (``gradients/convolved.py``). A depthwise convolution is one such product a channel (a group each), a
transposed convolution is an ordinary one with input and output gradient in each other's place, a separable one is a
depthwise and a 1 x 1 one.
"""

import math

import keras
import tensorflow as tf

from tfdp.gradients.convolved import Convolved, Window, patches
from tfdp.gradients.factored import OuterSum, PerExampleGradient
from tfdp.gradients.rules.dense import bias_gradient, places
from tfdp.gradients.rules.registry import at_pre_activation, rule

layers = keras.layers


def channels_last(layer, values: tf.Tensor) -> tf.Tensor:
    if layer.data_format == "channels_first":
        return tf.transpose(values, [0, *range(2, len(values.shape)), 1])
    return values


def _window(layer) -> Window:
    padding = "valid" if layer.padding == "causal" else layer.padding
    return Window(tuple(layer.kernel_size), tuple(layer.strides), tuple(layer.dilation_rate), padding)


def _input(layer, x: tf.Tensor) -> tf.Tensor:
    """Channels last; causal padding is zeros before the first place."""
    x = channels_last(layer, x)
    if layer.padding == "causal":
        x = tf.pad(x, [[0, 0], [_window(layer).spans[0] - 1, 0], [0, 0]])
    return x


def _counts(d: tf.Tensor) -> list:
    return [size if size is not None else tf.shape(d)[1 + axis] for axis, size in enumerate(d.shape[1:-1])]


def convolved(inputs, layer, kernel) -> tf.Tensor:
    """What the layer would make of its inputs with this kernel, channels last."""
    return keras.ops.conv(
        _input(layer, inputs),
        kernel,
        strides=layer.strides,
        padding=_window(layer).padding,
        dilation_rate=layer.dilation_rate,
        data_format="channels_last",
    )


def convolution_gradient(inputs, d, layer, kernel) -> PerExampleGradient:
    """Of the layer's inputs and the gradient, channels last, at the outputs that a kernel of the layer's size makes of them."""
    x, window, groups = _input(layer, inputs), _window(layer), getattr(layer, "groups", 1)
    if groups == 1 and math.prod(window.kernel_size) > 1:
        return Convolved(x, d, window, kernel.shape)
    seen = patches(x, window, _counts(d))
    batch, width = tf.shape(x)[0], seen.shape[2]
    count = seen.shape[1] if seen.shape[1] is not None else tf.shape(seen)[1]
    d = places(d)[:, 0]
    if groups == 1:
        return OuterSum(seen[:, None, :, 0], d[:, None], kernel.shape)
    each, filters = seen.shape[3] // groups, kernel.shape[-1] // groups
    a = tf.transpose(tf.reshape(seen, tf.stack([batch, count, width, groups, each])), [0, 3, 1, 2, 4])
    a = tf.reshape(a, tf.stack([batch, groups, count, width * each]))
    d = tf.transpose(tf.reshape(d, tf.stack([batch, count, groups, filters])), [0, 2, 1, 3])
    return OuterSum(a, d, kernel.shape, layout=((groups, width * each, filters), (1, 0, 2)))


@rule(layers.Conv1D, layers.Conv2D, layers.Conv3D, tap=at_pre_activation)
def convolution(call, d):
    layer, d = call.layer, channels_last(call.layer, d[0])
    gradients = [(layer._kernel, convolution_gradient(call.inputs, d, layer, layer._kernel))]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]


def _depthwise_gradient(x, d, layer, kernel) -> OuterSum:
    """One group a channel: ``[K]`` values of the channel times the ``[M]`` outputs it makes."""
    seen = patches(x, _window(layer), _counts(d))
    batch, width, channels = tf.shape(x)[0], seen.shape[2], seen.shape[3]
    count = seen.shape[1] if seen.shape[1] is not None else tf.shape(seen)[1]
    multiplier = kernel.shape[-1]
    d = tf.reshape(d, tf.stack([batch, count, channels, multiplier]))
    layout = ((channels, width, multiplier), (1, 0, 2))
    return OuterSum(tf.transpose(seen, [0, 3, 1, 2]), tf.transpose(d, [0, 2, 1, 3]), kernel.shape, layout)


@rule(layers.DepthwiseConv1D, layers.DepthwiseConv2D, tap=at_pre_activation)
def depthwise_convolution(call, d):
    layer, d = call.layer, channels_last(call.layer, d[0])
    x = _input(layer, call.inputs)
    gradients = [(layer.kernel, _depthwise_gradient(x, d, layer, layer.kernel))]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]


@rule(layers.SeparableConv1D, layers.SeparableConv2D, tap=at_pre_activation)
def separable_convolution(call, d):
    layer, d = call.layer, tf.cast(channels_last(call.layer, d[0]), tf.float32)
    x = tf.cast(_input(layer, call.inputs), tf.float32)
    between = keras.ops.depthwise_conv(
        x,
        tf.cast(layer.depthwise_kernel, tf.float32),
        strides=layer.strides,
        padding=_window(layer).padding,
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
    layer, d = call.layer, channels_last(call.layer, d[0])
    x = channels_last(layer, call.inputs)
    gradients = [(layer.kernel, Convolved(d, x, _window(layer), layer.kernel.shape))]
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]
