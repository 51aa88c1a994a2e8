"""Influence functions against retraining, and against derivatives by hand."""

import keras
import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf

from tfdp.data import Influence
from tfdp.data.perturbation import influence
from tfdp.data.perturbation.model_derivatives import ModelDerivatives

PENALTY = 0.02


def records(count=100, features=8, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, features)).astype(np.float32) * np.linspace(0.3, 2, features, dtype=np.float32)
    truth = rng.normal(size=features)
    y = (x @ truth + rng.normal(size=count) > 0).astype(np.float32)
    return x, y


def logistic_model(features: int, penalty: float = PENALTY) -> keras.Model:
    """The bias is a weight of its own, without penalty."""
    regularizer = keras.regularizers.L2(penalty / 2)
    model = keras.Sequential([keras.Input((features,)), keras.layers.Dense(1, kernel_regularizer=regularizer)])
    model.compile("sgd", loss=keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def fitted(x, y, penalty):
    """Newton's method, by hand: kernel and bias."""
    z, weights = np.hstack([x, np.ones((len(x), 1))]).astype(np.float64), np.zeros(x.shape[1] + 1)
    ridge = np.diag([penalty] * x.shape[1] + [0.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-z @ weights))
        gradient = z.T @ (p - y) / len(z) + ridge @ weights
        weights = weights - np.linalg.solve((z.T * (p * (1 - p))) @ z / len(z) + ridge, gradient)
    return weights


def at_the_optimum(x, y, penalty: float = PENALTY) -> keras.Model:
    model = logistic_model(x.shape[1], penalty)
    weights = fitted(x, y, penalty)
    model.set_weights([weights[:-1, None], weights[-1:]])
    return model


def breast_cancer():
    """100 records of the set that comes with scikit-learn, the ten means of a record, standardised."""
    x, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    x, y = x[:100, :10], y[:100]
    return ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32), y.astype(np.float32)


@pytest.mark.parametrize(("source", "penalty"), [(records, 0.02), (breast_cancer, 0.1)])
def test_contributions_are_where_leave_one_out_retraining_goes(source, penalty):
    """100 records; the penalty of the sum stays as it is when a record leaves."""
    x, y = source()
    found = Influence(at_the_optimum(x, y, penalty), x, y).contributions(x, y)
    everyone = fitted(x, y, penalty)
    moves = np.stack([fitted(np.delete(x, i, 0), np.delete(y, i), penalty * 100 / 99) - everyone for i in range(100)])
    assert np.corrcoef(found.ravel(), moves.ravel())[0, 1] >= 0.99
    norms = np.linalg.norm(found, axis=1), np.linalg.norm(moves, axis=1)
    assert np.corrcoef(*norms)[0, 1] >= 0.99
    assert found.ravel() @ moves.ravel() / (found.ravel() @ found.ravel()) == pytest.approx(1, abs=0.2)  # first order


def test_conjugate_gradients_find_what_the_exact_inverse_finds(monkeypatch):
    """Also when the model has moved on: H stays that of the pretrained weights, and gradients are those of now."""
    x, y = records()
    model = at_the_optimum(x, y)
    exact = Influence(model, x, y, damping=0.01)
    monkeypatch.setattr(influence, "MOST_EXACT", 5)
    iterated = Influence(model, x, y, damping=0.01)
    for factor in (1.0, 3.0):
        now = [factor * part for part in model.get_weights()]
        model.set_weights(now)
        wanted = exact.contributions(x[:3], y[:3])
        np.testing.assert_allclose(iterated.contributions(x[:3], y[:3]), wanted, rtol=1e-2, atol=1e-6)
        for one, other in zip(model.get_weights(), now, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_model_has_its_own_weights_after_an_error(monkeypatch):
    x, y = records(20)
    model = at_the_optimum(x, y)
    monkeypatch.setattr(influence, "MOST_EXACT", 5)
    found = Influence(model, x, y)
    model.set_weights([np.full((8, 1), 2.0), np.ones(1)])
    monkeypatch.setattr(found.derivatives, "hessian_product", lambda x, y, vector: -vector)
    with pytest.raises(ValueError, match="not positive definite"):
        found.contributions(x[:1], y[:1])
    np.testing.assert_array_equal(model.get_weights()[0], np.full((8, 1), 2.0))


def test_derivatives_of_a_logistic_model_by_hand():
    """Gradient (p - y) [x, 1] and, for the norm, d/dx of it: p (1 - p) [x, 1] w' + (p - y) [I, 0]."""
    x, y = records(200)
    model = at_the_optimum(x, y)
    derivatives, weights = ModelDerivatives(model), fitted(x, y, PENALTY)
    z = np.hstack([x, np.ones((200, 1))])
    p = 1 / (1 + np.exp(-z @ weights))
    np.testing.assert_allclose(derivatives.record_gradients(x[:5], y[:5]), ((p - y)[:, None] * z)[:5], atol=1e-5)
    hessian = (z.T * (p * (1 - p))) @ z / 200 + np.diag([PENALTY] * 8 + [0.0])
    np.testing.assert_allclose(derivatives.hessian(x, y), hessian, atol=1e-5)
    vector = np.arange(9.0)
    np.testing.assert_allclose(derivatives.hessian_product(x, y, vector), hessian @ vector, rtol=1e-4)
    mixed = (p * (1 - p))[0] * np.outer(z[0], weights[:-1]) + (p - y)[0] * np.eye(9, 8)
    norm = float(tf.function(derivatives.mixed_norm)(tf.constant(x[:1]), y[:1]))
    assert norm == pytest.approx(np.linalg.norm(mixed, 2), rel=1e-3)


def test_the_norm_of_a_model_that_takes_constant_records_to_zero():
    """z = x A with A = I - 1/4: the derivative by x is p (1 - p) [z, 1] (A w)' + (p - y) [A; 0], and of constant directions 0."""
    rng = np.random.default_rng(3)
    x, weights, centring = rng.normal(size=(1, 4)), rng.normal(size=4), np.eye(4) - 0.25
    layers = [keras.layers.Dense(4, use_bias=False, trainable=False), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("sgd", loss=keras.losses.BinaryCrossentropy(from_logits=True))
    layers[0].set_weights([centring])
    layers[1].set_weights([weights[:, None], np.zeros(1)])
    z = np.append(x @ centring, 1.0)
    p = 1 / (1 + np.exp(-z[:4] @ weights))
    mixed = p * (1 - p) * np.outer(z, centring @ weights) + (p - 1) * np.vstack([centring, np.zeros(4)])
    norm = float(ModelDerivatives(model).mixed_norm(tf.constant(x, tf.float32), tf.ones((1, 1))))
    assert norm == pytest.approx(np.linalg.norm(mixed, 2), rel=1e-3)


def test_a_saddle_is_refused_and_damping_named():
    x, y = records()
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    model.compile("sgd", loss=keras.losses.BinaryCrossentropy(from_logits=True))
    with pytest.raises(ValueError, match="damping="):
        Influence(model, x, y)
    assert np.isfinite(Influence(model, x, y, damping=10.0).contributions(x[:2], y[:2])).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (np.where(x > 0, np.nan, x), y), "NaN"),
        (lambda x, y: (x[:, 0], y), "one row each"),
        (lambda x, y: (x[:0], y[:0]), "at least one record"),
        (lambda x, y: (x, y[1:]), "one row a record"),
        (lambda x, y: (x.astype(str), y), "must hold numbers"),
    ],
)
def test_bad_records_are_named(change, message):
    x, y = records(20)
    with pytest.raises(ValueError, match=message):
        Influence(logistic_model(8), *change(x, y))


def test_a_model_without_a_loss_is_refused():
    with pytest.raises(ValueError, match="compiled with its loss"):
        Influence(keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)]), *records(20))
