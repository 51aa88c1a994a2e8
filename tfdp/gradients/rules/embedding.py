"""Embedding: an example's gradient is made of the rows it looked up."""

import math

import keras
import tensorflow as tf

from tfdp.gradients.factored import Rows, in_shape
from tfdp.gradients.rules.registry import at_output, rule


@rule(keras.layers.Embedding, tap=at_output)
def embedding(call, d):
    table = call.layer._embeddings
    ids = tf.cast(call.inputs, tf.int64)
    ids = tf.where(ids < 0, ids + table.shape[0], ids)  # as keras.ops.take reads negative ids
    sizes = ids.shape[1:]
    count = math.prod(sizes) if all(size is not None for size in sizes) else -1
    return [(table, Rows(in_shape(ids, count), in_shape(d[0], count, table.shape[1]), table.shape))]
