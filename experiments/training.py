"""One run, from its settings to a trained model and what is known of it. Broken off, the same call goes on where it was."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import importlib.util
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfdp
from experiments import tasks
from experiments.methods import METHODS, ORDINARY, PRIVATE, RECORDS, optimizer_of
from experiments.scores import SCORES
from experiments.settings import RunSettings
from tfdp.callbacks.disk_room import DiskRoom
from tfdp.data.datasets import Part, TrainAndTest

LIPSCHITZ = 1.0  # of one record's loss in the weights, for the formulas of Kang et al.
_BACKUP = ("latest.weights.h5", "training_metadata.json")


@dataclasses.dataclass(frozen=True)
class Trained:
    """A finished run: `record` is all of it but the weights, as plain JSON."""

    model: keras.Model
    statement: Any
    record: dict[str, Any]


def load(settings: RunSettings, data_dir: str | os.PathLike | None) -> TrainAndTest:
    """The run's records. A data set that is nowhere is an error that says what to put where."""
    train, test = _features(settings.dataset, settings.model, data_dir)
    if settings.held_out:
        train, test = _split(train)
    if settings.records is not None:
        train = _taken(train, slice(settings.records))
    if settings.batch_size > len(train[1]):
        raise ValueError(
            f"batch_size must be at most the number of records, {len(train[1]):,}, not {settings.batch_size}."
        )
    return TrainAndTest(train, test)


@functools.lru_cache(maxsize=2)
def _features(dataset: str, network: str, data_dir: str | os.PathLike | None) -> tuple[Part, Part]:
    """A data set as a network takes it. Fixed features take minutes: the runs of a campaign share them."""
    of = tasks.NETWORKS[network].features_of
    return tuple((of(x), y) for x, y in tfdp.data.load(dataset, data_dir))


def _split(records: Part) -> tuple[Part, Part]:
    """A fixed tenth held out."""
    order = np.random.default_rng(0).permutation(len(records[1]))
    cut = len(order) // 10
    left, held_out = order[cut:], order[:cut]
    return _taken(records, left), _taken(records, held_out)


def _taken(records: Part, which: slice | np.ndarray) -> Part:
    return tuple(keras.tree.map_structure(lambda array: array[which], part) for part in records)


def compiled(settings: RunSettings, data: TrainAndTest) -> keras.Model:
    """The run's model, with weights that depend on its seed alone."""
    keras.utils.set_random_seed(settings.seed)
    model = tasks.build(settings.dataset, settings.model, data)
    model.compile(
        optimizer=optimizer_of(settings),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def check(settings: RunSettings, data: TrainAndTest) -> None:
    """Refuses what does not go together, before anything is created."""
    compiled(settings, data)
    if METHODS[settings.method].where == RECORDS:
        _perturbation(settings, len(data.train[1]))


def train(
    settings: RunSettings, data: TrainAndTest, work: Path, verbose: str | int = "auto", tensorboard: bool = False
) -> Trained:
    """Trains, or goes on with what is in `work`: there stay `history.csv` and, until they are deleted, checkpoints."""
    model = compiled(settings, data)
    callbacks = _callbacks(settings, work, tensorboard)
    work.mkdir(parents=True, exist_ok=True)
    mend(work / "unfinished")
    for name in ("history.csv", "seconds"):
        _drop_torn_line(work / name)
    (x, y), perturbation = _records(settings, data.train, work)
    with _timed(work):
        model.fit(
            x,
            y,
            batch_size=settings.batch_size,
            epochs=settings.epochs,
            validation_data=data.test,
            validation_batch_size=1024,
            callbacks=callbacks,
            verbose=verbose,
        )
    statement = tfdp.privacy_statement(model, settings.delta) if perturbation is None else perturbation.statement()
    return Trained(model, statement, _record(settings, data, model, statement, work))


def clean(work: Path) -> None:
    """Deletes what only an unfinished run needs."""
    for name in ("unfinished", "released"):
        shutil.rmtree(work / name, ignore_errors=True)
    (work / "seconds").unlink(missing_ok=True)


def history(work: Path) -> list[dict[str, float]]:
    """A row for each epoch; of one that was run twice, because the first try was broken off, the last."""
    rows = {}
    with contextlib.suppress(FileNotFoundError), (work / "history.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            rows[int(row["epoch"])] = {name: float(value) for name, value in row.items() if value not in ("", None)}
    return [rows[epoch] for epoch in sorted(rows)]


def _callbacks(settings: RunSettings, work: Path, tensorboard: bool) -> list[keras.callbacks.Callback]:
    """Epsilon comes first, so that all logs show it; the checkpoint last, so that no epoch is missing in them."""
    found: list[keras.callbacks.Callback] = []
    if METHODS[settings.method].where == PRIVATE:
        # A target of the paper's own claim: with pruning nothing is proven, and no step would fit into what is.
        claimed = settings.arguments.get("as_published") and settings.noise_multiplier is None
        if settings.epsilon is not None and not claimed:
            found.append(tfdp.callbacks.BudgetStopping(settings.epsilon, settings.delta))
        elif settings.noise_multiplier != 0:
            found.append(tfdp.callbacks.PrivacyLogger(settings.delta))
    found.append(keras.callbacks.CSVLogger(work / "history.csv", append=True))
    if tensorboard:
        found.append(keras.callbacks.TensorBoard(work / "tensorboard"))
    backup = keras.callbacks.BackupAndRestore(work / "unfinished", double_checkpoint=True, delete_checkpoint=False)
    return [*found, DiskRoom(work), backup]


def check_tensorboard() -> None:
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError("tensorboard logs need the package: pip install tensorboard.")


def mend(backup: Path) -> None:
    """A checkpoint that was being written when the process ended gives way to the one before."""
    try:
        json.loads((backup / _BACKUP[1]).read_text())
        complete = (backup / _BACKUP[0]).exists()
    except (FileNotFoundError, ValueError):
        complete = False
    if complete or not backup.exists():
        return
    if not all((backup / f"{name}.bkp").exists() for name in _BACKUP):
        shutil.rmtree(backup)
        return
    for name in _BACKUP:
        shutil.copy(backup / f"{name}.bkp", backup / name)


def _drop_torn_line(file: Path) -> None:
    """The last line, if it was being written when the process ended: the next one would go on in it."""
    whole = file.read_bytes() if file.exists() else b""
    if whole and not whole.endswith(b"\n"):
        os.truncate(file, whole.rfind(b"\n") + 1)


def _records(settings: RunSettings, records: Part, work: Path) -> tuple[Part, Any]:
    """What is trained on; noised records are drawn once for a run, broken off or not."""
    if METHODS[settings.method].where != RECORDS:
        return records, None
    x, y = records
    perturbation = _perturbation(settings, len(y))
    released = work / "released"
    if not released.exists():
        part = work / "released.part"
        shutil.rmtree(part, ignore_errors=True)
        perturbation.write(part, x, y)
        part.rename(released)
    return (np.load(released / "x.npy"), np.load(released / "y.npy")), perturbation


def _perturbation(settings: RunSettings, n: int) -> tfdp.data.InputPerturbation:
    make, epsilon, delta = tfdp.data.InputPerturbation, settings.epsilon, settings.delta
    published = METHODS[settings.method].published
    if not published:
        return make.proven(epsilon, delta, settings.clip, name=settings.dataset)
    steps = settings.epochs * -(-n // settings.batch_size)
    formula = {"pl": True} if published == "input" else {"sampling_rate": settings.batch_size / n}
    return make.as_published(epsilon, delta, steps, n, LIPSCHITZ, name=settings.dataset, **formula)


@contextlib.contextmanager
def _timed(work: Path) -> Iterator[None]:
    """Adds the seconds to those of earlier tries."""
    begun = time.monotonic()
    try:
        yield
    finally:
        with (work / "seconds").open("a") as file:
            file.write(f"{time.monotonic() - begun}\n")


def _record(
    settings: RunSettings, data: TrainAndTest, model: keras.Model, statement: Any, work: Path
) -> dict[str, Any]:
    metric = tasks.TASKS[settings.dataset].score
    found = {
        "settings": settings.to_json(),
        "metric": metric,
        "score": SCORES[metric](model, *data.test),
        "records": len(data.train[1]),
        "test_records": len(data.test[1]),
        "seconds": sum(map(float, (work / "seconds").read_text().split())),
        "history": history(work),
        "statement": json.loads(statement.to_json()),
    }
    if settings.training_loss:
        found["training_loss"] = float(
            model.evaluate(*data.train, batch_size=1024, verbose=0, return_dict=True)["loss"]
        )
    return found


def is_private(settings: RunSettings) -> bool:
    return METHODS[settings.method].where != ORDINARY and settings.noise_multiplier != 0
