"""Reads of weights, told while they happen."""

import contextlib
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from tfdp.gradients.layer_tree import components
from tfdp.gradients.shadows import shadowed

_VARIABLE = resource_variable_ops.BaseResourceVariable
_READS = ("_read_variable_op", "sparse_read", "gather_nd")
Note = Callable[[keras.Variable, tf.Tensor], None]


@contextlib.contextmanager
def noted_reads(model: keras.Model, note: Note) -> Iterator[None]:
    """``note`` is told of every read of a trainable weight of the model."""
    weights = {id(part): v for v in model.trainable_variables for part in (v.value, *components(v.value))}

    def read(original, variable, *args, **kwargs):
        value = original(variable, *args, **kwargs)
        if id(variable) in weights:
            note(weights[id(variable)], value)
        return value

    with contextlib.ExitStack() as shadows:
        for name in _READS:
            shadows.enter_context(shadowed(_VARIABLE, name, read))
        yield
