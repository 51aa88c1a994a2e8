"""Ordinary training between private runs is in the ledger, also where it reached the weights through another model."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
Y = X[:, :1]


def private(model):
    model.compile(tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=2.0), loss="mse")
    model.fit(X, Y, batch_size=4, verbose=0)


def epsilon(model):
    return tfdp.accounting.epsilon(model.optimizer.ledger, delta=1e-3)


def test_a_sibling_that_shares_the_weights_leaves_an_infinite_line():
    inputs = keras.Input((3,))
    outputs = keras.layers.Dense(1)(inputs)
    model, sibling = keras.Model(inputs, outputs), keras.Model(inputs, outputs)
    private(model)
    assert math.isfinite(epsilon(model))
    model.compile("sgd", loss="mse")
    sibling.compile("sgd", loss="mse")
    sibling.fit(X, Y, verbose=0)
    private(model)
    assert math.isinf(epsilon(model))


def test_a_copy_saved_after_a_legacy_file_is_still_private(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    private(model)
    model.save(tmp_path / "old.h5")
    model.save(tmp_path / "new.keras")
    loaded = keras.models.load_model(tmp_path / "new.keras")
    assert isinstance(loaded.optimizer, tfdp.NoisySGD)
    assert loaded.optimizer.ledger == model.optimizer.ledger


def test_a_callback_can_not_slip_in_a_lot_of_its_own_choice():
    class Slips(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.train_step(((X[:1], Y[:1]), tf.constant([True])))

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=2.0), loss="mse")
    with pytest.raises(RuntimeError, match=r"only inside model\.fit"):
        model.fit(X, Y, batch_size=4, verbose=0, callbacks=[Slips()])
    assert model.optimizer.ledger.steps == 1
