"""A model that is compiled again is proven again where something changed that a proof is about, and only there."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfdp
from tests.brute_force import flat_weights
from tfdp.gradients import MixesExamples, prove
from tfdp.optimizers import training

SIZE, D = 16, 3
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(SIZE, D)).astype("float32")
Y = RANDOM.normal(size=(SIZE, 1)).astype("float32")


class Scaled(layers.Layer):
    """Multiplies by a tensor that is no weight; takes the lot's mean off, if it is told to in Python, or by a number that is not
    trained."""

    def __init__(self):
        super().__init__()
        self.factor, self.mixes = tf.constant(2.0), False
        self.mode = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False)

    def call(self, x):
        x = self.factor * x - (100.0 * tf.reduce_mean(x, 0) if self.mixes else 0.0)
        return tf.cond(tf.equal(self.mode, 7), lambda: x - tf.reduce_mean(x, 0), lambda: tf.identity(x))


class LooksUp(layers.Layer):
    """In a table that says whether the lot's mean is added."""

    def __init__(self):
        super().__init__()
        self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)

    def call(self, x):
        mixes = tf.reshape(self.table.lookup(tf.zeros([1], tf.int64)), []) > 0
        return tf.cond(mixes, lambda: x + tf.reduce_mean(x, 0), lambda: tf.identity(x))


class Unused(layers.Layer):
    """Has a weight that it does not use, and one that it does."""

    def build(self, shape):
        self.unused, self.used = (self.add_weight(shape=shape[1:], initializer="ones") for _ in range(2))

    def call(self, x):
        return x * self.used


class Proofs:
    """Counts them."""

    def __init__(self):
        self.count = 0

    def __call__(self, *arguments):
        self.count += 1
        return prove(*arguments)


@pytest.fixture
def proofs(monkeypatch) -> Proofs:
    counted = Proofs()
    monkeypatch.setattr(training, "prove", counted)
    return counted


def built() -> keras.Model:
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((D,)), Scaled(), layers.Dense(4, activation="tanh"), layers.Dense(1)])


def compiled(model: keras.Model, loss="mse", clip: float = 0.1, noise: float = 1.0, rate: float = 0.5, **more) -> None:
    model.compile(tfdp.NoisySGD(rate, l2_norm_clip=clip, noise_multiplier=noise), loss=loss, **more)


def fitted(model: keras.Model, x=X, batch_size: int = SIZE) -> None:
    model.fit(x, Y, batch_size=batch_size, epochs=1, verbose=0)


def test_another_rate_noise_optimizer_or_metric_needs_no_new_proof(proofs):
    model = built()
    compiled(model)
    fitted(model)
    compiled(model, noise=2.0, rate=0.1, metrics=["mae"])
    fitted(model)
    model.compile(tfdp.NoisyAdam(0.01, l2_norm_clip=0.1, noise_multiplier=1.0), loss=keras.losses.MeanSquaredError())
    fitted(model)
    assert proofs.count == 1


def test_what_is_trained_by_a_known_proof_moves_as_what_was_proven_anew(proofs):
    moved = []
    for before in (1, 0):
        model = built()
        for rate in [0.0] * before + [0.5]:
            compiled(model, noise=0.0, rate=rate)
            fitted(model)
        moved.append(flat_weights(model))
    assert proofs.count == 2
    np.testing.assert_allclose(*moved, rtol=1e-6)


CHANGES: dict[str, Callable[[keras.Model], dict]] = {
    "clip": lambda model: {"clip": 0.2},
    "loss": lambda model: {"loss": "mae"},
    "a layer's constant": lambda model: setattr(model.layers[0], "factor", tf.constant(3.0)) or {},
    "a frozen layer": lambda model: setattr(model.layers[1], "trainable", False) or {},
    "compiled by XLA": lambda model: {"jit_compile": True},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_function_that_was_proven_asks_for_a_new_proof(proofs, change):
    model = built()
    compiled(model)
    fitted(model)
    compiled(model, **CHANGES[change](model))
    fitted(model)
    assert proofs.count == 2


@pytest.mark.parametrize("given", [{"x": X + 1}, {"batch_size": SIZE // 2}])
def test_other_records_or_another_lot_size_ask_for_a_new_proof(proofs, given):
    model = built()
    compiled(model)
    fitted(model)
    compiled(model)
    fitted(model, **given)
    assert proofs.count == 2


def test_another_weight_that_is_trained_asks_for_a_new_proof_and_moves(proofs):
    layer = Unused()
    model = keras.Sequential([keras.Input((D,)), layer, layers.Dense(1)])
    for trained in (layer.unused, layer.used):
        layer.unused.trainable, layer.used.trainable = (v is trained for v in (layer.unused, layer.used))
        compiled(model)
        before = layer.used.numpy()
        fitted(model)
    assert proofs.count == 2
    assert np.all(layer.used.numpy() != before)


MIXING: dict[str, Callable[[Scaled], None]] = {
    "in Python": lambda layer: setattr(layer, "mixes", True),
    "by a variable": lambda layer: layer.mode.assign(7),
}


@pytest.mark.parametrize("begins", MIXING.values(), ids=MIXING)
def test_a_layer_that_mixes_since_the_proof_is_refused(proofs, begins):
    model = built()
    compiled(model)
    fitted(model)
    begins(model.layers[0])
    compiled(model)
    before = flat_weights(model)
    with pytest.raises(MixesExamples):
        fitted(model)
    np.testing.assert_array_equal(flat_weights(model), before)


def test_a_table_that_was_filled_since_the_proof_is_looked_at_again(proofs):
    layer = LooksUp()
    model = keras.Sequential([keras.Input((D,)), layer, layers.Dense(1)])
    compiled(model)
    fitted(model)
    layer.table.insert(tf.zeros([1], tf.int64), tf.ones([1], tf.int64))
    compiled(model)
    with pytest.raises(MixesExamples):
        fitted(model)


def test_a_refused_fit_leaves_no_proof_behind(proofs):
    model = built()
    compiled(model)
    model.layers[0].mixes = True
    for _ in range(2):
        with pytest.raises(MixesExamples):
            fitted(model)
        compiled(model)
    model.layers[0].mixes = False
    fitted(model)
    assert proofs.count == 3
