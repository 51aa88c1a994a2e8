"""Recurrent layers: over time, a gate's pre-activation is a time-distributed Dense output.

With ``z_t = x_t W + h_{t-1} U + b`` and ``d_t`` the gradient at ``z_t``, the gradients are ``sum_t x_t (x) d_t``,
``sum_t h_{t-1} (x) d_t`` and ``sum_t d_t``. The ``z_t`` live inside a loop, so ``d_t`` is taken from outside it: the layer
runs on the inputs ``[x_t, e_t]`` with the kernel ``[W; I]`` and ``e_t = 0``, which changes nothing and makes the gradient at
``e_t`` the one at ``z_t``.
"""

import contextlib

import keras
import tensorflow as tf

from tfdp.gradients.factored import Materialised, OuterSum
from tfdp.gradients.layer_tree import instance_attribute
from tfdp.gradients.rules.dense import places
from tfdp.gradients.rules.registry import Tapped, rule

layers = keras.layers
CELLS = {layers.LSTM: layers.LSTMCell, layers.SimpleRNN: layers.SimpleRNNCell, layers.GRU: layers.GRUCell}


def _applies(layer: keras.layers.RNN) -> bool:
    """Masks of dropout are drawn inside the loop; a state kept between lots would mix them."""
    cell = layer.cell
    return (
        any(isinstance(layer, family) and type(cell) is kind for family, kind in CELLS.items())
        and not cell.dropout
        and not cell.recurrent_dropout
        and not layer.stateful
        and not layer.zero_output_for_mask
    )


def at_gates(layer, call, watch, args, kwargs) -> Tapped:
    """Taps ``e_t``; keeps ``h_t`` of every step, in the order of processing."""
    cell = layer.cell
    arguments = dict(zip(("sequences", "initial_state"), args, strict=False)) | kwargs
    x = arguments.pop("sequences")
    width = cell.kernel.shape[1]
    extra = tf.zeros(tf.concat([tf.shape(x)[:2], [width]], 0), x.dtype)
    extra.set_shape([*x.shape[:2], width])
    watch(extra)
    widened = tf.concat([tf.cast(cell.kernel, x.dtype), tf.eye(width, dtype=x.dtype)], 0)
    with contextlib.ExitStack() as shadows:
        shadows.enter_context(instance_attribute(cell, "kernel", widened))
        shadows.enter_context(instance_attribute(layer, "return_sequences", True))
        output = call(tf.concat([x, extra], 2), **arguments)
    hidden, *states = output if isinstance(output, tuple | list) else [output]
    first = hidden if layer.return_sequences else hidden[:, -1]
    initial = arguments.get("initial_state")
    start = tf.zeros_like(hidden[:, :1])
    if initial is not None:
        start = tf.cast(keras.tree.flatten(initial)[0], hidden.dtype)[:, None]
    before = tf.concat([start, hidden[:, :-1]], 1)
    return Tapped((first, *states) if states else first, [extra], (x, before))


def _seen(call, d):
    """Inputs, states before and gradients at the gates, all in the order of processing, in float32."""
    x, before = call.kept
    if call.layer.go_backwards:
        x, d = x[:, ::-1], d[:, ::-1]
    return (tf.cast(t, tf.float32) for t in (x, before, d))


@rule(layers.LSTM, layers.SimpleRNN, tap=at_gates, applies=_applies)
def recurrent(call, d):
    cell = call.layer.cell
    x, before, d = _seen(call, d[0])
    gradients = [
        (cell.kernel, OuterSum(places(x), places(d), cell.kernel.shape)),
        (cell.recurrent_kernel, OuterSum(places(before), places(d), cell.recurrent_kernel.shape)),
    ]
    if cell.use_bias:
        gradients.append((cell.bias, Materialised(tf.reduce_sum(d, 1), cell.bias.shape)))
    return gradients


@rule(layers.GRU, tap=at_gates, applies=_applies)
def gated_recurrent_unit(call, d):
    """The candidate sees the state through the reset gate ``r``: ``r * (h U + b)`` or, with ``reset_after=False``,
    ``(r * h) U``. The gate is computed again for all steps at once."""
    cell = call.layer.cell
    x, before, d = _seen(call, d[0])
    reset = slice(cell.units, 2 * cell.units)
    kernel, recurrent = (tf.cast(w, tf.float32) for w in (cell.kernel, cell.recurrent_kernel))
    gate = tf.matmul(x, kernel[:, reset]) + tf.matmul(before, recurrent[:, reset])
    if cell.use_bias:
        bias = tf.reshape(tf.cast(cell.bias, tf.float32), [-1, 3 * cell.units])
        gate += tf.reduce_sum(bias, 0)[reset]
    gate = cell.recurrent_activation(gate)
    gates, candidate = d[..., : 2 * cell.units], d[..., 2 * cell.units :]
    if cell.reset_after:
        inner = tf.concat([gates, candidate * gate], 2)
        recurrent_gradient = OuterSum(places(before), places(inner), cell.recurrent_kernel.shape)
    else:  # two products in one: the gates see h, the candidate sees r * h
        a = tf.concat([before, gate * before], 1)
        c = tf.concat(
            [
                tf.pad(gates, [[0, 0], [0, 0], [0, cell.units]]),
                tf.pad(candidate, [[0, 0], [0, 0], [2 * cell.units, 0]]),
            ],
            1,
        )
        recurrent_gradient = OuterSum(places(a), places(c), cell.recurrent_kernel.shape)
    gradients = [
        (cell.kernel, OuterSum(places(x), places(d), kernel.shape)),
        (cell.recurrent_kernel, recurrent_gradient),
    ]
    if cell.use_bias:
        sums = [tf.reduce_sum(d, 1)] + ([tf.reduce_sum(inner, 1)] if cell.reset_after else [])
        gradients.append((cell.bias, Materialised(tf.stack(sums, 1), cell.bias.shape)))
    return gradients
