"""The noise of whole training runs: with zero gradients it is all that moves the weights."""

import itertools

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import NotPrivateEvent

CLIP, SIGMA, STEPS = 2.0, 1.5, 60
STDDEV = SIGMA * CLIP / tiny.SIZE
STANDARD_ERRORS = 5


def wide(noise_seed=None) -> keras.Model:
    """Kernels of 2,400 weights, biases of 40: over 60 steps 2,400 draws each, too."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((60,)), keras.layers.Dense(40), keras.layers.Dense(60)])
    optimizer = tfdp.NoisySGD(1.0, l2_norm_clip=CLIP, noise_multiplier=SIGMA, noise_seed=noise_seed)
    return tiny.private(optimizer, model)


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.weights = []

    def on_train_begin(self, logs=None):
        self.weights.append(self.model.get_weights())

    def on_train_batch_end(self, batch, logs=None):
        self.weights.append(self.model.get_weights())


def noise_of_a_run(steps=STEPS, noise_seed=None) -> list[np.ndarray]:
    """[steps, *shape] for every weight: examples of weight 0 have zero gradients."""
    recorder = Recorder()
    keras.utils.set_random_seed(0)
    x, y = np.ones((tiny.SIZE, 60), "float32"), np.ones((tiny.SIZE, 60), "float32")
    tiny.train(wide(noise_seed), x, y, steps=steps, sample_weight=np.zeros(tiny.SIZE), callbacks=[recorder])
    return [np.diff(np.float64(weights), axis=0) for weights in zip(*recorder.weights, strict=True)]


@pytest.fixture(scope="module")
def noise() -> list[np.ndarray]:
    return noise_of_a_run()


@pytest.mark.parametrize("weight", range(4))
def test_mean_and_standard_deviation_are_those_of_the_mechanism(noise, weight):
    draws = noise[weight].ravel()
    assert draws.size >= 2000
    assert abs(draws.mean()) < STANDARD_ERRORS * STDDEV / np.sqrt(draws.size)
    assert abs(draws.std() - STDDEV) < STANDARD_ERRORS * STDDEV / np.sqrt(2 * draws.size)


def assert_uncorrelated(a: np.ndarray, b: np.ndarray):
    size = min(a.size, b.size)
    correlation = np.corrcoef(a.ravel()[:size], b.ravel()[:size])[0, 1]
    assert abs(correlation) < STANDARD_ERRORS / np.sqrt(size)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(range(4), 2)))
def test_the_noises_of_two_weights_are_uncorrelated(noise, one, other):
    assert_uncorrelated(noise[one], noise[other])


@pytest.mark.parametrize("weight", range(4))
def test_the_noises_of_two_steps_are_uncorrelated(noise, weight):
    assert_uncorrelated(noise[weight][:-1], noise[weight][1:])


def test_the_noise_of_two_runs_differs_under_one_global_seed(noise):
    for first, second in zip(noise, noise_of_a_run(steps=20), strict=True):
        assert_uncorrelated(first[:20], second)


def test_a_noise_seed_repeats_the_noise():
    for first, second in zip(noise_of_a_run(2, noise_seed=3), noise_of_a_run(2, noise_seed=3), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-6)  # differences of float32 weights


def test_a_noise_seed_ends_the_claim():
    model = tiny.private(tiny.noisy(noise_seed=3))
    tiny.train(model)
    (line,) = model.optimizer.ledger
    assert isinstance(line.event, NotPrivateEvent)
    assert "noise_seed" in line.event.reason


def test_no_noise_is_an_infinite_line():
    model = tiny.private(tiny.noiseless())
    tiny.train(model)
    (line,) = model.optimizer.ledger
    assert isinstance(line.event, NotPrivateEvent)
    assert tfdp.accounting.epsilon(model.optimizer.ledger, delta=1e-5) == np.inf
