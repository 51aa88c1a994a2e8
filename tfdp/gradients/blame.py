"""Which layer it is that lets examples meet, and what a refusal says of it."""

import dataclasses
import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.layers.preprocessing.image_preprocessing.base_image_preprocessing_layer import (
    BaseImagePreprocessingLayer,
)

from tfdp.gradients.draws import SEED, drawing_from, following
from tfdp.gradients.fixed_batch import fixed_batch_size
from tfdp.gradients.layer_tree import all_layers, flat_tensors
from tfdp.gradients.losses import OwnLosses
from tfdp.gradients.made_up import size_of
from tfdp.gradients.recording import recording
from tfdp.gradients.rows import by_row
from tfdp.gradients.rules.registry import Rule, Tapped, copied
from tfdp.gradients.state import BATCH_NORM_CURE, layer_in_scope
from tfdp.gradients.trial import Trial, unpacked


class MixesExamples(ValueError):
    """An example's loss or gradient depends on the other examples of its lot."""


@dataclasses.dataclass(frozen=True)
class Situation:
    """An example in company: a lot, the example's place there, the order of the random numbers, and what each row's loss
    counts."""

    lot: Any
    place: int
    order: np.ndarray
    scales: np.ndarray


@dataclasses.dataclass
class _Passed:
    """What went through one call for one example, forward and back."""

    layer: keras.Layer
    depth: int
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]
    back_from_outputs: list[np.ndarray]
    back_to_inputs: list[np.ndarray]


def first_mixing_layer(trial: Trial, one: Situation, other: Situation, tolerance: float) -> keras.Layer | None:
    """The innermost layer that makes of the same inputs another output, or of the same gradient another one."""
    passes = [_passed(trial, situation) for situation in (one, other)]
    if len(passes[0]) != len(passes[1]):
        return None
    pairs = list(zip(*passes, strict=True))

    def same(name: str, here: _Passed, there: _Passed) -> bool:
        one, other = getattr(here, name), getattr(there, name)
        return len(one) == len(other) and all(_close(a, b, tolerance) for a, b in zip(one, other, strict=True))

    for here, there in pairs:
        if same("inputs", here, there) and not same("outputs", here, there):
            return here.layer
    suspects = [
        here
        for here, there in pairs
        if same("back_from_outputs", here, there) and not same("back_to_inputs", here, there)
    ]
    return max(suspects, key=lambda call: call.depth).layer if suspects else None


def _close(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    size = max(np.linalg.norm(one[np.isfinite(one)]), 1e-30)
    return bool(np.allclose(one, other, rtol=0, atol=tolerance * size, equal_nan=True))


def _passed(trial: Trial, situation: Situation) -> list[_Passed]:
    model, calls = trial.model, []

    def spied(layer, call, watch, args, kwargs) -> Tapped:
        args, kwargs = keras.tree.map_structure(copied, (args, kwargs))
        given = [t for t in _tensors((args, kwargs)) if t.dtype.is_floating]
        for tensor in given:
            watch(tensor)
        output = keras.tree.map_structure(copied, call(*args, **kwargs))
        made = [t for t in _tensors(output) if t.dtype.is_floating]
        return Tapped(output, [*given, *made], (_tensors((args, kwargs)), _tensors(output), len(given)))

    rules = {id(layer): Rule("spy", lambda call, d: [], spied) for layer in all_layers(model)}

    def look(record, scales, order, place, secret):
        x, y, sample_weight = unpacked(record)
        with tf.GradientTape() as tape, following(order), drawing_from(secret):
            with recording(model, rules, tape.watch) as seen:
                y_pred = model(x, training=True)
            losses = OwnLosses(model, seen, x, y, y_pred, sample_weight)
            objective = tf.reduce_sum(scales * losses.own()) + sum(losses.added)
        sites = seen.sites()
        taps = [tap for call in sites for tap in call.taps]
        back = iter(tape.gradient(objective, taps, unconnected_gradients="zero"))

        def rows(tensors):
            return [by_row(t, losses.batch, number)[place] for number, t in enumerate(tensors) if t.dtype != tf.string]

        calls[:] = [(call.layer, len(call.enclosing)) for call in sites]
        found = []
        for call in sites:
            given, made, count = call.kept
            gradients = [next(back) for _ in call.taps]
            found.append((rows(given), rows(made), rows(gradients[count:]), rows(gradients[:count])))
        return found

    size = size_of(situation.lot)
    spec = [trial.spec, tf.TensorSpec([size]), tf.TensorSpec([size], tf.int32), tf.TensorSpec([], tf.int32), SEED]
    function = tf.function(look, input_signature=spec, autograph=False)
    arguments = (np.float32(situation.scales), np.int32(situation.order), np.int32(situation.place), trial.secret)
    found = trial.run(function, situation.lot, *arguments)
    return [_Passed(layer, depth, *parts) for (layer, depth), parts in zip(calls, found, strict=True)]


def layer_sized_by_the_lot(trial: Trial) -> keras.Layer | None:
    """The innermost layer of which one example's output has another shape in a lot of another size."""
    layers = []

    @trial.function
    def shapes(record, place, secret):
        with drawing_from(secret), recording(trial.model, {}) as seen:
            trial.model(unpacked(record)[0], training=True)
        inside = [call for call in seen.calls if call.in_step_graph]
        layers[:] = [call.layer for call in inside]
        return [[tf.shape(t)[1:] for t in _tensors(call.output) if t.shape.rank] for call in inside]

    found = [trial.run(shapes, trial.records.rows(range(size)), 0, trial.secret) for size in (3, 5)]
    for layer, one, other in zip(layers, *found, strict=True):
        if any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True)):
            return layer
    return None


def mixing_message(model: keras.Model, layer: keras.Layer | None) -> str:
    """Of a layer that mixes; without one, of the loss."""
    if layer is None:
        return (
            f"The loss of the model {model.name!r} mixes examples: an example's own loss or gradient changes with the other examples "
            f"of the lot though no layer's output does. Private training needs a loss that is a mean over examples, each term a function "
            f"of one example. {_cure_of_loss(model)}".rstrip()
        )
    return (
        f"{_called(model, layer)} mixes examples: its output for one example, or its gradient, changes with the other examples of the "
        f"lot. One record would then move more than its own clipped gradient, and no privacy claim would hold. {_cure(layer)}"
    )


def added_loss_message(names: list[str]) -> str:
    layers = ", ".join(repr(name) for name in dict.fromkeys(names))
    return (
        f"A loss given to add_loss (by {layers}) mixes examples: it is neither the mean nor the sum over the lot of terms "
        f"that are functions of one example each. Give add_loss such a mean, for example add_loss(ops.mean(term)) with "
        f"one term an example."
    )


def known_to_mix(model: keras.Model) -> keras.Layer | None:
    """A layer that mixes examples whenever it runs, though it may run at some draws alone (inside RandAugment, one in eleven)."""
    return next((layer for layer in all_layers(model) if isinstance(layer, keras.layers.Equalization)), None)


def drawn_in_python_message(model: keras.Model) -> str:
    known = [layer.name for layer in all_layers(model) if isinstance(layer, keras.layers.AugMix)]
    who = f"The layer {known[0]!r}" if known else f"A layer or the loss of the model {model.name!r}"
    return (
        f"{who} draws from Python's or numpy's random numbers while the model is traced (Keras's AugMix does so to choose what it does to "
        "images): each trace is then another model, and the one that was checked is not the one that is trained. Draw with keras.random and a "
        "keras.random.SeedGenerator, or use single layers such as RandomRotation and RandomContrast."
    )


def regulariser_message(model: keras.Model) -> str:
    return (
        f"An activity regulariser of the model {model.name!r} mixes examples: it is neither the mean nor the sum over the lot of "
        f"what it says of each example alone."
    )


def failure_message(trial: Trial, error: Exception, what: str) -> str:
    """Of a model that ran, and then did not run on this. No word of the error itself, which may quote a record."""
    try:
        layer = layer_sized_by_the_lot(trial)
    except Exception:
        layer = None
    if layer is not None:
        return mixing_message(trial.model, layer)
    if fixed := fixed_batch_size(trial.model):
        return fixed
    found = layer_in_scope(trial.model, re.split(r"[/'\s{}]+", str(getattr(error, "message", ""))))
    where = "its loss, or a layer" if found is None else f"the layer {found.name!r} ({type(found).__name__})"
    return (
        f"The model {trial.model.name!r} can't be run on {what}: {where} fails ({type(error).__name__}). Lots are drawn at random, so "
        "private training needs a model and a loss that take lots of any size and any company, each example by itself. Look for labels "
        "or shapes made of the number of examples (as in losses over pairs)."
    )


def _tensors(structure: Any) -> list[tf.Tensor]:
    return [tensor for tensor in flat_tensors(structure) if isinstance(tensor, tf.Tensor)]


def _called(model: keras.Model, layer: keras.Layer) -> str:
    return f"{'The model' if layer is model else 'The layer'} {layer.name!r} ({type(layer).__name__})"


def _cure_of_loss(model: keras.Model) -> str:
    losses = [flat.loss for flat in getattr(model._compile_loss, "_flat_losses", None) or []]
    over_all = [
        type(loss).__name__
        for loss in losses
        if isinstance(loss, keras.losses.Dice | keras.losses.Tversky) and loss.axis is None
    ]
    if not over_all:
        return ""
    return f"{over_all[0]} is one number of the whole lot unless axis= names the axes of an example: axis=(1, 2, 3) for images."


def _takes_one_image(layer: keras.Layer) -> bool:
    try:
        return isinstance(layer, BaseImagePreprocessingLayer) and len(layer.input.shape) == 3
    except (AttributeError, ValueError):  # not called in a functional model, or several times
        return False


_TO_EACH_RECORD = "Do it to each record by itself before training, as in a map() of the data set."
_CURES = {
    keras.layers.BatchNormalization: BATCH_NORM_CURE,
    keras.layers.MixUp: "It blends pairs of examples: leave it out, or use layers that change each image by itself.",
    keras.layers.CutMix: "It pastes pieces of one example into another: leave it out, or use RandomErasing.",
    keras.layers.Equalization: f"Keras counts the brightness of the whole lot, in RandAugment and AugMix too: use their other layers. {_TO_EACH_RECORD}",
    keras.layers.MelSpectrogram: f"It scales to the loudest sound of the whole lot. {_TO_EACH_RECORD}",
    keras.layers.RandomElasticTransform: (
        f"In a graph, Keras gives all rows what it made of the first one. {_TO_EACH_RECORD}"
    ),
}


def _cure(layer: keras.Layer) -> str:
    for kind, cure in _CURES.items():
        if isinstance(layer, kind):
            return cure
    if _takes_one_image(layer):
        return (
            "It takes an input of three axes for one image, whose height is then the number of examples. Give it (examples, height, width, "
            "channels): keras.layers.Reshape before it, for example."
        )
    return "Make it a function of one example: reduce over features or time, never over the first axis."
