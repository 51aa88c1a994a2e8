"""Whatever a model is compiled with, and whether it is: the ledger comes out of a file with the weights."""

import copy
import math

import keras
import keras_hub
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tests.optimizers.test_keras_hub_tasks import LABELS, TEXTS, classifier
from tfdp.accounting import FullBatch, GaussianEvent, Ledger, Line, NotPrivateEvent
from tfdp.optimizers.hook import fits_of, ledger_of

EXPECTED = Ledger([Line(GaussianEvent(1.0), FullBatch(tiny.SIZE), 3)])


@pytest.fixture(scope="module")
def trained() -> keras.Model:
    model = tiny.private(tiny.noisy())
    tiny.train(model, steps=3)
    return model


def not_compiled(name):
    def carried(model, folder):
        model.save(folder / name)
        return keras.models.load_model(folder / name, compile=False)

    return carried


def weights_into_a_fresh_model(model, folder):
    model.save_weights(folder / "x.weights.h5")
    fresh = tiny.linear()
    fresh.load_weights(folder / "x.weights.h5")
    return fresh


def weights_of_a_part(model, folder):
    """As KerasHub's save_to_preset writes a backbone."""
    outer = keras.Sequential([keras.Input((3,)), model, keras.layers.Dense(1)])
    outer.layers[0].save_weights(folder / "x.weights.h5")
    fresh = keras.Sequential([keras.Input((3,)), tiny.linear()])
    fresh.layers[0].load_weights(folder / "x.weights.h5")
    return fresh


def before_weights_had_a_past(model, folder):
    """Files with the optimizer's copy of the ledger alone."""
    past = model.__dict__.pop("_tfdp_past", None)
    model.__dict__["_tfdp_past"] = None
    try:
        return not_compiled("x.keras")(model, folder)
    finally:
        model.__dict__["_tfdp_past"] = past


WAYS = {
    "compile=False": not_compiled("x.keras"),
    "legacy .h5, compile=False": not_compiled("x.h5"),
    "weights": weights_into_a_fresh_model,
    "a part": weights_of_a_part,
    "an older file": before_weights_had_a_past,
    "deepcopy": lambda model, folder: copy.deepcopy(model),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_ledger_comes_with_the_weights_into_a_model_that_is_compiled_later(way, trained, tmp_path):
    loaded = WAYS[way](trained, tmp_path)
    assert ledger_of(loaded) == EXPECTED
    assert sum(record.steps for record in fits_of(loaded)) == 3
    tiny.private(tiny.noisy(), loaded)
    assert tfdp.privacy_statement(loaded).epsilon == tfdp.privacy_statement(trained).epsilon > 0
    tiny.train(loaded, steps=2)
    assert ledger_of(loaded).steps == loaded.optimizer.ledger.steps == 5


def test_files_of_the_same_run_are_counted_once(trained, tmp_path):
    trained.save(tmp_path / "x.keras")
    loaded = keras.models.load_model(tmp_path / "x.keras", compile=False)
    for _ in range(2):
        loaded.load_weights(tmp_path / "x.keras")
        tiny.private(tiny.noisy(), loaded)
    outer = keras.Sequential([keras.Input((3,)), loaded, keras.layers.Dense(1)])
    outer.save(tmp_path / "outer.keras")
    again = keras.models.load_model(tmp_path / "outer.keras")
    whole = keras.Sequential([keras.Input((3,)), again])
    assert [ledger_of(model) for model in (loaded, outer, again, whole)] == [EXPECTED] * 4


def test_ordinary_training_in_between_is_in_the_file_of_an_ordinary_model(tmp_path):
    model = tiny.private(tiny.noisy())
    tiny.train(model)
    model.compile("adam", "mse")
    model.fit(tiny.X, tiny.Y, verbose=0)
    model.save(tmp_path / "x.keras")
    loaded = keras.models.load_model(tmp_path / "x.keras")
    assert any(isinstance(line.event, NotPrivateEvent) for line in ledger_of(loaded))
    assert math.isinf(tfdp.accounting.epsilon(ledger_of(loaded), delta=1e-3))


def test_an_ordinary_fit_of_loaded_weights_is_an_infinite_line(trained, tmp_path):
    loaded = weights_into_a_fresh_model(trained, tmp_path)
    loaded.compile("sgd", "mse")
    loaded.fit(tiny.X, tiny.Y, verbose=0)
    assert any(isinstance(line.event, NotPrivateEvent) for line in ledger_of(loaded))


def test_a_model_that_nobody_trained_leaves_nothing_in_its_file(tmp_path):
    import h5py

    tiny.private(tiny.noisy()).save_weights(tmp_path / "x.weights.h5")
    with h5py.File(tmp_path / "x.weights.h5") as file:
        assert "_tfdp_past" not in file


def test_a_keras_hub_task_brings_its_ledger_by_file_and_by_preset(tmp_path):
    """Keras does not compile what has a compile of its own; a preset has no optimizer."""
    task = classifier()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    task.compile(tfdp.NoisySGD(0.5, l2_norm_clip=1.0, noise_multiplier=1.0), loss=loss, weighted_metrics=[])
    task.fit(TEXTS, LABELS, batch_size=16, verbose=0)
    task.save(tmp_path / "task.keras")
    task.save_to_preset(str(tmp_path / "preset"))
    loaded = keras.models.load_model(tmp_path / "task.keras")
    preset = keras_hub.models.BertTextClassifier.from_preset(str(tmp_path / "preset"))
    backbone = keras_hub.models.BertBackbone.from_preset(str(tmp_path / "preset"))
    assert ledger_of(task).steps == 1
    assert [ledger_of(model) for model in (loaded, preset, backbone)] == [ledger_of(task)] * 3
    for model in (loaded, preset):
        model.compile(tfdp.NoisySGD(0.5, l2_norm_clip=1.0, noise_multiplier=1.0), loss=loss, weighted_metrics=[])
        assert model.optimizer.ledger == ledger_of(task)
    np.testing.assert_allclose(loaded.get_weights()[0], task.get_weights()[0])
