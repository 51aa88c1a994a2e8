"""The cases of one of two workers (MultiWorkerMirroredStrategy): python -m tests.distribution.on_workers FOLDER PHASE"""

import hashlib
import json
import os
import sys

import tensorflow as tf

STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else is done with TensorFlow
WORKER = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

import keras  # noqa: E402
import numpy as np  # noqa: E402

import tfdp  # noqa: E402
from tests.distribution import cases  # noqa: E402
from tests.optimizers import tiny  # noqa: E402


def private(optimizer=None, **arguments) -> keras.Model:
    with STRATEGY.scope():
        return tiny.private(optimizer and optimizer(), **arguments)


def digest(model: keras.Model) -> str:
    return hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()


def epoch_of_poisson_lots() -> dict:
    model = private(metrics=["mae"])
    history = model.fit(cases.lots(), epochs=1, verbose=0, validation_data=(tiny.X, tiny.Y)).history
    return {"weights": cases.as_lists(model.get_weights()), "history": history}


def budget_of_noise() -> dict:
    """Every step is of all records: the budget ends the run after a few."""
    with STRATEGY.scope():
        model = cases.only_noise()
    stop = tfdp.callbacks.BudgetStopping(target_epsilon=3.5, delta=1e-5)
    moves = cases.without_records(model, steps=5, epochs=100, callbacks=[stop])
    return {
        "squares": float(np.sum(np.square(moves, dtype=np.float64))),
        "draws": moves.size,
        "steps": model.optimizer.ledger.steps,
        "weights": digest(model),
        "origins": model.optimizer.book.read().origins,
    }


def records_in_another_order() -> bool:
    model = private(tiny.noisy)
    order = slice(None, None, 1 - 2 * WORKER)
    with tiny.nothing_moves(model):
        try:
            tiny.train(model, tiny.X[order], tiny.Y[order])
        except ValueError as error:
            return "differ in their records, so" in str(error)
    return False


def declared() -> None:
    dataset = tf.data.Dataset.from_tensor_slices((tiny.X, tiny.Y)).batch(4)
    lots = tfdp.data.declare_sampling(dataset, "shuffled", size=tiny.SIZE, batch_size=4)
    private().fit(lots, verbose=0)


def shard_of_another() -> None:
    private().fit(tfdp.data.PoissonBatches(tiny.X, tiny.Y, batch_size=4).shard(1 - WORKER, 2), verbose=0)


def until_killed(folder: str) -> None:
    """The second worker ends itself in the middle of the second epoch."""

    def end(batch, logs):
        if WORKER == 1 and model.optimizer.book.released == cases.STEPS_PER_EPOCH + 2:
            os._exit(9)

    model = private(tiny.noisy)
    train_with_backup(model, folder, [keras.callbacks.LambdaCallback(on_train_batch_end=end)])


def resumed(folder: str) -> dict:
    epochs = []
    model = private(tiny.noisy)
    begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs.append(epoch))
    train_with_backup(model, folder, [begin])
    return {"epochs": epochs, "steps": model.optimizer.ledger.steps, "weights": digest(model)}


def train_with_backup(model: keras.Model, folder: str, callbacks: list) -> None:
    backup = keras.callbacks.BackupAndRestore(f"{folder}/backup_{WORKER}")
    tiny.train(model, steps=cases.STEPS_PER_EPOCH, epochs=cases.EPOCHS, batch_size=4, callbacks=[backup, *callbacks])


CASES = (epoch_of_poisson_lots, budget_of_noise, records_in_another_order, declared, shard_of_another)

if __name__ == "__main__":
    folder, phase = sys.argv[1:]
    cases.count_dense_layers_as_proved()
    if phase == "first":
        cases.tell({case.__name__: cases.told(case) for case in CASES})
        until_killed(folder)
    else:
        cases.tell({"resumed": cases.told(lambda: resumed(folder))})
