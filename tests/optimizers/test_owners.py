"""Weights that one model trains privately are not trained by another one past its ledger."""

import keras
import numpy as np
import pytest

from tests.optimizers import tiny


def around(inner: keras.Model) -> keras.Model:
    return keras.Sequential([keras.layers.Input((3,)), inner, keras.layers.Dense(1)])


@pytest.fixture
def inner() -> keras.Model:
    model = tiny.private(tiny.noisy())
    tiny.train(model)
    return model


def test_a_private_outer_model_is_refused_at_compile(inner):
    with tiny.nothing_moves(inner), pytest.raises(ValueError, match=inner.name):
        around(inner).compile(optimizer=tiny.noisy(), loss="mse")


def test_an_ordinary_outer_model_evaluates_and_predicts_but_does_not_train(inner):
    """As keras.io makes an end-to-end model of a trained one."""
    inputs = keras.Input((3,))
    outer = keras.Model(inputs, inner(inputs))
    with tiny.nothing_moves(inner):
        outer.compile(optimizer="adam", loss="mse", metrics=["mae"])
        assert outer.evaluate(tiny.X, tiny.Y, verbose=0) == pytest.approx(
            [
                np.mean((inner.predict(tiny.X, verbose=0) - tiny.Y) ** 2),
                np.mean(abs(outer.predict(tiny.X, verbose=0) - tiny.Y)),
            ]
        )
        for train in (outer.fit, outer.train_on_batch):
            with pytest.raises(ValueError, match="evaluate and predict work through both"):
                train(tiny.X, tiny.Y)


def test_an_outer_model_compiled_before_is_refused_at_fit():
    inner = tiny.private(tiny.noisy())
    outer = around(inner)
    outer.compile(optimizer="sgd", loss="mse")
    tiny.train(inner)
    with tiny.nothing_moves(inner):
        with pytest.raises(ValueError, match=inner.name):
            outer.fit(tiny.X, tiny.Y, verbose=0)
        with pytest.raises(ValueError, match=inner.name):
            outer.train_on_batch(tiny.X, tiny.Y)


def test_an_outer_model_over_frozen_weights_trains(inner):
    inner.trainable = False
    outer = around(inner)
    outer.compile(optimizer="sgd", loss="mse")
    before = inner.get_weights()
    outer.fit(tiny.X, tiny.Y, verbose=0)
    assert all((a == b).all() for a, b in zip(before, inner.get_weights(), strict=True))


def test_an_inner_model_given_back_to_keras_may_be_trained_by_others(inner):
    inner.compile(optimizer="sgd", loss="mse")
    outer = around(inner)
    outer.compile(optimizer="sgd", loss="mse")
    before = inner.get_weights()
    outer.train_on_batch(tiny.X, tiny.Y)
    assert any(np.any(old != new) for old, new in zip(before, inner.get_weights(), strict=True))


def test_one_optimizer_does_not_serve_two_models():
    optimizer = tiny.noisy()
    first = tiny.private(optimizer)
    with pytest.raises(ValueError, match="each model"):
        tiny.private(optimizer)
    assert first.optimizer is optimizer
