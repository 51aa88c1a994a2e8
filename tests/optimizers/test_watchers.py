"""Callbacks that see metrics are written down with what they do."""

import keras
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import Watcher
from tfdp.optimizers.watchers import watchers_of


class Own(keras.callbacks.Callback):
    pass


class OwnEarlyStopping(keras.callbacks.EarlyStopping):
    pass


ACT = {
    "EarlyStopping": (lambda: keras.callbacks.EarlyStopping("loss"), "loss", "stops training"),
    "ReduceLROnPlateau": (
        lambda: keras.callbacks.ReduceLROnPlateau("val_loss"),
        "val_loss",
        "changes the learning rate",
    ),
    "ModelCheckpoint": (
        lambda: keras.callbacks.ModelCheckpoint("best.keras", monitor="acc", save_best_only=True),
        "acc",
        "chooses weights",
    ),
    "TerminateOnNaN": (keras.callbacks.TerminateOnNaN, "loss", "stops training"),
    "OwnEarlyStopping": (lambda: OwnEarlyStopping("loss"), "loss", "stops training"),
    "Own": (Own, None, "unknown"),
    "LambdaCallback": (keras.callbacks.LambdaCallback, None, "unknown"),
}


@pytest.mark.parametrize("name", ACT)
def test_who_acts_is_written_down(name):
    make, metric, action = ACT[name]
    assert watchers_of([make()]) == (Watcher(name, metric, action),)


DO_NOT_ACT = {
    "every checkpoint": lambda: keras.callbacks.ModelCheckpoint("{epoch}.keras"),
    "CSVLogger": lambda: keras.callbacks.CSVLogger("log.csv"),
    "History": keras.callbacks.History,
    "a schedule": lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate),
    "stopping at a privacy loss": lambda: keras.callbacks.EarlyStopping("epsilon"),
}


@pytest.mark.parametrize("name", DO_NOT_ACT)
def test_who_does_not_act_is_not(name):
    assert watchers_of([DO_NOT_ACT[name]()]) == ()


def test_they_are_saved_with_the_ledger(tmp_path):
    model = tiny.private(tiny.noisy())
    stopping = keras.callbacks.EarlyStopping("loss", baseline=-1.0)
    tiny.train(model, epochs=5, callbacks=[stopping])
    assert model.optimizer.ledger.steps == 2  # no loss is below the baseline
    model.save(tmp_path / "model.keras")
    (record,) = keras.models.load_model(tmp_path / "model.keras").optimizer.fits
    assert record.watchers == (Watcher("EarlyStopping", "loss", "stops training"),)
    assert (record.steps, record.not_taken.steps, record.weights) == (2, 3, 4)


def test_they_outlive_a_new_compile():
    model = tiny.private(tiny.noisy())
    tiny.train(model, callbacks=[Own()])
    tiny.private(tiny.noisy(), model=model)
    tiny.train(model)
    assert [record.watchers for record in model.optimizer.fits] == [(Watcher("Own", None, "unknown"),), ()]


def test_alike_fits_are_one_record():
    model = tiny.private(tiny.noisy())
    for _ in range(3):
        tiny.train(model, steps=2)
    (record,) = model.optimizer.fits
    assert (record.steps, record.fits) == (6, 3)


def test_what_a_user_declared_is_written_down():
    dataset = tf.data.Dataset.from_tensor_slices((tiny.X, tiny.Y)).map(lambda x, y: (x, y)).batch(4)
    declared = tfdp.data.declare_sampling(dataset, "shuffled", size=tiny.SIZE, batch_size=4)
    model = tiny.private(tiny.noisy())
    model.fit(declared, verbose=0)
    (record,) = model.optimizer.fits
    assert record.unchecked == declared.unchecked
