"""Any order of fits, broken-off fits, saves, loads, copies and new compilations: every release is in the ledger, none is made
twice, and the weights are the sum of releases.

The inner optimizer is SGD and all gradients are 0, so that weights move by noise alone and every release can be seen.
"""

import copy
import dataclasses
import pathlib
import pickle
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import NotPrivateEvent

WIDTH, LENGTH = 100, 12
TARGET = {"target_epsilon": 3.0, "delta": 1e-3}
KINDS = {
    "noise": {"noise_multiplier": 1.0},
    "grid": {"noise_multiplier": 1.0, "grid": True},
    "target": TARGET,
}


def private(kind: str) -> keras.Model:
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(WIDTH, use_bias=False)])
    model.set_weights([np.zeros((3, WIDTH), "f4")])
    compiled(model, kind)
    return model


def compiled(model: keras.Model, kind: str) -> None:
    model.compile(tfdp.NoisySGD(1.0, l2_norm_clip=1.0, **KINDS[kind]), "mse")
    model.optimizer.build(model.trainable_variables)


@dataclasses.dataclass
class Trained:
    """A model, the numbers of the releases that its ledger must hold, and of those that are in its weights."""

    model: keras.Model
    known: frozenset = frozenset()
    within: frozenset = frozenset()
    took_another_run_in: bool = False


class Walk(keras.callbacks.Callback):
    """Operations in an order of chance, and what they should leave; as a callback it sees the releases."""

    def __init__(self, kind: str, seed: int, folder: pathlib.Path):
        super().__init__()
        self.kind, self.chance, self.folder = kind, random.Random(seed), folder
        self.releases: list[np.ndarray] = []
        self.files: list[tuple[str, Trained]] = []
        self.now = Trained(private(kind))
        self.all = [self.now]
        self.at, self.then = 0, None

    # Seeing releases.

    def on_train_batch_begin(self, batch, logs=None):
        self.before = self.now.model.get_weights()[0]

    def on_train_batch_end(self, batch, logs=None):
        moved = self.now.model.get_weights()[0] - self.before
        if moved.any():
            new = {len(self.releases)}
            self.releases.append(moved.ravel())
            self.now.known, self.now.within = self.now.known | new, self.now.within | new
        self.at -= 1
        if self.at == 0:
            self.then()

    # Operations.

    def fit(self, at: int = 0, then=None) -> None:
        self.at, self.then = at, then
        settings = {"batch_size": 4, "steps_per_epoch": 2, "epochs": 2, "verbose": 0, "callbacks": [self]}
        try:
            self.now.model.fit(tiny.X, np.zeros((8, WIDTH), "f4"), sample_weight=np.zeros(8), **settings)
        except KeyboardInterrupt:
            pass
        except ValueError as error:  # more steps than a target leaves
            assert "This fit plans" in str(error) or "already spent" in str(error)

    def break_off(self) -> None:
        self.fit(self.chance.choice([1, 2, 3]), self.interrupt)

    def interrupt(self) -> None:
        raise KeyboardInterrupt

    def save(self) -> None:
        how, model = self.chance.choice(["model", "weights", "checkpoint"]), self.now.model
        path = self.folder / f"{len(self.files)}"
        if how == "model":
            model.save(f"{path}.keras")
        elif how == "weights":
            model.save_weights(f"{path}.weights.h5")
        else:
            tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(path))
        self.files.append((how, dataclasses.replace(self.now, model=path)))

    def save_in_the_middle(self) -> None:
        self.fit(1, self.save)

    def load(self, kinds=("model", "weights", "checkpoint")) -> None:
        found = [file for file in self.files if file[0] in kinds]
        if not found:
            return
        how, file = self.chance.choice(found)
        now = self.now
        if how == "model":
            self.go_on_with(dataclasses.replace(file, model=keras.models.load_model(f"{file.model}.keras")))
            return
        if how == "weights":
            now.model.load_weights(f"{file.model}.weights.h5")
        else:
            tf.train.Checkpoint(model=now.model, optimizer=now.model.optimizer).read(str(file.model))
        now.took_another_run_in |= file.took_another_run_in or not file.known <= now.known
        now.known, now.within = now.known | file.known, file.within

    def load_in_the_middle(self) -> None:
        self.fit(1, lambda: self.load(("weights", "checkpoint")))

    def go_on_with(self, other: Trained) -> None:
        self.now = other
        self.all.append(other)

    def deepcopy(self) -> None:
        self.go_on_with(dataclasses.replace(self.now, model=copy.deepcopy(self.now.model)))

    def pickle(self) -> None:
        self.go_on_with(dataclasses.replace(self.now, model=pickle.loads(pickle.dumps(self.now.model))))

    def recompile(self) -> None:
        self.now.model.compile(self.now.model.optimizer, "mse")

    def compile_anew(self) -> None:
        compiled(self.now.model, self.kind)

    def another(self) -> None:
        self.go_on_with(Trained(private(self.kind)))

    def go_back(self) -> None:
        self.now = self.chance.choice(self.all)

    def backup_and_restore(self) -> None:
        """Broken off in the middle of an epoch, and gone on with in a model made anew."""
        folder = self.folder / f"backup {len(self.all)}"
        old, backup = self.now, lambda: keras.callbacks.BackupAndRestore(folder, save_freq=1)
        self.all.append(new := Trained(private(self.kind)))
        data = (tiny.X, np.zeros((8, WIDTH), "f4"))
        settings = {"batch_size": 4, "steps_per_epoch": 2, "epochs": 2, "verbose": 0, "sample_weight": np.zeros(8)}
        self.at, self.then = 3, self.interrupt
        try:
            old.model.fit(*data, **settings, callbacks=[backup(), self])
        except KeyboardInterrupt:
            self.now = new
            resumed = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: self.resumed(old, new))
            new.model.fit(*data, **settings, callbacks=[backup(), resumed, self])
        except ValueError as error:
            assert "This fit plans" in str(error) or "already spent" in str(error)

    def resumed(self, old: Trained, new: Trained) -> None:
        """At first: it knows what was in the file, all of the old one's or all but its last release."""
        if new.known:
            return
        for within in (old.within, old.within - {max(old.within)}):
            if np.allclose(self.sum_of(within), new.model.get_weights()[0].ravel(), atol=1e-3):
                new.within, new.known = within, within
                new.took_another_run_in = old.took_another_run_in

    # What holds.

    def sum_of(self, within: frozenset) -> np.ndarray:
        return sum((self.releases[number] for number in within), np.zeros(3 * WIDTH))

    def check(self) -> None:
        now, ledger = self.now, self.now.model.optimizer.ledger
        assert ledger.steps >= len(now.known)
        assert not any(isinstance(line.event, NotPrivateEvent) for line in ledger)
        np.testing.assert_allclose(now.model.get_weights()[0].ravel(), self.sum_of(now.within), atol=1e-3)
        if self.kind == "target" and not now.took_another_run_in:
            assert tfdp.accounting.epsilon(ledger, delta=TARGET["delta"]) <= TARGET["target_epsilon"] + 1e-9


ALL_OPERATIONS = (
    *("fit", "break_off", "save", "load", "go_back", "save_in_the_middle", "load_in_the_middle", "backup_and_restore"),
    *("deepcopy", "pickle", "recompile", "compile_anew", "another"),
)


@pytest.mark.parametrize(("kind", "seed"), [("noise", 1), ("noise", 2), ("grid", 2), ("target", 1), ("target", 2)])
def test_whatever_the_order_no_release_is_missing_and_none_comes_twice(kind, seed, tmp_path):
    walk = Walk(kind, seed, tmp_path)
    walk.fit()
    for _ in range(LENGTH):
        getattr(walk, walk.chance.choice(ALL_OPERATIONS))()
        walk.check()
    unit = [release / np.linalg.norm(release) for release in walk.releases]
    assert len(unit) >= 4
    assert np.abs(np.inner(unit, unit) - np.eye(len(unit))).max() < 0.4  # 7 standard deviations
