"""A process killed at any point leaves files whose ledger holds at least the steps that their weights contain."""

import pathlib
import random
import signal
import subprocess
import sys
import time

import keras
import pytest

import tfdp
from benchmarks.faults import X, Y, counting_model, steps_in_the_weights, with_tensors, with_weights

TRAIN = """
import pathlib, sys
import keras, tensorflow as tf
from benchmarks.faults import counting_model, X, Y

folder = pathlib.Path(sys.argv[1])
model = counting_model()
tensors = tf.train.Checkpoint(model=model, optimizer=model.optimizer)

class Checkpoints(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch % 3 == 0:
            tensors.save(str(folder / "tensors" / "checkpoint"))

model.fit(X, Y, batch_size=4, epochs=10**6, steps_per_epoch=20, verbose=0, callbacks=[
    keras.callbacks.BackupAndRestore(folder / "backup", save_freq=2, double_checkpoint=True),
    keras.callbacks.ModelCheckpoint(folder / "{epoch}.weights.h5", save_weights_only=True, save_freq=5),
    keras.callbacks.ModelCheckpoint(folder / "{epoch}.keras", save_freq=7),
    Checkpoints(),
])
"""


def killed_after_second_backup(folder: pathlib.Path, seconds: float) -> None:
    """From then on there is one to go back to, whatever the kill tears."""
    process = subprocess.Popen([sys.executable, "-c", TRAIN, str(folder)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(folder.glob("backup/*.json.bkp")):
        assert process.poll() is None, "training ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def readable(load, paths) -> list:
    """What can be read: the file that was being written when the process was killed may be torn."""
    loaded = []
    for path in paths:
        try:
            loaded.append(load(path))
        except (OSError, ValueError, KeyError, RuntimeError):  # HDF5 has all of these for a torn file
            continue
    return loaded


def test_the_weight_counts_steps():
    model = counting_model()
    model.fit(X, Y, batch_size=4, epochs=3, steps_per_epoch=5, verbose=0)
    assert steps_in_the_weights(model) == model.optimizer.ledger.steps == 15


@pytest.mark.parametrize("attempt", range(2))
def test_no_file_of_a_killed_process_shows_fewer_steps_than_its_weights_contain(tmp_path, attempt):
    killed_after_second_backup(tmp_path, random.uniform(0.2, 2.0))
    models = readable(keras.models.load_model, tmp_path.glob("*.keras"))
    models += readable(with_weights, [*tmp_path.glob("*.weights.h5"), *tmp_path.glob("backup/*.weights.h5")])
    models += readable(with_tensors, tmp_path.glob("tensors/*.index"))
    assert len(models) >= 3
    for model in models:
        assert model.optimizer.ledger.steps >= steps_in_the_weights(model) > 0


def test_training_that_resumes_after_a_kill_counts_all_steps_in_its_weights(tmp_path):
    killed_after_second_backup(tmp_path, random.uniform(0.0, 1.0))
    model = counting_model()
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=2, double_checkpoint=True)
    stop = tfdp.callbacks.BudgetStopping(1e6, 1e-5)
    begun = []
    begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: begun.append(steps_in_the_weights(model)))

    def end(epoch, logs):
        model.stop_training = True

    model.fit(
        X, Y, batch_size=4, epochs=10**6, steps_per_epoch=20, verbose=0,
        callbacks=[backup, stop, begin, keras.callbacks.LambdaCallback(on_epoch_end=end)],
    )  # fmt: skip
    assert begun[0] > 0
    assert model.optimizer.ledger.steps == steps_in_the_weights(model) == begun[0] + 20
