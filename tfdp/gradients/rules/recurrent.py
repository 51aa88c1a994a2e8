"""Recurrent layers: over time, a gate's pre-activation is a time-distributed Dense output.

With ``z_t = x_t W + h_{t-1} U + b`` and ``d_t`` the gradient at ``z_t``, the gradients are ``sum_t x_t (x) d_t``,
``sum_t h_{t-1} (x) d_t`` and ``sum_t d_t``. The ``z_t`` live inside a loop, so ``d_t`` is taken from outside it: ``x_t W`` is
computed for all steps at once, and the loop (``gradients/over_time.py``) runs on it, with a cell that adds what is left of ``z_t``. The
gradient at ``x_t W`` is the one at ``z_t``. A layer's own class and ``RNN`` around its cell are the same. Cells are written out here as Keras 3 defines them; the self-proof compares.
"""

import keras
import tensorflow as tf

from tfdp.gradients.factored import Materialised, OuterSum
from tfdp.gradients.layer_tree import instance_attribute
from tfdp.gradients.over_time import over_time
from tfdp.gradients.rules.dense import places
from tfdp.gradients.rules.registry import Tapped, rule

layers = keras.layers
ops = keras.ops


def _lstm(cell, projected, states):
    h, carry = states
    z = projected + ops.matmul(h, cell.recurrent_kernel)
    i, f, c, o = ops.split(z + cell.bias if cell.use_bias else z, 4, axis=-1)
    carry = cell.recurrent_activation(f) * carry + cell.recurrent_activation(i) * cell.activation(c)
    h = cell.recurrent_activation(o) * cell.activation(carry)
    return h, [h, carry]


def _simple(cell, projected, states):
    z = projected + ops.matmul(states[0], cell.recurrent_kernel)
    h = cell.activation(z + cell.bias if cell.use_bias else z)
    return h, [h]


def _gru(cell, projected, states):
    (h,), units = states, cell.units
    bias, recurrent_bias = 0.0, 0.0
    if cell.use_bias:
        bias, recurrent_bias = (cell.bias[0], cell.bias[1]) if cell.reset_after else (cell.bias, 0.0)
    x_z, x_r, x_h = ops.split(projected + bias, 3, axis=-1)
    seen = cell.recurrent_kernel if cell.reset_after else cell.recurrent_kernel[:, : 2 * units]
    inner = ops.matmul(h, seen) + recurrent_bias
    update = cell.recurrent_activation(x_z + inner[:, :units])
    reset = cell.recurrent_activation(x_r + inner[:, units : 2 * units])
    if cell.reset_after:
        candidate = reset * inner[:, 2 * units :]
    else:
        candidate = ops.matmul(reset * h, cell.recurrent_kernel[:, 2 * units :])
    h = update * h + (1 - update) * cell.activation(x_h + candidate)
    return h, [h]


_STEPS = {layers.LSTMCell: _lstm, layers.SimpleRNNCell: _simple, layers.GRUCell: _gru}


def _runs(*cells: type):
    """Whether a layer runs a cell of these classes in the way that is written out here: without masks that are drawn for it, and without
    a state kept between lots, which would mix them."""

    def applies(layer: keras.layers.RNN) -> bool:
        cell = layer.cell
        return type(cell) in cells and not (layer.stateful or cell.dropout or cell.recurrent_dropout)

    return applies


def at_gates(layer, call, watch, args, kwargs) -> Tapped:
    """Taps ``x_t W``; keeps ``h_{t-1}`` of every step, in the order of processing."""
    cell, step = layer.cell, _STEPS[type(layer.cell)]
    arguments = dict(zip(("sequences", "initial_state", "mask", "training"), args, strict=False)) | kwargs
    x = arguments.pop("sequences")
    kernel = tf.cast(cell.kernel, x.dtype)
    projected = tf.matmul(x, kernel)
    watch(projected)

    def on_projected(inputs, states, training=False):
        return step(cell, inputs, states if isinstance(states, tuple | list) else [states])

    seen = _seen_steps(layer, arguments.get("mask"))
    start = arguments.get("initial_state")
    start = layer.get_initial_state(tf.shape(x)[0]) if start is None else start
    start = [tf.cast(state, cell.compute_dtype) for state in keras.tree.flatten(start)]
    in_order = tf.reverse(projected, [1]) if layer.go_backwards else projected
    with instance_attribute(cell, "call", on_projected):
        hidden, states = over_time(cell, in_order, start, seen)
    hidden, *states = (tf.cast(values, layer.compute_dtype) for values in (hidden, *states))
    before = _before(hidden, arguments.get("initial_state"), seen)
    put_out = hidden
    if layer.zero_output_for_mask and seen is not None:
        put_out = tf.where(seen, hidden, tf.zeros_like(hidden))
    first = put_out if layer.return_sequences else put_out[:, -1]
    return Tapped((first, *states) if layer.return_state else first, [projected], (x, before))


def _seen_steps(layer, mask) -> tf.Tensor | None:
    """``[B, T, 1]`` in the order of processing: which steps the layer does not pass over; None if it passes over none."""
    mask = mask[0] if isinstance(mask, tuple | list) else mask
    if mask is None:
        return None
    mask = tf.cast(mask, tf.bool)
    mask = mask if len(mask.shape) == 3 else mask[..., None]
    return tf.reverse(mask, [1]) if layer.go_backwards else mask


def _before(hidden: tf.Tensor, initial_state, seen: tf.Tensor | None) -> tf.Tensor:
    """The state that each step starts from: what the step before it put out.

    A step that is passed over puts out what was put out last: nothing (zeros) while no step was seen yet, though the state is
    the initial one.
    """
    start = tf.zeros_like(hidden[:, :1])
    if initial_state is not None:
        start = tf.cast(keras.tree.flatten(initial_state)[0], hidden.dtype)[:, None]
    before = tf.concat([start, hidden[:, :-1]], 1)
    if initial_state is None or seen is None:
        return before
    begun = tf.cumsum(tf.cast(seen, tf.int32), 1, exclusive=True) > 0
    return tf.where(begun, before, start)


def _seen(call, d):
    """Inputs, states before and gradients at the gates, all in the order of processing, in float32."""
    x, before = call.kept
    if call.layer.go_backwards:
        x, d = tf.reverse(x, [1]), tf.reverse(d, [1])
    return (tf.cast(t, tf.float32) for t in (x, before, d))


@rule(*(layers.LSTM, layers.SimpleRNN, layers.RNN), tap=at_gates, applies=_runs(layers.LSTMCell, layers.SimpleRNNCell))
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


@rule(layers.GRU, layers.RNN, tap=at_gates, applies=_runs(layers.GRUCell))
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
