"""Many runs, one after the other: each finished one is a line of a JSON file, and none is run twice."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from experiments.results import add_line, runs_of
from experiments.settings import RunSettings

Record = dict[str, Any]
_STATEMENT = ("epsilon", "delta", "claims", "ledger")


class Run(Protocol):
    """Something that can be run, and is known by plain data."""

    @property
    def label(self) -> str: ...

    @property
    def dataset(self) -> str:
        """The name of its records."""

    @property
    def length(self) -> float:
        """How long it takes beside the others of its campaign, about: the epochs of training, or 1."""

    def identity(self) -> dict[str, Any]: ...

    def with_seed(self, seed: int) -> Run: ...

    def on_held_out(self, seed: int) -> Run:
        """The same on a tenth of the training records that is held out, to choose among several by."""

    def quick(self, has_data: bool) -> Run:
        """A small version: of the first records of its data, or of embedded digits."""

    def execute(self, data_dir: str | os.PathLike | None, work: Path) -> Record:
        """What was found: at least `score`, `metric` and `seconds`. `work` is a folder for what an unfinished run needs."""


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A model trained from its settings."""

    settings: RunSettings

    @property
    def label(self) -> str:
        return self.settings.name.rpartition("-")[0]

    @property
    def dataset(self) -> str:
        return self.settings.dataset

    @property
    def length(self) -> float:
        return self.settings.epochs

    def identity(self) -> dict[str, Any]:
        return {"kind": "training", **self.settings.to_json()}

    def with_seed(self, seed: int) -> TrainingRun:
        return TrainingRun(self.settings.replaced(seed=seed))

    def on_held_out(self, seed: int) -> TrainingRun:
        return TrainingRun(self.settings.replaced(seed=seed, held_out=True))

    def quick(self, has_data: bool) -> TrainingRun:
        """Two epochs at most."""
        small = {
            "epochs": min(2, self.settings.epochs),
            "batch_size": min(128, self.settings.batch_size),
            "records": 1000,
        }
        if not has_data:
            small |= {"dataset": "digits", "model": "one_hidden_layer"}
        return TrainingRun(self.settings.replaced(**small))

    def execute(self, data_dir: str | os.PathLike | None, work: Path) -> Record:
        from experiments import training

        data = training.load(self.settings, data_dir)
        record = training.train(self.settings, data, work, verbose=0).record
        statement = {name: record["statement"][name] for name in _STATEMENT if name in record["statement"]}
        return {name: value for name, value in record.items() if name != "settings"} | {"statement": statement}


class Campaign:
    """Runs whose results lie in one file, `folder`/`name`.jsonl.

    To each is added `cpu_seconds`, of all cores, which a busy machine does not change (of the last try, if a run was broken off).
    """

    def __init__(self, folder: Path, name: str, data_dir: str | os.PathLike | None, say: Callable[[str], None] = print):
        self._file, self._work = folder / f"{name}.jsonl", folder / "unfinished"
        self._data_dir, self._say = data_dir, say
        self._found = {_key(line["run"]): line for line in runs_of(self._file)}

    def record(self, run: Run) -> Record | None:
        """What the file holds of it."""
        return self._found.get(_key(run.identity()))

    def run_all(self, runs: Sequence[Run]) -> list[Record]:
        """Runs what is missing, and says how it goes."""
        from tfdp.data import load

        missing = list({_key(run.identity()): run for run in runs if self.record(run) is None}.values())
        if len(missing) < len(runs):
            self._say(f"{len(runs) - len(missing)} of {len(runs)} runs are there already, in {self._file}.")
        for dataset in dict.fromkeys(run.dataset for run in missing):
            load(dataset, self._data_dir)  # one that is not here is found now, and not after the runs on another
        begun, done, whole = time.monotonic(), 0.0, sum(run.length for run in missing)
        for number, run in enumerate(missing, 1):
            record = self._run(run)
            done += run.length
            left = (time.monotonic() - begun) / done * (whole - done)
            score, proven = record["score"], record.get("statement", {}).get("epsilon")
            told = f"{record['metric']} {score:.4g}" + ("" if proven is None else f", proven epsilon {proven:.3g}")
            self._say(
                f"{number} of {len(missing)}: {run.label}: {told} ({duration(record['seconds'])}; {duration(left)} left)"
            )
        return [self.record(run) for run in runs]

    def _run(self, run: Run) -> Record:
        identity = run.identity()
        key = _key(identity)
        work = self._work / hashlib.sha256(key.encode()).hexdigest()[:12]
        begun = time.process_time()
        record = {"run": identity, **run.execute(self._data_dir, work)}
        record["cpu_seconds"] = time.process_time() - begun
        add_line(self._file, record)
        self._found[key] = record
        shutil.rmtree(work, ignore_errors=True)
        if self._work.exists() and not any(self._work.iterdir()):
            self._work.rmdir()
        return record


def duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if hours < 2 else f"{hours:.1f} h"


def _key(identity: dict[str, Any]) -> str:
    return json.dumps(identity, sort_keys=True)
