"""ConvLSTM: a gate's pre-activation is the output of a convolution of every frame, and of one of every state.

With ``z_t = x_t * W + h_{t-1} * U + b`` and ``d_t`` the gradient at ``z_t``, the gradients are those of two convolutions over the frames,
and ``sum d``. As in ``recurrent``, the layer's own loop runs on the ``x_t * W`` of all steps, made outside of it, where ``d_t`` is
taken. A convolution of every frame is one of the film whose kernel is one frame long.
"""

import contextlib

import keras
import tensorflow as tf

from tfdp.gradients.convolved import Convolved, Window
from tfdp.gradients.layer_tree import attributes, instance_attribute
from tfdp.gradients.rules.dense import bias_gradient
from tfdp.gradients.rules.registry import Tapped, rule

layers, ops = keras.layers, keras.ops


def _applies(layer) -> bool:
    """To the cell that is written out here, without masks that are drawn, and without a state kept between lots, which would mix them."""
    cell = layer.cell
    own_cell = type(cell).__module__ == layers.ConvLSTM2D.call.__module__
    drawn = cell.dropout or cell.recurrent_dropout
    return own_cell and cell.data_format == "channels_last" and not (layer.stateful or drawn)


def _step(cell, convolved, states):
    h, carry = states
    z = convolved + cell.recurrent_conv(h, cell.recurrent_kernel)
    i, f, c, o = ops.split(z + cell.bias if cell.use_bias else z, 4, axis=-1)
    carry = cell.recurrent_activation(f) * carry + cell.recurrent_activation(i) * cell.activation(c)
    h = cell.recurrent_activation(o) * cell.activation(carry)
    return h, [h, carry]


def at_convolved_gates(layer, call, watch, args, kwargs) -> Tapped:
    """Taps ``x_t * W``; keeps ``h_{t-1}`` of every step, in the order of processing."""
    cell = layer.cell
    arguments = dict(zip(("sequences", "initial_state", "mask", "training"), args, strict=False)) | kwargs
    x = arguments.pop("sequences")
    if arguments.get("mask") is not None:
        raise ValueError("it is called with a mask")
    frames = cell.input_conv(tf.reshape(x, [-1, *x.shape[2:]]), tf.cast(cell.kernel, x.dtype), padding=cell.padding)
    convolved = tf.reshape(frames, tf.concat([tf.shape(x)[:2], tf.shape(frames)[1:]], 0))
    convolved = tf.ensure_shape(convolved, [*x.shape[:2], *frames.shape[1:]])
    watch(convolved)
    with contextlib.ExitStack() as shadows:
        shadows.enter_context(instance_attribute(cell, "call", lambda z, states, **_: _step(cell, z, states)))
        shadows.enter_context(attributes([cell], "input_spec", [None]))
        shadows.enter_context(instance_attribute(layer, "return_sequences", True))
        output = call(convolved, **arguments)
    hidden, *states = output if isinstance(output, tuple | list) else [output]
    start = tf.zeros_like(hidden[:, :1])
    if arguments.get("initial_state") is not None:
        start = tf.cast(arguments["initial_state"][0], hidden.dtype)[:, None]
    before = tf.concat([start, hidden[:, :-1]], 1)
    first = hidden if layer.return_sequences else hidden[:, -1]
    return Tapped((first, *states) if states else first, [convolved], (x, before))


@rule(layers.ConvLSTM1D, layers.ConvLSTM2D, tap=at_convolved_gates, applies=_applies)
def convolutional_lstm(call, d):
    layer, cell, (d,) = call.layer, call.layer.cell, d
    x, before = call.kept
    if layer.go_backwards:
        x, d = tf.reverse(x, [1]), tf.reverse(d, [1])
    alone = (1,) * cell.rank
    seen = Window((1, *cell.kernel_size), (1, *cell.strides), (1, *cell.dilation_rate), cell.padding)
    felt = Window((1, *cell.kernel_size), (1, *alone), (1, *alone), "same")
    gradients = [
        (cell.kernel, Convolved(x, d, seen, cell.kernel.shape)),
        (cell.recurrent_kernel, Convolved(before, d, felt, cell.recurrent_kernel.shape)),
    ]
    return [*gradients, bias_gradient(cell.bias, d)] if cell.use_bias else gradients
