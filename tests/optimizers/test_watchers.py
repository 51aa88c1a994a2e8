"""Callbacks that see metrics are written down with what they do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import Watcher
from tfdp.callbacks import BudgetStopping, PrivacyLogger
from tfdp.optimizers.watchers import are_training_records, training_metrics_of, watchers_of


def watchers(*callbacks, training_metrics=("loss", "acc"), validated=True) -> tuple[Watcher, ...]:
    return watchers_of(callbacks, training_metrics, validated)


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
    assert watchers(make()) == (Watcher(name, metric, action, metric == "val_loss"),)


DO_NOT_ACT = {
    "every checkpoint": lambda: keras.callbacks.ModelCheckpoint("{epoch}.keras"),
    "CSVLogger": lambda: keras.callbacks.CSVLogger("log.csv"),
    "History": keras.callbacks.History,
    "a schedule": lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate),
    "our own": lambda: BudgetStopping(1.0, 1e-5),
}


@pytest.mark.parametrize("name", DO_NOT_ACT)
def test_who_does_not_act_is_not(name):
    assert watchers(DO_NOT_ACT[name]()) == ()


# A name alone is not believed.


@pytest.mark.parametrize("pricing", [PrivacyLogger(1e-5), BudgetStopping(1.0, 1e-5)])
def test_stopping_at_a_privacy_loss_reveals_nothing(pricing):
    assert watchers(keras.callbacks.EarlyStopping("epsilon"), pricing) == ()


@pytest.mark.parametrize("arguments", [{}, {"training_metrics": ("loss", "epsilon")}])
def test_epsilon_is_a_privacy_loss_only_if_ours_writes_it_and_no_metric_has_its_name(arguments):
    ours = [PrivacyLogger(1e-5)] if arguments else []
    expected = Watcher("EarlyStopping", "epsilon", "stops training", validation=False)
    assert watchers(keras.callbacks.EarlyStopping("epsilon"), *ours, **arguments) == (expected,)


@pytest.mark.parametrize(
    ("arguments", "validation"),
    [({}, True), ({"validated": False}, False), ({"training_metrics": ("loss", "val_acc")}, False)],
)
def test_val_is_validation_only_if_there_is_some_and_no_metric_has_its_name(arguments, validation):
    expected = Watcher("EarlyStopping", "val_acc", "stops training", validation)
    assert watchers(keras.callbacks.EarlyStopping("val_acc"), **arguments) == (expected,)


def accuracy(y, predicted):
    return keras.ops.mean(keras.ops.abs(y - predicted), axis=-1)


def mean(name: str) -> keras.metrics.Metric:
    return keras.metrics.MeanMetricWrapper(accuracy, name=name)


def test_a_training_metric_that_is_named_like_one_of_validation_is_seen_through():
    model = tiny.private(tiny.noisy(), metrics=[mean("val_acc")])
    stopping = keras.callbacks.EarlyStopping("val_acc", patience=3, mode="min")
    tiny.train(model, epochs=2, callbacks=[stopping], validation_data=(tiny.X + 1, tiny.Y))
    (record,) = model.optimizer.fits
    assert record.watchers == (Watcher("EarlyStopping", "val_acc", "stops training", validation=False),)
    assert tfdp.privacy_statement(model, delta=1e-5).epsilon is None


def two_outputs() -> keras.Model:
    inputs = keras.layers.Input((3,))
    names = ("val", "other")
    return keras.Model(inputs, [keras.layers.Dense(1, name=name)(inputs) for name in names])


@pytest.mark.parametrize("make", [tiny.linear, two_outputs])
def test_all_that_the_step_reports_is_known_beforehand(make):
    model = tiny.private(tiny.noisy(), model=make())
    outputs = len(model.outputs)
    metrics, weighted = [[mean("acc"), mean("epsilon")], [mean("acc")]], [[mean("w")], [mean("w")]]
    if outputs == 1:
        metrics, weighted = metrics[0], weighted[0]
    model.compile(optimizer=tiny.noisy(), loss=["mse"] * outputs, metrics=metrics, weighted_metrics=weighted)
    history = tiny.train(model, y=[tiny.Y] * outputs if outputs > 1 else tiny.Y)
    assert training_metrics_of(model) == set(history.history)
    assert ("val_acc" in history.history) == (outputs == 2)


VALIDATION = {
    "none": ({}, False),
    "other records": ({"validation_data": (tiny.X + 1, tiny.Y)}, True),
    "a part that is cut off": ({"validation_split": 0.25, "batch_size": 4}, True),
    "the training records": ({"validation_data": (tiny.X, tiny.Y)}, False),
    "a part of the training records": ({"validation_data": (tiny.X[2:5], tiny.Y[2:5])}, False),
}


@pytest.mark.parametrize("name", VALIDATION)
def test_whether_val_loss_is_of_validation_records(name):
    arguments, validation = VALIDATION[name]
    model = tiny.private(tiny.noisy())
    tiny.train(model, callbacks=[keras.callbacks.ReduceLROnPlateau("val_loss")], **arguments)
    (record,) = model.optimizer.fits
    assert record.watchers == (Watcher("ReduceLROnPlateau", "val_loss", "changes the learning rate", validation),)


def test_whatever_form_the_training_records_have_they_are_known_again():
    tensor, dataset = tf.constant(tiny.X), tf.data.Dataset.from_tensors(tiny.X)
    for x in (tiny.X, tensor, dataset, {"a": tiny.X, "b": tiny.X}, [tiny.X, tensor]):
        assert are_training_records(x, x)
        assert are_training_records(x, (x, tiny.Y))
        assert not are_training_records(x, (np.copy(tiny.X), tiny.Y))
    assert not are_training_records(tiny.X[:4], (tiny.X[4:], tiny.Y[4:]))
    assert not are_training_records([[1.0, 2.0]], ([[1.0, 2.0]], None))


# Code of the user's.


class StopsByLooking(keras.callbacks.EarlyStopping):
    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)


class ReadsAnotherMetric(keras.callbacks.EarlyStopping):
    def get_monitor_value(self, logs):
        return logs["loss"]


class KeepsAll(keras.callbacks.ModelCheckpoint):
    def on_train_batch_end(self, batch, logs=None):
        pass


class LooksFirst(BudgetStopping):
    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)


@pytest.mark.parametrize("cls", [StopsByLooking, ReadsAnotherMetric])
def test_a_subclass_with_code_of_its_own_may_do_more_than_its_base(cls):
    known = Watcher(cls.__name__, "val_loss", "stops training", validation=True)
    assert watchers(cls("val_loss")) == (known, Watcher(cls.__name__, None, "unknown"))


@pytest.mark.parametrize("callback", [KeepsAll("{epoch}.keras"), LooksFirst(1.0, 1e-5)])
def test_a_subclass_of_one_that_does_not_act_may_act(callback):
    assert watchers(callback) == (Watcher(type(callback).__name__, None, "unknown"),)


def test_a_method_that_was_put_on_a_callback_is_code_of_the_users():
    stopping = keras.callbacks.EarlyStopping("val_loss")
    stopping.on_epoch_end = lambda epoch, logs=None: None
    assert Watcher("EarlyStopping", None, "unknown") in watchers(stopping)


# They are kept.


def test_they_are_saved_with_the_ledger(tmp_path):
    model = tiny.private(tiny.noisy(learning_rate=0.0))
    tiny.train(model, epochs=5, callbacks=[keras.callbacks.EarlyStopping("loss")])
    assert model.optimizer.ledger.steps == 2  # the second loss is the first
    model.save(tmp_path / "model.keras")
    (record,) = keras.models.load_model(tmp_path / "model.keras").optimizer.fits
    assert record.watchers == (Watcher("EarlyStopping", "loss", "stops training"),)
    assert (record.steps, record.planned.steps, record.weights) == (2, 5, 4)


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
