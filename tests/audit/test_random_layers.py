"""Dropout, flips and noise are audited in two worlds by somebody who knows every seed of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfdp
from tfdp.gradients import lot_gradients, prove
from tfdp.mechanisms import GaussianMechanism

SIZE, RUNS, DELTA, SEED = 64, 200, 1e-5, 7
NOISE = 6.0
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(SIZE, 6, 6, 1)).astype("float32")
Y = RANDOM.integers(0, 2, SIZE)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    keras.utils.set_random_seed(SEED)
    parts = [layers.RandomFlip(seed=1), layers.GaussianNoise(0.1, seed=2), layers.Flatten()]
    parts += [layers.Dense(64, activation="relu"), layers.Dropout(0.5, seed=3), layers.Dense(2)]
    model = keras.Sequential([keras.Input((6, 6, 1)), *parts])
    optimizer = tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=NOISE)
    model.compile(optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def known_sum(model: keras.Model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The sum of a lot's clipped gradients, were its random numbers what Keras's seeds say."""
    for layer in model.layers:
        for generator in layer._seed_generators:
            generator.state.assign([generator._initial_seed, 0])
    lots = tfdp.data.PoissonBatches(x, y, batch_size=len(x))
    plan, mechanism = prove(model, lots.record_spec, lot_size=16), GaussianMechanism(1.0, NOISE)

    @tf.function(autograph=False)
    def summed(x, y):
        gradients = lot_gradients(model, plan, x, y).gradients
        return mechanism.bounded_sum(gradients, tf.ones([tf.shape(x)[0]], tf.bool))[0]

    specs = [tf.TensorSpec([None, *a.shape[1:]], a.dtype) for a in (x, y)]
    return flat(summed.get_concrete_function(*specs)(tf.constant(x), tf.constant(y)))


def flat(tensors) -> np.ndarray:
    return np.concatenate([np.ravel(keras.ops.convert_to_numpy(t)) for t in tensors]).astype("float64")


class Again(keras.callbacks.Callback):
    """Every epoch begins with the same weights and the same seeds of Keras; what a step moved is kept."""

    def __init__(self):
        super().__init__()
        self.moved = []

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 0:
            self.start = self.model.get_weights()
        self.model.set_weights(self.start)
        for layer in self.model.layers:
            for generator in layer._seed_generators:
                generator.state.assign([generator._initial_seed, 0])

    def on_epoch_end(self, epoch, logs=None):
        now = self.model.get_weights()
        self.moved.append(flat(before - after for before, after in zip(self.start, now, strict=True)) * SIZE)


def releases(model: keras.Model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What a step of fit moves the weights by, time after time."""
    keras.utils.set_random_seed(SEED)
    again = Again()
    model.fit(x, y, batch_size=SIZE, public_size=SIZE, steps_per_epoch=1, epochs=RUNS, verbose=0, callbacks=[again])
    model.set_weights(again.start)
    return np.stack(again.moved)


def test_who_knows_the_seeds_of_random_layers_tells_two_worlds_apart_no_better_than_is_proven(model):
    """With masks that come from Keras's seeds the direction between the worlds is known, and long: 9 clips and more."""
    with_it, without_it = known_sum(model, X, Y), known_sum(model, X[1:], Y[1:])
    direction = (with_it - without_it) / np.linalg.norm(with_it - without_it)
    assert np.linalg.norm(with_it - without_it) > 3  # so that the attack would have won
    scores = [releases(model, x, y) @ direction for x, y in ((X, Y), (X[1:], Y[1:]))]
    steps = model.optimizer.ledger.steps
    proven = tfdp.accounting.epsilon(
        tfdp.accounting.Ledger.poisson(sampling_rate=1.0, noise_multiplier=NOISE, steps=1), delta=DELTA
    )
    assert steps == 2 * RUNS
    assert 0.55 < proven < 0.65
    threshold = np.median(np.concatenate(scores))
    right = int(np.sum(scores[0] > threshold) + np.sum(scores[1] <= threshold))
    right = max(right, 2 * RUNS - right)
    assert tfdp.audit.epsilon_lower_bound(canaries=2 * RUNS, guesses=2 * RUNS, correct=right, delta=DELTA) < proven
    distance = abs(scores[0].mean() - scores[1].mean())
    assert distance < 1 + 4 * np.sqrt(2 / RUNS) * np.std(scores[0])  # clips
