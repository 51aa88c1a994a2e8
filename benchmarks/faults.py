"""Faults on purpose: processes killed at random moments, and files with one wrong bit. What must hold is in docs/faults.md.

`python -m benchmarks.faults kills --count 50`, `python -m benchmarks.faults flips --count 500`
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

import tfdp
from experiments.training import mend
from tfdp.accounting import NotPrivateEvent
from tfdp.gradients.plan import first_plan
from tfdp.optimizers import training
from tfdp.optimizers.past import Past

X, Y = np.zeros([8, 1], np.float32), np.zeros([8, 1], np.float32)
KILLS_A_FOLDER = 5


@keras.saving.register_keras_serializable("benchmarks")
class Up(keras.regularizers.Regularizer):
    """Its gradient is -1, whatever the weights are: with a learning rate of 1 a weight counts the steps it went through."""

    def __call__(self, weights):
        return -keras.ops.sum(weights)

    def get_config(self):
        return {}


def counting_model() -> keras.Model:
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", kernel_regularizer=Up())
    model = keras.Sequential([keras.layers.Input((1,)), layer])
    model.compile(optimizer=tfdp.NoisySGD(1.0, l2_norm_clip=1e-6, noise_multiplier=1.0), loss="mse")
    return model


def steps_in_the_weights(model: keras.Model) -> int:
    return round(float(model.get_weights()[0].squeeze()))


def with_weights(path: pathlib.Path) -> keras.Model:
    model = counting_model()
    model.optimizer.build(model.trainable_variables)
    model.load_weights(path)
    return model


def with_tensors(index: pathlib.Path) -> keras.Model:
    model = counting_model()
    model.optimizer.build(model.trainable_variables)
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).read(str(index.with_suffix(""))).expect_partial()
    return model


# Processes that are killed.


class Files(keras.callbacks.Callback):
    """Writes a file of each kind after every step, over one of the three before: the weights are in nearly every write."""

    def __init__(self, folder: pathlib.Path):
        super().__init__()
        self.folder = folder

    def on_train_batch_end(self, batch, logs=None):
        slot = batch % 3
        self.model.save(self.folder / f"{slot}.keras")
        self.model.save_weights(self.folder / f"{slot}.weights.h5")
        tensors = tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer)
        tensors.write(str(self.folder / f"tensors-{slot}"))
        note(self.folder / "steps", steps_in_the_weights(self.model))


class Noted(keras.callbacks.Callback):
    """Comes after BackupAndRestore: what was restored as fit began, and what was backed up since."""

    def __init__(self, folder: pathlib.Path):
        super().__init__()
        self.folder, self.begun = folder, False

    def on_epoch_begin(self, epoch, logs=None):
        if self.begun:
            return
        self.begun = True
        inside, backed_up = steps_in_the_weights(self.model), notes(self.folder / "backups")
        assert self.model.optimizer.ledger.steps >= inside, (self.model.optimizer.ledger, inside)
        assert not backed_up or inside >= backed_up[-1], (inside, backed_up[-1])

    def on_train_batch_end(self, batch, logs=None):
        if (self.folder / "backup" / "training_metadata.json").exists():
            note(self.folder / "backups", steps_in_the_weights(self.model))


def note(file: pathlib.Path, number: int) -> None:
    with file.open("a") as lines:
        lines.write(f"{number}\n")


def notes(file: pathlib.Path) -> list[int]:
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def train(folder: pathlib.Path) -> None:
    """Goes on where the last process in this folder was killed, and never ends."""
    backup = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=1, double_checkpoint=True)
    mend(folder / "backup")  # as train.py does: Keras has no answer where the first backup of all was cut off
    model = counting_model()
    note(folder / "fits", 0)
    callbacks = [Files(folder), backup, Noted(folder)]
    model.fit(X, Y, batch_size=4, epochs=10**6, steps_per_epoch=20, verbose=0, callbacks=callbacks)


def in_a_process(work: Callable[[], None], told: pathlib.Path) -> int:
    """A fork of this process, in which TensorFlow has not run anything yet. Errors go into a file."""
    process = os.fork()
    if process:
        return process
    try:
        work()
        os._exit(0)
    except BaseException:
        told.write_text(traceback.format_exc())
        os._exit(1)


def kill_one(folder: pathlib.Path, rng: random.Random, seconds: float) -> None:
    """A process that trains in this folder is killed: as fit begins and restores, or after its first steps."""
    folder.mkdir(exist_ok=True)
    awaited = folder / rng.choice(["fits", "steps", "steps", "steps"])
    before, error = len(notes(awaited)), folder / "error"
    process = in_a_process(lambda: train(folder), error)
    while len(notes(awaited)) == before and not error.exists():
        time.sleep(0.01)
    time.sleep(rng.uniform(0, seconds))
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status), error.read_text()


def check_folder(folder: pathlib.Path) -> collections.Counter:
    """Every file that can be read shows at least the steps that its weights contain; others are refused with an error."""
    found: collections.Counter = collections.Counter()
    ways = [(keras.models.load_model, "*.keras"), (with_weights, "*.weights.h5"), (with_tensors, "tensors-*.index")]
    ways.append((with_weights, "backup/*.weights.h5"))
    for load, pattern in ways:
        for path in sorted(folder.glob(pattern)):
            try:
                model = load(path)
            except (OSError, ValueError, KeyError, RuntimeError, tf.errors.OpError):
                found[f"{pattern} refused"] += 1
                continue
            inside = steps_in_the_weights(model)
            assert model.optimizer.ledger.steps >= inside > 0, (path, model.optimizer.ledger, inside)
            found[f"{pattern} right"] += 1
    return found


def kills(count: int, seconds: float, minutes: float) -> None:
    ends = time.monotonic() + 60 * minutes
    rng = random.Random()
    training.prove = lambda model, *about: first_plan(
        model
    )  # half of the time until the first step, and no subject here
    with tempfile.TemporaryDirectory() as name:
        base = pathlib.Path(name)
        done = 0
        while done < count and time.monotonic() < ends:
            kill_one(base / str(done // KILLS_A_FOLDER), rng, seconds)
            done += 1
            print(f"{done} killed", flush=True)
        folders = sorted(path for path in base.iterdir() if path.is_dir())
        taken = [notes(folder / "steps") for folder in folders]

        def check() -> None:
            print(dict(sum(map(check_folder, folders), collections.Counter())), flush=True)

        _, status = os.waitpid(in_a_process(check, base / "error"), 0)
        assert status == 0, (base / "error").read_text()
        print(
            f"{done} kills in {len(folders)} folders, {sum(map(len, taken))} steps with files written, 0 releases lost"
        )


# Files with one wrong bit.


@dataclasses.dataclass
class Trained:
    """A model with steps in its weights, and its files; and another one into which damaged files are read."""

    folder: pathlib.Path
    steps: int = 5

    def __post_init__(self) -> None:
        self.model, self.other = counting_model(), counting_model()
        self.model.fit(X, Y, batch_size=4, epochs=1, steps_per_epoch=self.steps, verbose=0)
        self.other.optimizer.build(self.other.trainable_variables)
        self.model.save(self.folder / "model.keras")
        self.model.save_weights(self.folder / "model.weights.h5")
        tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer).write(str(self.folder / "tensors"))

    def emptied(self) -> keras.Model:
        """The other model, as if it had never been trained and never read a file."""
        optimizer = self.other.optimizer
        for variable in [*self.other.variables, *optimizer.variables]:
            variable.assign(keras.ops.zeros_like(variable))
        optimizer.book.calibration, optimizer.book.described = None, 0
        optimizer.book.adopt(Past())
        return self.other

    def after(self, load: Callable[[pathlib.Path], keras.Model], path: pathlib.Path) -> str:
        """What became of a file that was damaged: `refused`, `right`, `infinite` (said to be unknown), or what was wrong."""
        refused, model = "", self.other
        try:
            model = load(path)
        except Exception as error:
            refused = f"refused: {type(error).__name__}"
        ledger, inside = model.optimizer.ledger, steps_in_the_weights(model)
        if any(isinstance(line.event, NotPrivateEvent) for line in ledger):
            return refused or "infinite"
        if refused and inside == 0:
            return refused
        right = ledger == self.model.optimizer.ledger and model.optimizer.fits == self.model.optimizer.fits
        return refused or "right" if right else f"WRONG: {refused} {ledger}, weights of {inside} steps"

    def load_weights(self, path: pathlib.Path) -> keras.Model:
        self.emptied().load_weights(path)
        return self.other

    def load_model(self, path: pathlib.Path) -> keras.Model:
        self.emptied()
        return keras.models.load_model(path)

    def load_tensors(self, path: pathlib.Path) -> keras.Model:
        model = self.emptied()
        tensors = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        tensors.read(str(path.parent / path.name.partition(".")[0])).expect_partial()
        return model


def flipped(content: bytes, count: int, rng: random.Random) -> Iterator[bytes]:
    """One bit each: anywhere, or where something is."""
    filled = [place for place, byte in enumerate(content) if byte]
    for number in range(count):
        place = rng.choice(filled) if number % 2 else rng.randrange(len(content))
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.randrange(8)
        yield bytes(damaged)


def outcomes(trained: Trained, load: Callable, path: pathlib.Path, contents: Iterator[bytes]) -> collections.Counter:
    """What became of these contents in the place of a file, which is as it was afterwards."""
    whole = path.read_bytes()
    found: collections.Counter = collections.Counter()
    try:
        for content in contents:
            path.write_bytes(content)
            found[trained.after(load, path)] += 1
    finally:
        path.write_bytes(whole)
    return found


def flips(count: int) -> None:
    rng = random.Random()
    with tempfile.TemporaryDirectory() as name:
        trained = Trained(pathlib.Path(name))
        files = {
            "model.weights.h5": (trained.load_weights, count),
            "tensors.index": (trained.load_tensors, count // 4),
            "tensors.data-00000-of-00001": (trained.load_tensors, count // 4),
            "model.keras": (trained.load_model, count // 8),
        }
        for file, (load, times) in files.items():
            path = trained.folder / file
            found = outcomes(trained, load, path, flipped(path.read_bytes(), times, rng))
            print(f"{file}: {times} bits, {dict(found)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["kills", "flips"])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=3.0, help="killed within so many seconds")
    parser.add_argument("--minutes", type=float, default=60.0, help="no kill is begun later")
    options = parser.parse_args()
    if options.what == "kills":
        kills(options.count, options.seconds, options.minutes)
    else:
        flips(options.count)
