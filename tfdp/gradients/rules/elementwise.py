"""Weights that act on one element each: the scale and offset of normalisations, PReLU's slopes.

Such a weight's gradient in an example is an elementwise product, summed over the axes the weight is shared along.
"""

import contextlib

import keras
import tensorflow as tf

from tfdp.gradients.factored import Materialised
from tfdp.gradients.layer_tree import instance_attribute
from tfdp.gradients.rules.registry import at_output, rule

layers = keras.layers


def _summed(product: tf.Tensor, variable, kept_axes) -> tuple[keras.Variable, Materialised]:
    rank = len(product.shape)
    kept = {axis % rank for axis in kept_axes}
    others = [axis for axis in range(1, rank) if axis not in kept]
    product = tf.cast(product, tf.float32)
    return variable, Materialised(tf.reduce_sum(product, others) if others else product, variable.shape)


def _affine(layer, d, normalised, scale, offset, kept_axes):
    gradients = []
    if scale is not None:
        product = tf.cast(d, tf.float32) * tf.cast(normalised, tf.float32)
        gradients.append(_summed(product, scale, kept_axes))
    if offset is not None:
        gradients.append(_summed(d, offset, kept_axes))
    return gradients


def _axes(layer) -> list[int]:
    return [layer.axis] if isinstance(layer.axis, int) else list(layer.axis)


@rule(layers.LayerNormalization, tap=at_output)
def layer_normalization(call, d):
    layer = call.layer
    normalised = keras.ops.layer_normalization(
        call.inputs, None, None, layer.axis, layer.epsilon, rms_scaling=layer.rms_scaling
    )
    return _affine(layer, d[0], normalised, layer.gamma, layer.beta, _axes(layer))


@rule(layers.RMSNormalization, tap=at_output)
def rms_normalization(call, d):
    layer = call.layer
    normalised = keras.ops.rms_normalization(call.inputs, scale=None, axis=layer.axis, epsilon=layer.epsilon)
    return _affine(layer, d[0], normalised, layer.scale, None, _axes(layer))


@rule(layers.GroupNormalization, tap=at_output)
def group_normalization(call, d):
    layer = call.layer
    with contextlib.ExitStack() as plain:
        for switch in ("scale", "center"):
            plain.enter_context(instance_attribute(layer, switch, False))
        normalised = layer.call(call.inputs)
    return _affine(layer, d[0], normalised, layer.gamma, layer.beta, _axes(layer))


@rule(layers.BatchNormalization, tap=at_output)
def batch_normalization(call, d):
    """By the moving statistics: by those of the lot examples would meet, and the self-proof refuses the model."""
    layer = call.layer
    with contextlib.ExitStack() as plain:
        for switch in ("scale", "center"):
            plain.enter_context(instance_attribute(layer, switch, False))
        normalised = keras.layers.BatchNormalization.call(layer, call.inputs, training=False)
    return _affine(layer, d[0], normalised, layer.gamma, layer.beta, [layer.axis])


@rule(layers.PReLU, tap=at_output)
def prelu(call, d):
    """``y = relu(x) - alpha relu(-x)``, so ``dy/dalpha = min(x, 0)``."""
    layer = call.layer
    shared = set(layer.shared_axes or ())
    kept = [axis for axis in range(1, len(d[0].shape)) if axis not in shared]
    return [_summed(d[0] * tf.minimum(call.inputs, 0), layer.alpha, kept)]
