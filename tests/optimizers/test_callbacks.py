"""Keras's callbacks see a private optimizer as they see any other."""

import csv

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import FullBatch, GaussianEvent, Line

SAME_AS_KERAS = {
    "SwapEMAWeights": (
        {"use_ema": True, "ema_momentum": 0.5},
        lambda: keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
    ),
    "LearningRateScheduler": ({}, lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)),
    "ReduceLROnPlateau": (
        {},
        lambda: keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=1e9, factor=0.5),
    ),
}


@pytest.mark.parametrize("name", SAME_AS_KERAS)
def test_a_callback_does_what_it_does_to_an_ordinary_optimizer(name):
    arguments, callback = SAME_AS_KERAS[name]
    twin = tiny.linear()
    twin.compile(optimizer=keras.optimizers.SGD(0.1, **arguments), loss="mse")
    plain = twin.fit(tiny.X, tiny.Y, batch_size=tiny.SIZE, epochs=4, verbose=0, callbacks=[callback()])

    model = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=1e6, noise_multiplier=0.0, **arguments))
    history = tiny.train(model, epochs=4, callbacks=[callback()])

    tiny.assert_weights(model, twin.get_weights())
    assert float(model.optimizer.learning_rate) == float(twin.optimizer.learning_rate)
    assert set(history.history) == set(plain.history)


def test_checkpoints_and_logs_are_written(tmp_path):
    model = tiny.private(tiny.noisy())
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras"),
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.weights.h5", save_weights_only=True),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.EarlyStopping(monitor="loss", patience=10, restore_best_weights=True),
    ]
    history = tiny.train(model, epochs=2, callbacks=callbacks)
    assert keras.models.load_model(tmp_path / "1.keras").optimizer.ledger.steps == 1
    assert keras.models.load_model(tmp_path / "2.keras").optimizer.ledger == model.optimizer.ledger
    other = tiny.private(tiny.noisy())
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "2.weights.h5")
    assert other.optimizer.ledger == model.optimizer.ledger
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    np.testing.assert_allclose([float(row["loss"]) for row in rows], history.history["loss"])


def test_terminate_on_nan_sees_the_loss():
    x = tiny.X.copy()
    x[0] = np.nan
    model = tiny.private()
    tiny.train(model, x, steps=5, callbacks=[keras.callbacks.TerminateOnNaN()])
    assert model.optimizer.ledger.steps == 1


class Interrupted(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def test_backup_and_restore_goes_on_with_the_same_line(tmp_path):
    model = tiny.private(tiny.noisy())
    backup = lambda: keras.callbacks.BackupAndRestore(tmp_path / "backup")  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        tiny.train(model, epochs=5, callbacks=[backup(), Interrupted()])
    weights = model.get_weights()

    resumed = tiny.private(tiny.noisy())
    seen = []
    watch = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(resumed.get_weights()))
    tiny.train(resumed, epochs=5, callbacks=[backup(), watch])
    for old, new in zip(weights, seen[0], strict=True):
        np.testing.assert_array_equal(new, old)
    assert list(resumed.optimizer.ledger) == [Line(GaussianEvent(1.0), FullBatch(tiny.SIZE), 5)]


def test_stopping_training_stops_the_ledger():
    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    model = tiny.private(tiny.noisy())
    tiny.train(model, steps=5, callbacks=[Stops()])
    assert model.optimizer.ledger.steps == int(model.optimizer.iterations) == 2
