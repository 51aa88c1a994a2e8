"""Run a function once an example, on batches of one, and stack the results.

Three ways, tried in this order until one runs (``gradients/proof.py`` tries them before the first step):

* ``"xla"``: vectorised and compiled, in chunks of a fixed number of examples, so that one compilation serves every lot;
* ``"vectorized"``: ``tf.vectorized_map`` without XLA, for layers with loops (recurrent ones). Only for those: with the
  transposed matrix products of attention its kernels crash the process on CPU;
* ``"map"``: one example after the other. Always works.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

CHUNK = 32
XLA = "xla"
VECTORIZED = "vectorized"
MAP = "map"


def modes_for(layer: keras.Layer) -> list[str]:
    """The ways to run this layer an example at a time, fastest first."""
    loops = any(isinstance(part, keras.layers.RNN) for part in layer._flatten_layers())
    return [MAP] if loops else [XLA, MAP]


def each_example(function: Callable, batch: tf.Tensor, tensors: list[tf.Tensor], mode: str) -> Any:
    """``function([t[i:i+1] for t in tensors])`` for each ``i < batch``; its tensors are stacked along a new first axis."""
    index = tf.range(batch)

    def one(elements):
        return function([element[None] for element in elements[:-1]], elements[-1])

    elements = [*tensors, index]
    if mode == VECTORIZED:
        return tf.vectorized_map(one, elements, fallback_to_while_loop=True)
    if mode == XLA:
        return _in_chunks(one, batch, elements)
    signature = _signature(one, elements)
    return tf.map_fn(one, elements, fn_output_signature=signature)


def _signature(one: Callable, elements: list[tf.Tensor]) -> Any:
    specs = [tf.TensorSpec(e.shape[1:], e.dtype) for e in elements]
    traced = tf.function(one, autograph=False).get_concrete_function(specs)
    return (
        traced.structured_outputs
        if _is_spec(traced.structured_outputs)
        else keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), traced.structured_outputs)
    )


def _is_spec(structure: Any) -> bool:
    return all(isinstance(leaf, tf.TensorSpec) for leaf in keras.tree.flatten(structure))


def _in_chunks(one: Callable, batch: tf.Tensor, elements: list[tf.Tensor]) -> Any:
    @tf.function(jit_compile=True, autograph=False)
    def chunk(parts):
        return tf.vectorized_map(one, parts, fallback_to_while_loop=False)

    count = -(-batch // CHUNK)
    missing = count * CHUNK - batch

    def cut(element):
        padded = tf.pad(element, [[0, missing], *([[0, 0]] * (len(element.shape) - 1))], mode="CONSTANT")
        return tf.reshape(padded, tf.concat([[count, CHUNK], tf.shape(element)[1:]], 0))

    chunks = [cut(element) for element in elements]
    for piece, element in zip(chunks, elements, strict=True):
        piece.set_shape([None, CHUNK, *element.shape[1:]])
    results = tf.map_fn(chunk, chunks, fn_output_signature=_signature(lambda parts: chunk(parts), chunks))
    return keras.tree.map_structure(
        lambda r: tf.reshape(r, tf.concat([[count * CHUNK], tf.shape(r)[2:]], 0))[:batch], results
    )
