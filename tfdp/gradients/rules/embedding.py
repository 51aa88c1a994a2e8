"""Embedding: an example's gradient is made of the rows it looked up. A ReversibleEmbedding multiplies by the same table as well."""

import math

import keras
import tensorflow as tf

from tfdp.gradients.factored import OuterSum, Rows, in_shape
from tfdp.gradients.layer_tree import instance_attribute
from tfdp.gradients.rules.dense import places
from tfdp.gradients.rules.registry import Tapped, at_output, rule


def ids_and_gradients(ids: tf.Tensor, d: tf.Tensor, height: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """``[B, T]`` and ``[B, T, width]`` of a table of that size."""
    ids = tf.cast(ids, tf.int64)
    ids = tf.where(ids < 0, ids + height, ids)  # as keras.ops.take reads negative ids
    ids = tf.clip_by_value(ids, 0, height - 1)  # as XLA reads them; others would be rows of the next example
    sizes = ids.shape[1:]
    count = math.prod(sizes) if all(size is not None for size in sizes) else -1
    return in_shape(ids, count), in_shape(d, count, width)


def _looked_up(call, d):
    table = call.layer._embeddings
    return [(table, Rows(*ids_and_gradients(call.inputs, d, *table.shape), table.shape))]


@rule(keras.layers.Embedding, tap=at_output)
def embedding(call, d):
    return _looked_up(call, d[0])


def at_output_or_logits(layer, call, watch, args, kwargs) -> Tapped:
    """In reverse, a tap before logits are capped. What is kept says which it was."""
    reverse = kwargs.get("reverse", args[1] if len(args) > 1 else False)
    if not reverse:
        return at_output(layer, call, watch, args, kwargs)
    cap = layer.logit_soft_cap
    with instance_attribute(layer, "logit_soft_cap", None):
        logits = call(*args, **kwargs)
    watch(logits)
    capped = logits if cap is None else keras.ops.tanh(logits / cap) * cap
    return Tapped(capped, [logits], "reverse")


@rule(
    *({keras.layers.ReversibleEmbedding} if hasattr(keras.layers, "ReversibleEmbedding") else ()),
    tap=at_output_or_logits,
)
def reversible_embedding(call, d):
    layer, (d,) = call.layer, d
    if call.kept != "reverse":
        return _looked_up(call, d)
    h = call.inputs
    if layer.tie_weights:
        return [(layer._embeddings, OuterSum(places(d), places(h), layer._embeddings.shape))]
    return [(layer.reverse_embeddings, OuterSum(places(h), places(d), layer.reverse_embeddings.shape))]
