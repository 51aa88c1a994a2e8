"""Compiling with an ordinary optimizer gives back Keras's own fit; the ledger outlives every compile."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import NotPrivateEvent
from tfdp.optimizers import hook


def ordinary(model):
    model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
    model.fit(tiny.X, tiny.Y, batch_size=3, epochs=2, shuffle=False, verbose=0)
    model.train_on_batch(tiny.X, tiny.Y)
    return model


@pytest.fixture(scope="module")
def model_and_twin() -> tuple[keras.Model, keras.Model]:
    """A model trained privately and then with an ordinary optimizer, and one that was trained by Keras alone."""
    model = tiny.private(tiny.noisy())
    tiny.train(model, steps=2)
    twin = tiny.linear()
    twin.set_weights(model.get_weights())
    return ordinary(model), ordinary(twin)


def test_ordinary_fit_after_a_private_one_is_keras_own(model_and_twin):
    model, twin = model_and_twin
    for got, wanted in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_nothing_is_left_on_an_ordinary_model(model_and_twin):
    model, _ = model_and_twin
    assert "train_step" not in model.__dict__
    assert hook.training_of(model) is None


def test_an_ordinary_fit_between_private_ones_is_an_infinite_line(model_and_twin):
    model, _ = model_and_twin
    tiny.private(tiny.noisy(), model)
    tiny.train(model)
    ledger = model.optimizer.ledger
    assert sum(line.steps for line in ledger if not isinstance(line.event, NotPrivateEvent)) == 3
    assert any(isinstance(line.event, NotPrivateEvent) for line in ledger)


def test_an_ordinary_compile_without_training_leaves_no_line():
    model = tiny.private(tiny.noisy())
    tiny.train(model)
    ledger = model.optimizer.ledger
    model.compile(optimizer="sgd", loss="mse")
    model.evaluate(tiny.X, tiny.Y, verbose=0)
    tiny.private(tiny.noisy(), model)
    assert model.optimizer.ledger == ledger


def test_recompiling_keeps_the_ledger_and_begins_a_new_line():
    model = tiny.private(tiny.noisy())
    tiny.train(model, steps=2)
    optimizer = tfdp.NoisyAdam(l2_norm_clip=1.0, noise_multiplier=2.0)
    tiny.private(optimizer, model)
    tiny.train(model, steps=3)
    assert [(line.event.noise_multiplier, line.steps) for line in optimizer.ledger] == [(1.0, 2), (2.0, 3)]


def test_recompiling_with_the_same_optimizer_counts_no_step_twice():
    model = tiny.private(tiny.noisy())
    tiny.train(model, steps=2)
    tiny.private(model.optimizer, model)
    assert model.optimizer.ledger.steps == 2
    tiny.train(model)
    assert model.optimizer.ledger.steps == 3


def test_going_back_to_the_first_optimizer_counts_no_step_twice():
    model = tiny.private(tiny.noisy())
    first = model.optimizer
    tiny.train(model, steps=2)
    ordinary(model)
    tiny.private(first, model)
    assert sum(line.steps for line in first.ledger if not isinstance(line.event, NotPrivateEvent)) == 2
    assert any(isinstance(line.event, NotPrivateEvent) for line in first.ledger)
