"""Recurrent layers: over time, a gate's pre-activation is a time-distributed Dense output.

With ``z_t = x_t W + h_{t-1} U + b`` and ``d_t`` the gradient at ``z_t``, the gradients are ``sum_t x_t (x) d_t``,
``sum_t h_{t-1} (x) d_t`` and ``sum_t d_t``. The ``z_t`` live inside a loop, so ``d_t`` is taken from outside it: ``x_t W`` is
computed for all steps at once, and the loop (``gradients/over_time.py``) runs on it, with a cell that adds what is left of ``z_t``. The
gradient at ``x_t W`` is the one at ``z_t``.

Dropout multiplies ``x_t`` and ``h_{t-1}`` by masks that are drawn once for all steps. They are drawn here, before the loop, and kept: the
gradients are those of the masked inputs and states. Stacked cells run one after the other, each over the whole sequence. A layer's own
class and ``RNN`` around its cell are the same. Cells are written out in ``rules/cells.py``; the self-proof compares.
"""

import keras
import tensorflow as tf

from tfdp.gradients.layer_tree import instance_attribute
from tfdp.gradients.over_time import over_time
from tfdp.gradients.rules.cells import WRITTEN_OUT, at_all_steps, product
from tfdp.gradients.rules.registry import Tapped, rule

layers = keras.layers


def _cells(layer: layers.RNN) -> list[keras.Layer]:
    return list(layer.cell.cells) if type(layer.cell) is layers.StackedRNNCells else [layer.cell]


def _is_written_out(layer: layers.RNN) -> bool:
    """Whether it runs its cells in the way that is written out here: not with a state that is kept between lots, which would mix
    them, nor with masks that Keras draws and leaves unused, or that leave nothing."""
    cells = _cells(layer)
    if layer.stateful or any(type(cell) not in WRITTEN_OUT for cell in cells):
        return False
    if len(cells) > 1 and any(cell.compute_dtype != layer.compute_dtype for cell in cells):
        return False
    used = all(not cell.recurrent_dropout or getattr(cell, "implementation", 1) == 1 for cell in cells)
    return used and all(cell.dropout < 1 and cell.recurrent_dropout < 1 for cell in cells)


def at_gates(layer, call, watch, args, kwargs) -> Tapped:
    """Taps ``x_t W`` of each cell; keeps what its weights were multiplied by, all steps in the order of processing."""
    arguments = dict(zip(("sequences", "initial_state", "mask", "training"), args, strict=False)) | kwargs
    x, given, training = arguments["sequences"], arguments.get("initial_state"), bool(arguments.get("training"))
    seen = _seen_steps(arguments.get("mask"))
    if layer.go_backwards:
        x, seen = tf.reverse(x, [1]), None if seen is None else tf.reverse(seen, [1])
    cells, stacked = _cells(layer), type(layer.cell) is layers.StackedRNNCells
    starts = ([None] * len(cells) if given is None else given) if stacked else [given]
    taps, kept, last_states, hidden = [], [], [], x
    for cell, start in zip(cells, starts, strict=True):
        masks = _drawn_masks(cell, hidden, start, training)
        projected = product(hidden, tf.cast(cell.kernel, hidden.dtype), at_all_steps(masks[0]))
        watch(projected)
        taps.append(projected)
        inputs = hidden
        hidden, states = _states_of(layer, cell, masks[1], projected, start, seen)
        kept.append((inputs, masks[0], _before(hidden, start, seen), masks[1], projected))
        last_states.append(states)
    if layer.zero_output_for_mask and seen is not None:
        hidden = tf.where(seen, hidden, tf.zeros_like(hidden))
    output = hidden if layer.return_sequences else hidden[:, -1]
    if not layer.return_state:
        return Tapped(output, taps, kept)
    states = last_states[0]
    if stacked:
        structure = layer.get_initial_state(tf.shape(x)[0]) if given is None else given
        states = keras.tree.pack_sequence_as(structure, keras.tree.flatten(last_states))
    return Tapped((output, *states), taps, kept)


def _drawn_masks(cell, x: tf.Tensor, start, training: bool) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """What inputs and states are multiplied by at every step, drawn as Keras draws it: no mask, one, or one for each gate."""
    states = cell.get_initial_state(batch_size=tf.shape(x)[0]) if start is None else start
    state = tf.cast(keras.tree.flatten(states)[0], cell.compute_dtype)
    drawn = cell.get_dropout_mask(x[:, 0]), cell.get_recurrent_dropout_mask(state)
    cell.reset_dropout_mask()
    cell.reset_recurrent_dropout_mask()
    return tuple(keras.tree.flatten(masks) if training and masks is not None else [] for masks in drawn)


def _states_of(layer, cell, masks, projected, start, seen) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The state after each step, and the last ones."""
    step = WRITTEN_OUT[type(cell)].step

    def on_projected(inputs, states, training=False):
        return step(cell, inputs, list(states), masks)

    start = cell.get_initial_state(batch_size=tf.shape(projected)[0]) if start is None else start
    start = [tf.cast(state, cell.compute_dtype) for state in keras.tree.flatten(start)]
    with instance_attribute(cell, "call", on_projected):
        hidden, states = over_time(cell, projected, start, seen)
    hidden, *states = (tf.cast(values, layer.compute_dtype) for values in (hidden, *states))
    return hidden, states


def _seen_steps(mask) -> tf.Tensor | None:
    """``[B, T, 1]``: which steps the layer does not pass over; None if it passes over none."""
    mask = mask[0] if isinstance(mask, tuple | list) else mask
    if mask is None:
        return None
    mask = tf.cast(mask, tf.bool)
    return mask if len(mask.shape) == 3 else mask[..., None]


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


@rule(layers.LSTM, layers.GRU, layers.SimpleRNN, layers.RNN, tap=at_gates, applies=_is_written_out)
def recurrent(call, d):
    gradients = []
    for cell, kept, at_gates_of_cell in zip(_cells(call.layer), call.kept, d, strict=True):
        if at_gates_of_cell is not None:
            *kept, last = keras.tree.map_structure(lambda t: tf.cast(t, tf.float32), (*kept, at_gates_of_cell))
            gradients += WRITTEN_OUT[type(cell)].gradients(cell, *kept, last)
    return gradients
