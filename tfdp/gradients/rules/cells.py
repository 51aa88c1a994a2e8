"""The cells of recurrent layers as Keras 3 defines them: a step on ``x_t W``, and what weights were multiplied by over time.

Masks are lists: empty without dropout, else one mask for all gates or one for each. They are ``[B, 1, n]`` or ``[B, n]``, the same at all steps.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from tfdp.gradients.factored import Materialised, OuterSum
from tfdp.gradients.rules.dense import places
from tfdp.gradients.rules.registry import Gradients

layers, ops = keras.layers, keras.ops


class Cell(NamedTuple):
    """``step(cell, x_t W, states, masks of states)`` gives output and states; ``gradients(cell, x, its masks, h before each step, its masks, x W,
    gradient at the gates)``, in float32, gives those of its weights."""

    step: Callable
    gradients: Callable[..., Gradients]


def masked(values: tf.Tensor, masks: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """What the gates see: all the same, or each its own."""
    return [values * mask for mask in masks] or [values]


def product(values: tf.Tensor, kernel, masks: Sequence[tf.Tensor]) -> tf.Tensor:
    """``values @ kernel``, for each gate with its own mask."""
    seen = masked(values, masks)
    kernels = ops.split(kernel, len(seen), axis=1) if len(seen) > 1 else [kernel]
    products = [ops.matmul(own, part) for own, part in zip(seen, kernels, strict=True)]
    return ops.concatenate(products, axis=-1) if len(products) > 1 else products[0]


def at_all_steps(masks: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [mask[:, None] for mask in masks]


def _outer_sum(seen: Sequence[tf.Tensor], d: tf.Tensor, kernel: keras.Variable) -> OuterSum:
    """``sum_t seen_t (x) d_t``: of all gates at once, or of each by itself."""
    if len(seen) == 1:
        return OuterSum(places(seen[0]), places(d), kernel.shape)
    p, q = kernel.shape[0], kernel.shape[1] // len(seen)
    by_gate = tf.stack(tf.split(d, len(seen), axis=-1), 1)
    return OuterSum(tf.stack(seen, 1), by_gate, kernel.shape, layout=((len(seen), p, q), (1, 0, 2)))


def _lstm(cell, projected, states, masks):
    h, carry = states
    z = projected + product(h, cell.recurrent_kernel, masks)
    i, f, c, o = ops.split(z + cell.bias if cell.use_bias else z, 4, axis=-1)
    carry = cell.recurrent_activation(f) * carry + cell.recurrent_activation(i) * cell.activation(c)
    h = cell.recurrent_activation(o) * cell.activation(carry)
    return h, [h, carry]


def _simple(cell, projected, states, masks):
    z = projected + product(states[0], cell.recurrent_kernel, masks)
    h = cell.activation(z + cell.bias if cell.use_bias else z)
    return h, [h]


def _of_sums(cell, x, x_masks, before, masks, _, d):
    """Where a pre-activation is ``x W + h U + b``."""
    gradients = [
        (cell.kernel, _outer_sum(masked(x, at_all_steps(x_masks)), d, cell.kernel)),
        (cell.recurrent_kernel, _outer_sum(masked(before, at_all_steps(masks)), d, cell.recurrent_kernel)),
    ]
    if cell.use_bias:
        gradients.append((cell.bias, Materialised(tf.reduce_sum(d, 1), cell.bias.shape)))
    return gradients


def _gru(cell, projected, states, masks):
    (h,), gates, candidate = states, slice(2 * cell.units), slice(2 * cell.units, None)
    bias, recurrent_bias = 0.0, 0.0
    if cell.use_bias:
        bias, recurrent_bias = (cell.bias[0], cell.bias[1]) if cell.reset_after else (cell.bias, 0.0)
    x = projected + bias
    if cell.reset_after:
        inner = product(h, cell.recurrent_kernel, masks) + recurrent_bias
    else:
        inner = product(h, cell.recurrent_kernel[:, gates], masks[:2])
    update, reset = ops.split(cell.recurrent_activation(x[:, gates] + inner[:, gates]), 2, axis=-1)
    if cell.reset_after:
        inner = reset * inner[:, candidate]
    else:
        inner = product(reset * h, cell.recurrent_kernel[:, candidate], masks[2:])
    h = update * h + (1 - update) * cell.activation(x[:, candidate] + inner)
    return h, [h]


def _of_gru(cell, x, x_masks, before, masks, projected, d):
    """The candidate sees the state through the reset gate ``r``: ``r * (h U + b)`` or, with ``reset_after=False``,
    ``(r * h) U``. The gate is computed again for all steps at once."""
    gate = slice(cell.units, 2 * cell.units)
    masks = at_all_steps(masks)
    z = projected[..., gate] + product(before, tf.cast(cell.recurrent_kernel, tf.float32)[:, gate], masks[1:2])
    if cell.use_bias:
        bias = tf.reshape(tf.cast(cell.bias, tf.float32), [-1, 3 * cell.units])
        z += tf.reduce_sum(bias, 0)[gate]
    reset = cell.recurrent_activation(z)
    seen, inner = masked(before, masks), d
    if cell.reset_after:
        inner = tf.concat([d[..., : 2 * cell.units], d[..., 2 * cell.units :] * reset], 2)
    else:
        *seen, last = seen if masks else [before] * 3
        seen.append(reset * last)
    gradients = [
        (cell.kernel, _outer_sum(masked(x, at_all_steps(x_masks)), d, cell.kernel)),
        (cell.recurrent_kernel, _outer_sum(seen, inner, cell.recurrent_kernel)),
    ]
    if cell.use_bias:
        sums = [tf.reduce_sum(d, 1)] + ([tf.reduce_sum(inner, 1)] if cell.reset_after else [])
        gradients.append((cell.bias, Materialised(tf.stack(sums, 1), cell.bias.shape)))
    return gradients


WRITTEN_OUT = {
    layers.LSTMCell: Cell(_lstm, _of_sums),
    layers.SimpleRNNCell: Cell(_simple, _of_sums),
    layers.GRUCell: Cell(_gru, _of_gru),
}
