"""What a step runs is what was proven: nothing that changes later goes in unproven."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfdp
from tests.brute_force import flat_weights
from tests.optimizers import full_gradients

SIZE, D = 32, 3
RANDOM = np.random.default_rng(0)
X = (3 * RANDOM.normal(size=(SIZE, D))).astype("float32")
Y = RANDOM.normal(size=(SIZE, 1)).astype("float32")
WAYS = {"traced": {}, "eager": {"run_eagerly": True}, "compiled": {"jit_compile": True}}


@pytest.fixture(autouse=True, scope="module")
def dense_layers_count_as_proved() -> None:
    """Not here: what was proven is what this is about."""


class Centre(layers.Layer):
    """Takes the lot's mean off, once it is switched on; says what its calls were."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.on, self.calls = False, 0

    def call(self, x):
        self.calls += 1
        return x - 100.0 * tf.reduce_mean(x, 0, keepdims=True) if self.on else x


class Switch(keras.callbacks.Callback):
    """Calls a function at one moment of fit."""

    def __init__(self, when: str, act: Callable[[], None]):
        super().__init__()
        setattr(self, f"on_{when}", lambda *arguments, **named: act())


def compiled(optimizer=None, **arguments) -> tuple[keras.Model, Centre]:
    keras.utils.set_random_seed(3)
    centre = Centre(name="leaky")
    model = keras.Sequential([keras.Input((D,)), centre, layers.Dense(1)])
    optimizer = tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=1e-4) if optimizer is None else optimizer
    model.compile(optimizer=optimizer, loss="mse", **arguments)
    return model, centre


def step(model: keras.Model, *callbacks: keras.callbacks.Callback) -> np.ndarray:
    """What one step with every record moves."""
    before = flat_weights(model)
    model.fit(X, Y, batch_size=SIZE, epochs=1, verbose=0, callbacks=list(callbacks))
    return flat_weights(model) - before


MOMENTS = ["train_begin", "epoch_begin", "train_batch_begin"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", MOMENTS)
def test_an_attribute_changed_by_a_callback_has_no_effect(when: str, way: str):
    """Keras used to trace after the callback, so that the lot's mean was trained with, and called proven."""
    model, _ = compiled(**WAYS[way])
    expected = step(model)
    model, centre = compiled(**WAYS[way])
    found = step(model, Switch(when, lambda: setattr(centre, "on", True)))
    assert centre.on
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_the_layer_is_not_called_after_its_proof(way: str):
    model, centre = compiled(**WAYS[way])
    calls = []
    step(model, Switch("train_begin", lambda: calls.append(centre.calls)))
    assert centre.calls == calls[0]


@pytest.mark.parametrize("when", MOMENTS)
def test_a_loss_changed_by_a_callback_has_no_effect(when: str):
    class Loss:
        def __init__(self):
            self.on = False

        def __call__(self, y, p):
            own = tf.reduce_mean(tf.square(y - p), -1)
            return own * tf.reduce_sum(own) if self.on else own

    found = []
    for switches in (False, True):
        model, _ = compiled()
        loss = Loss()
        model.compile(optimizer=tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=1e-4), loss=loss)
        found.append(step(model, *([Switch(when, lambda loss=loss: setattr(loss, "on", True))] if switches else [])))
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)


@pytest.mark.parametrize("way", ["traced", "compiled"])
def test_another_noise_multiplier_traces_no_model(way: str):
    """The attribute that changed beside it stays out: the core is the proven one."""
    model, centre = compiled(**WAYS[way])
    step(model)
    start, calls = model.get_weights(), centre.calls
    expected = step(model)
    model.set_weights(start)
    centre.on = True
    model.optimizer.mechanism.noise_multiplier = 2e-4
    found = step(model)
    assert centre.calls == calls
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert [line.event.noise_multiplier for line in model.optimizer.ledger] == [1e-4, 2e-4]


@pytest.mark.parametrize("way", WAYS)
def test_another_clip_is_proven_anew_and_refuses_what_changed(way: str):
    model, centre = compiled(**WAYS[way])
    step(model)
    before, steps = flat_weights(model), model.optimizer.ledger.steps
    centre.on = True
    model.optimizer.mechanism.l2_norm_clip = 0.5
    with pytest.raises(ValueError, match=r"'leaky'.*mixes examples"):
        step(model)
    np.testing.assert_array_equal(flat_weights(model), before)
    assert model.optimizer.ledger.steps == steps


def test_another_clip_set_by_a_callback_is_proven_anew():
    model, centre = compiled()

    def change() -> None:
        centre.on = True
        model.optimizer.mechanism.l2_norm_clip = 0.5

    before = flat_weights(model)
    with pytest.raises(ValueError, match=r"'leaky'.*mixes examples"):
        step(model, Switch("train_begin", change))
    np.testing.assert_array_equal(flat_weights(model), before)


def test_another_clip_alone_is_trained_with():
    model, centre = compiled()
    first = step(model)
    model.optimizer.mechanism.l2_norm_clip = 0.25
    calls = centre.calls
    assert np.linalg.norm(step(model)) <= 0.25 * (1 + 1e-2) < np.linalg.norm(first)
    assert centre.calls > calls


@pytest.mark.parametrize(
    "change", [lambda m: m.optimizer.mechanism, lambda m: None], ids=["with the noise", "by itself"]
)
def test_in_eager_runs_each_fit_is_proven_anew(change):
    """Keras calls Python in each of its steps, so what changed between fits must be seen."""
    model, centre = compiled(run_eagerly=True)
    step(model)
    centre.on = True
    mechanism = change(model)
    if mechanism is not None:
        mechanism.noise_multiplier = 2e-4
    with pytest.raises(ValueError, match=r"'leaky'.*mixes examples"):
        step(model)


@pytest.mark.parametrize("way", WAYS)
def test_weights_that_a_callback_freezes_or_unfreezes_are_refused(way: str):
    for frozen in (True, False):
        hidden = layers.Dense(D, trainable=not frozen)
        model = keras.Sequential([keras.Input((D,)), hidden, layers.Dense(1)])
        model.compile(optimizer=tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse", **WAYS[way])
        before = flat_weights(model)
        for when in ("train_begin", "epoch_begin"):
            hidden.trainable = not frozen
            with pytest.raises(ValueError, match="trainable weights changed after fit began"):
                step(model, Switch(when, lambda h=hidden, f=frozen: setattr(h, "trainable", f)))
            hidden.trainable = not frozen
            np.testing.assert_array_equal(flat_weights(model), before)
            assert model.optimizer.ledger.steps == 0


class BatchNormLite(layers.Layer):
    """The lot's statistics where it is trainable, none where it is frozen. It has no weights."""

    def call(self, x, training=None):
        return x - 100.0 * tf.reduce_mean(x, 0) if training and self.trainable else x


@pytest.mark.parametrize("when", ["train_begin", "epoch_begin"])
def test_a_layer_without_weights_that_a_callback_unfreezes_stays_as_proven(when: str):
    found = []
    for unfreezes in (False, True):
        keras.utils.set_random_seed(3)
        lite = BatchNormLite(trainable=False)
        model = keras.Sequential([keras.Input((D,)), lite, layers.Dense(1)])
        model.compile(optimizer=tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=1e-4), loss="mse")
        callbacks = [Switch(when, lambda lite=lite: setattr(lite, "trainable", True))] if unfreezes else []
        found.append(step(model, *callbacks))
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)


# Full gradients.


def full(**arguments):
    return full_gradients.full(0.1, noise_multiplier=1e-4, direction_noise_multiplier=1e-4, **arguments)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["train_begin", "epoch_begin"])
def test_full_gradients_are_those_of_the_proven_model(when: str, way: str):
    found = []
    for switches in (False, True):
        model, centre = compiled(full(), **WAYS[way])
        step(model, *([Switch(when, lambda c=centre: setattr(c, "on", True))] if switches else []))
        found.append(full_gradients.direction_of(model))
    assert np.linalg.norm(found[0]) > 1e-3
    np.testing.assert_allclose(found[1], found[0], atol=2e-3 * np.linalg.norm(found[0]) + 2e-4)


def test_another_clip_beside_full_gradients_is_proven_anew():
    model, centre = compiled(full())
    step(model)
    before = flat_weights(model)
    centre.on = True
    model.optimizer.mechanism.l2_norm_clip = 0.5
    with pytest.raises(ValueError, match=r"'leaky'.*mixes examples"):
        step(model)
    np.testing.assert_array_equal(flat_weights(model), before)


def test_another_noise_beside_full_gradients_traces_no_model():
    model, centre = compiled(full())
    step(model)
    centre.on, calls = True, centre.calls
    model.optimizer.mechanism.noise_multiplier = 2e-4
    step(model)
    assert centre.calls == calls
