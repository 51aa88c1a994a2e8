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
SECRET = np.array([2**40 + 3, 2**50 + 7])
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
    return model


@pytest.fixture
def draws(monkeypatch):
    """What stands in for Keras's dropout of ones: ``draws(original, ones, ...)``, which a test may set."""
    random = keras.src.backend.random
    original, standing = random.dropout, {}
    monkeypatch.setattr(random, "dropout", lambda *a, **k: standing.get("in", original)(*a, **k))
    return lambda function: standing.update({"in": lambda *a, **k: function(original, *a, **k)})


@pytest.mark.parametrize("name", LAYERS)
def test_an_examples_gradient_is_that_of_its_own_loss_under_the_masks_of_the_pass(name: str, draws):
    model, random = build(LAYERS[name]), np.random.default_rng(1)
    x, y = random.normal(size=(SIZE, STEPS, WIDTH)).astype("f4"), random.normal(size=(SIZE, 2)).astype("f4")
    x[1, 2:], x[2, :2] = 0.0, 0.0  # steps that are passed over
    model.compute_loss(y=y, y_pred=model(x))  # which builds the loss
    plan, drawn = first_plan(model), []
    assert not [site for site in plan.sites.values() if site.family is None]

    def noted(original, *args, **kwargs):
        drawn.append(original(*args, **kwargs))
        return drawn[-1]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, *a.shape[1:]]) for a in (x, y)])
    def of_the_lot(x, y):
        del drawn[:]
        gradients = lot_gradients(model, plan, x, y, secret=tf.constant(SECRET)).gradients
        return gradients.materialise(), gradients.squared_norms(), list(drawn)

    draws(noted)
    found, squared_norms, masks = of_the_lot(x, y)
    found = np.concatenate([np.reshape(g, [SIZE, -1]) for g in found], 1)
    assert any(0 < np.count_nonzero(mask) < np.size(mask) for mask in masks)
    for example in range(SIZE):
        replayed = iter(masks)
        draws(lambda original, *a, example=example, replayed=replayed, **k: next(replayed)[example : example + 1])
        expected = brute_force(model, x[example : example + 1], y[example : example + 1])
        assert not list(replayed)
        scale = np.linalg.norm(expected.gradients)
        assert np.linalg.norm(found[example] - expected.gradients[0]) <= 1e-5 * scale
        np.testing.assert_allclose(squared_norms[example], scale**2, rtol=1e-2)
