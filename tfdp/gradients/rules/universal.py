"""The universal rule: any layer, run again one example at a time.

With ``d_i`` the gradient of example i's loss at the layer's output for it, the gradient in the layer's weights is that of
``<layer(x_i), d_i>`` plus that of the losses the layer itself adds. It holds for every deterministic layer in which
examples do not meet (the self-proof checks that). A layer that draws random numbers can't be run again with the same
ones; the self-proof then takes the whole model at once (``gradients/whole.py``).
"""

from typing import Any

import keras
import tensorflow as tf

from tfdp.gradients.factored import Materialised
from tfdp.gradients.layer_tree import added_losses, differentiable, flat_tensors, instance_attribute
from tfdp.gradients.per_example import each_example
from tfdp.gradients.recording import Call
from tfdp.gradients.rules.registry import Rule, at_output, tapped


def universal(variables: list[keras.Variable], mode: str, loss_scale: float) -> Rule:
    """The rule for a layer of which these weights (its own or of layers inside it) are wanted.

    ``d`` carries ``loss_scale`` already; the losses that the layer adds in the replay get it here.
    """

    def gradients(call: Call, d: list[tf.Tensor | None]):
        return _replayed(call, d, variables, mode, loss_scale)

    return Rule("universal", gradients, at_output)


def _replayed(call: Call, d, variables, mode, loss_scale):
    arguments = (call.args, call.kwargs)
    batched = [leaf for leaf in flat_tensors(arguments) if is_batched(leaf)]
    reached = [cotangent is not None for cotangent in d]
    cotangents = [cotangent for cotangent in d if cotangent is not None]
    marks = [(leaf, getattr(leaf, "_keras_mask", None)) for leaf in batched]
    masks = [mask for _, mask in marks if mask is not None]
    if not batched:
        raise ValueError(f"The layer {call.layer.name!r} was called without any tensor that has a row an example.")

    def one_example(slices, _):
        own = slices[: len(batched)]
        own_masks = iter(slices[len(batched) : len(batched) + len(masks)])
        for part, (_, mask) in zip(own, marks, strict=True):
            if mask is not None:
                part._keras_mask = next(own_masks)
        own_cotangents = slices[len(batched) + len(masks) :]
        args, kwargs = _substituted(arguments, batched, own)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(differentiable(variables))
            with instance_attribute(call.layer, "activity_regularizer", None):  # it is part of d
                output = call.layer(*args, **{"training": True, **kwargs})
            outputs = [leaf for leaf, used in zip(tapped(output), reached, strict=True) if used]
            objective = [tf.reduce_sum(o * c) for o, c in zip(outputs, own_cotangents, strict=True)]
            objective += [tf.reduce_sum(loss) * loss_scale for loss in added_losses(call.layer)]
        found = tape.gradient(objective, differentiable(variables))
        return [
            tf.zeros(variable.shape) if g is None else tf.cast(tf.convert_to_tensor(g), tf.float32)
            for g, variable in zip(found, variables, strict=True)
        ]

    batch = tf.shape(batched[0])[0]
    found = each_example(one_example, batch, [*batched, *masks, *cotangents], mode)
    return [(v, Materialised(g, v.shape)) for v, g in zip(variables, found, strict=True)]


def is_batched(tensor: tf.Tensor) -> bool:
    """Whether the first dimension may be that of the examples: lots have no fixed size, so it is unknown to the graph."""
    return len(tensor.shape) > 0 and tensor.shape[0] is None


def _substituted(structure: Any, batched: list[tf.Tensor], own: list[tf.Tensor]) -> Any:
    places = {id(leaf): part for leaf, part in zip(batched, own, strict=True)}
    return keras.tree.map_structure(lambda leaf: places.get(id(leaf), leaf), structure)
