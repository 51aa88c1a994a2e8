"""Saved, pickled and copied models go on privately; clones start afresh."""

import copy
import pickle

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny


@pytest.fixture(scope="module")
def trained() -> keras.Model:
    model = tiny.private()
    tiny.train(model)
    return model


def reloaded(model, tmp_path, safe_mode):
    model.save(tmp_path / "model.keras")
    return keras.models.load_model(tmp_path / "model.keras", safe_mode=safe_mode)


COPIES = {
    "load_model": lambda model, tmp_path: reloaded(model, tmp_path, True),
    "load_model without safe mode": lambda model, tmp_path: reloaded(model, tmp_path, False),
    "pickle": lambda model, tmp_path: pickle.loads(pickle.dumps(model)),
    "deepcopy": lambda model, tmp_path: copy.deepcopy(model),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_goes_on_privately(trained, tmp_path, way):
    model = COPIES[way](trained, tmp_path)
    assert model is not trained
    assert type(model.optimizer) is tfdp.NoisySGD
    assert model.optimizer.get_config() == trained.optimizer.get_config()
    assert model.optimizer.ledger == trained.optimizer.ledger
    with tiny.nothing_moves(model), pytest.raises(RuntimeError, match="fit"):
        model.train_on_batch(tiny.X, tiny.Y)
    start = model.get_weights()
    tiny.train(model, steps=2)
    tiny.assert_weights(model, tiny.after_sgd(start, steps=2))
    assert model.optimizer.ledger.steps == 3
    assert trained.optimizer.ledger.steps == 1


def test_a_clone_is_a_model_of_its_own(trained):
    clone = keras.models.clone_model(trained)
    if not clone.compiled:  # newer Keras compiles a clone like its original
        tiny.private(model=clone)
    assert clone.optimizer is not trained.optimizer
    assert clone.optimizer.ledger.steps == 0
    start = clone.get_weights()
    tiny.train(clone)
    tiny.assert_weights(clone, tiny.after_sgd(start))
    assert clone.optimizer.ledger.steps == trained.optimizer.ledger.steps == 1


def test_a_clone_can_be_given_to_keras(trained):
    clone = keras.models.clone_model(trained)
    start = clone.get_weights()
    clone.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    clone.train_on_batch(tiny.X, tiny.Y)
    tiny.assert_weights(clone, tiny.after_sgd(start, clip=np.inf))
