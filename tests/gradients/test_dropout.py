"""Random layers: the same draws in the whole of one step, fresh ones in the next."""

import keras
import numpy as np
import pytest
from keras import layers

import tfdp
from tests.brute_force import flat_weights

SIZE = 6


def repeated(*shape: int, seed: int) -> np.ndarray:
    """One example, SIZE times over: the order in which a lot is drawn does not matter."""
    example = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return np.repeat(example[None], SIZE, axis=0)


MODELS = {
    "between dense layers": lambda: [layers.Dense(8, "tanh"), layers.Dropout(0.5), layers.Flatten()],
    "whole features": lambda: [layers.Dense(8, "tanh"), layers.SpatialDropout1D(0.5), layers.Flatten()],
    "noise": lambda: [
        layers.GaussianNoise(0.5),
        layers.Dense(8, "tanh"),
        layers.AlphaDropout(0.3),
        layers.Flatten(),
    ],
    "augmented images": lambda: [
        layers.Reshape((4, 5, 1)),
        layers.RandomFlip(),
        layers.RandomTranslation(0.4, 0.4),
        layers.RandomRotation(0.2),
        layers.Flatten(),
        layers.Dense(8, "tanh"),
    ],
    "recurrence": lambda: [layers.LSTM(4, dropout=0.4, recurrent_dropout=0.3)],
    "before a convolution": lambda: [layers.Dropout(0.3), layers.Conv1D(4, 2), layers.Flatten()],
}


def build(name: str) -> keras.Model:
    keras.utils.set_random_seed(3)
    return keras.Sequential([layers.Input((4, 5)), *MODELS[name](), layers.Dense(2)])


def change(model: keras.Model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    before = flat_weights(model)
    model.fit(x, y, batch_size=len(x), epochs=1, verbose=0, shuffle=False)
    return flat_weights(model) - before


def private(clip: float = 1e6) -> tfdp.NoisySGD:
    return tfdp.NoisySGD(learning_rate=1.0, l2_norm_clip=clip, noise_multiplier=0.0)


@pytest.mark.parametrize("name", MODELS)
def test_an_unclipped_step_draws_what_keras_draws_from_the_same_seeds(name: str):
    """The examples' gradients add up to the batch's, random layers included; no check used up a draw."""
    x, y = repeated(4, 5, seed=1), repeated(2, seed=2)
    plain, ours = build(name), build(name)
    plain.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    ours.compile(optimizer=private(), loss="mse")
    expected = change(plain, x, y)
    assert np.linalg.norm(change(ours, x, y) - expected) <= 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", MODELS)
def test_two_steps_draw_different_masks(name: str):
    x, y = repeated(4, 5, seed=1), repeated(2, seed=2)
    model = build(name)
    model.compile(optimizer=private(), loss="mse")
    start = model.get_weights()
    first = change(model, x, y)
    model.set_weights(start)
    second = change(model, x, y)
    assert np.linalg.norm(second - first) > 1e-2 * np.linalg.norm(first)


class DroppedScale(layers.Layer):
    """out = mask * w * x: a weight and a random draw in one layer."""

    def __init__(self, rate: float):
        super().__init__()
        self.dropout = layers.Dropout(rate)

    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="w")

    def call(self, x, training=None):
        return self.dropout(x * self.w, training=training)


class Scale(layers.Layer):
    """out = v * x."""

    def build(self, input_shape):
        self.v = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="v")

    def call(self, x):
        return self.v * x


@pytest.mark.parametrize("clip", [1e6, 1e-2])
def test_all_gradients_of_a_step_come_from_one_mask(clip: float):
    """The output v * mask * w * x depends on v * w alone, so w dL/dw = v dL/dv for every unit and every mask.

    It fails if the layer with the weight is replayed with other draws than those the loss has seen.
    """
    keras.utils.set_random_seed(4)
    random = np.random.default_rng(5)
    model = keras.Sequential([layers.Input((24,)), DroppedScale(0.5), Scale()])
    model.set_weights([random.uniform(0.5, 2.0, w.shape) for w in model.trainable_weights])
    w, v = (keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights)
    model.compile(optimizer=private(clip), loss="mse")
    step_w, step_v = np.split(change(model, random.normal(size=(2, 24)), random.normal(size=(2, 24))), 2)
    np.testing.assert_allclose(w * step_w, v * step_v, rtol=1e-3, atol=1e-3 * np.abs(w * step_w).max())
    assert 0 < np.count_nonzero(step_w) < 24  # some units were dropped in both examples
