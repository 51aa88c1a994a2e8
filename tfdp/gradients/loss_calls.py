"""Layers that a ``compute_loss`` of the user's own calls (a teacher, a feature extractor): run once for the lot.

Such a loss is asked about each example alone. A layer called in it on what the loss was given, or on what another such layer put
out, is called for all rows before, like the layers of the model: recorded, so that its weights' gradients have their rules. The
loss of one example then gets that example's row. That rows are the examples is found out by the self-proof as of any layer.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdp.gradients.layer_tree import all_layers, flat_tensors, instance_attribute
from tfdp.gradients.recording import Recording

_Key = tuple[int, tuple, int]  # a layer, what it was given, and how often it was given that before


class LotCalls:
    """What the outermost layers that ``compute_loss`` calls put out for the whole lot.

    Attributes:
        outputs: a structure of tensors for each call, a row for each example.
    """

    def __init__(self, model: keras.Model, record: Recording, arguments: tuple, compute_loss: Callable[..., Any]):
        self.outputs: list[Any] = []
        self._model, self._places = model, dict[_Key, int]()
        given = flat_tensors(arguments)
        batch = tf.shape(given[0])[0]
        known = {id(tensor): number for number, tensor in reversed(list(enumerate(given)))}
        seen: list[_Key] = []

        def run(layer: keras.Layer, original: Callable, args: tuple, kwargs: dict) -> Any:
            output = original(*args, **kwargs)
            key = _key(layer, (args, kwargs), known, seen)
            if key is None or not all(_may_have_rows(tensor) for tensor in keras.tree.flatten(output)):
                return output
            output = keras.tree.map_structure(lambda tensor: _of_rows(tensor, batch), output)
            before = len(flat_tensors((arguments, self.outputs)))
            self._places[key] = len(self.outputs)
            self.outputs.append(output)
            known.update({id(tensor): before + number for number, tensor in enumerate(flat_tensors(output))})
            return output

        activity, added = len(record.activity), [len(layer._losses) for layer in all_layers(model)]
        with _outermost(model, run):
            compute_loss(*arguments)
        for layer, count in zip(all_layers(model), added, strict=True):
            if (
                len(layer._losses) > count or len(record.activity) > activity
            ):  # whose losses these are, the loss decides
                self._places, self.outputs = {}, []
            del layer._losses[count:]
        del record.activity[activity:]

    @contextlib.contextmanager
    def at_hand(self, arguments: tuple, outputs: list[Any]) -> Iterator[None]:
        """Within it the same calls on ``arguments`` of one example give that example's ``outputs``."""
        tensors = flat_tensors((arguments, outputs))
        known = {id(tensor): number for number, tensor in reversed(list(enumerate(tensors)))}
        seen: list[_Key] = []

        def look_up(layer: keras.Layer, original: Callable, args: tuple, kwargs: dict) -> Any:
            place = self._places.get(_key(layer, (args, kwargs), known, seen))
            return original(*args, **kwargs) if place is None else outputs[place]

        with _outermost(self._model, look_up):
            yield


@contextlib.contextmanager
def _outermost(model: keras.Model, run: Callable) -> Iterator[None]:
    """``run(layer, original, args, kwargs)`` in place of calls of layers that no other layer makes."""
    running: list[keras.Layer] = []

    def shadow(layer: keras.Layer, original: Callable) -> Callable:
        def call(*args, **kwargs):
            if running:
                return original(*args, **kwargs)
            running.append(layer)
            try:
                return run(layer, original, args, kwargs)
            finally:
                running.pop()

        return call

    with contextlib.ExitStack() as shadows:
        for layer in all_layers(model):
            shadows.enter_context(instance_attribute(layer, "call", shadow(layer, layer.call)))
        yield


def _key(layer: keras.Layer, given: Any, known: dict[int, int], seen: list) -> _Key | None:
    """None where a call is given anything but tensors that are known and plain values."""
    what = []
    for leaf in keras.tree.flatten(given):
        if id(leaf) in known:
            what.append(("tensor", known[id(leaf)]))
        elif leaf is None or isinstance(leaf, bool | int | float | str):
            what.append((type(leaf).__name__, leaf))
        else:
            return None
    same = (id(layer), tuple(what))
    seen.append(same)
    return (*same, seen.count(same))


def _may_have_rows(tensor: Any) -> bool:
    return isinstance(tensor, tf.Tensor) and bool(tensor.shape.rank) and tensor.shape[0] is None


def _of_rows(tensor: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """The same, if it has a row for each example. Where it has not, the loss is asked without (``Plan.alone``)."""
    with tf.control_dependencies([tf.debugging.assert_equal(tf.shape(tensor)[0], batch)]):
        checked = tf.identity(tensor)
    for name in ("_keras_mask", "_keras_logits"):
        if getattr(tensor, name, None) is not None:
            setattr(checked, name, getattr(tensor, name))
    return checked
