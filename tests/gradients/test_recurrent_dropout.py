"""Recurrent layers with dropout: each example's gradient is that of its own loss under the very masks of the pass."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.brute_force import brute_force
from tfdp.gradients.engine import lot_gradients
from tfdp.gradients.plan import first_plan

SIZE, STEPS, WIDTH = 3, 4, 5
INPUTS = {"dropout": 0.4}
BOTH = {"dropout": 0.4, "recurrent_dropout": 0.5}


def cells() -> list[keras.Layer]:
    return [layers.LSTMCell(3, **BOTH), layers.GRUCell(2, **INPUTS)]


LAYERS = {
    "LSTM, inputs": lambda: layers.LSTM(4, **INPUTS),
    "LSTM, inputs and states, unrolled": lambda: layers.LSTM(4, **BOTH, unroll=True),
    "LSTM, inputs with a mask for each gate": lambda: layers.RNN(layers.LSTMCell(4, **INPUTS, implementation=1)),
    "GRU, inputs and states": lambda: layers.GRU(4, **BOTH),
    "GRU with the reset before, backwards": lambda: layers.GRU(4, **BOTH, reset_after=False, go_backwards=True),
    "SimpleRNN": lambda: layers.SimpleRNN(4, **BOTH, use_bias=False),
    "stacked cells in both directions": lambda: layers.Bidirectional(layers.RNN(cells())),
}


def build(layer: Callable[[], keras.Layer]) -> keras.Model:
    keras.utils.set_random_seed(3)
    inner = [layers.Masking(), layers.Dense(WIDTH), layer(), layers.Flatten(), layers.Dense(2)]
    model = keras.Sequential([layers.Input((STEPS, WIDTH)), *inner])
    model.compile(loss="mse")
    model.compute_loss(y=np.zeros([1, 2]), y_pred=model(np.zeros([1, STEPS, WIDTH])))  # which builds it
    return model


@pytest.fixture
def draws(monkeypatch):
    """What stands in for Keras's dropout of ones: ``draws(original, ones, ...)``, which a test may set."""
    random = keras.src.backend.random
    original, standing = random.dropout, {}
    monkeypatch.setattr(random, "dropout", lambda *a, **k: standing.get("in", original)(*a, **k))
    return lambda function: standing.update({"in": lambda *a, **k: function(original, *a, **k)})


def one_pass(
    model: keras.Model, x: np.ndarray, y: np.ndarray, draws: Callable, secret: tf.Tensor | None = None
) -> tuple:
    """Each example's gradient, its squared norm, and the masks of the pass in the order in which they were drawn."""
    plan, drawn = first_plan(model), []
    assert not [site for site in plan.sites.values() if site.family is None]

    def noted(original, *args, **kwargs):
        drawn.append(original(*args, **kwargs))
        return drawn[-1]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, *a.shape[1:]]) for a in (x, y)])
    def of_the_lot(x, y):
        del drawn[:]
        gradients = lot_gradients(model, plan, x, y, secret=secret).gradients
        return gradients.materialise(), gradients.squared_norms(), list(drawn)

    draws(noted)
    found, squared_norms, masks = of_the_lot(x, y)
    return np.concatenate([np.reshape(g, [SIZE, -1]) for g in found], 1), squared_norms, masks


def records() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    x, y = random.normal(size=(SIZE, STEPS, WIDTH)).astype("f4"), random.normal(size=(SIZE, 2)).astype("f4")
    x[1, 2:], x[2, :2] = 0.0, 0.0  # steps that are passed over
    return x, y


@pytest.mark.parametrize("name", LAYERS)
def test_an_examples_gradient_is_that_of_its_own_loss_under_the_masks_of_the_pass(name: str, draws):
    model, (x, y) = build(LAYERS[name]), records()
    found, squared_norms, masks = one_pass(model, x, y, draws, tf.constant([2**40 + 3, 2**50 + 7], tf.int64))
    assert any(0 < np.count_nonzero(mask) < np.size(mask) for mask in masks)
    for example in range(SIZE):
        replayed, only = iter(masks), slice(example, example + 1)
        draws(lambda original, *args, replayed=replayed, only=only, **kwargs: next(replayed)[only])
        expected = brute_force(model, x[only], y[only])
        assert not list(replayed)
        assert np.linalg.norm(found[example] - expected.gradients[0]) <= 1e-5 * expected.norms[0]
        np.testing.assert_allclose(squared_norms[example], expected.norms[0] ** 2, rtol=1e-2)


def test_without_a_secret_masks_are_those_that_keras_draws_from_the_same_seeds(draws):
    cells = [layers.GRUCell(6, **BOTH), layers.SimpleRNNCell(5, **BOTH), layers.LSTMCell(4, **INPUTS)]
    model, (x, y), expected = build(lambda: layers.RNN(cells)), records(), []
    states = [cell.seed_generator.state for cell in cells]
    seeds = [state.numpy() for state in states]
    draws(lambda original, *args, **kwargs: expected.append(original(*args, **kwargs)) or expected[-1])
    model(x, training=True)
    for state, seed in zip(states, seeds, strict=True):
        state.assign(seed)
    for mask, own in zip(one_pass(model, x, y, draws)[2], expected, strict=True):
        np.testing.assert_array_equal(mask, own)
