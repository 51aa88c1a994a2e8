"""How long a training step takes, as a run of a campaign."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.settings import RunSettings


@dataclasses.dataclass(frozen=True)
class TimingRun:
    """`fit` on so many lots, about an epoch of MNIST, after one fit that traces and proves the step. Seeds are repeats."""

    settings: RunSettings
    lots: int = 100

    @property
    def label(self) -> str:
        return f"steps of {self.settings.name.rpartition('-')[0]}"

    @property
    def dataset(self) -> str:
        return self.settings.dataset

    length = 1.0

    def identity(self) -> dict[str, Any]:
        return {"kind": "timing", "lots": self.lots, **self.settings.to_json()}

    def with_seed(self, seed: int) -> TimingRun:
        return dataclasses.replace(self, settings=self.settings.replaced(seed=seed))

    def on_held_out(self, seed: int) -> TimingRun:
        raise ValueError("Nothing is chosen by the time that a step takes: give its row no grid.")

    def quick(self, has_data: bool) -> TimingRun:
        from experiments.campaign import TrainingRun

        return TimingRun(TrainingRun(self.settings).quick(has_data).settings, lots=5)

    def execute(self, data_dir: str | os.PathLike | None, work: Path) -> dict[str, Any]:
        from experiments import training

        (x, y), _ = data = training.load(self.settings, data_dir)
        size = self.settings.batch_size
        model, rows = training.compiled(self.settings, data), np.arange(self.lots * size) % len(y)
        x, y = x[rows], y[rows]  # a fit has so many lots
        model.fit(x, y, batch_size=size, epochs=1, verbose=0)
        begun = time.perf_counter()
        model.fit(x, y, batch_size=size, epochs=1, verbose=0)
        seconds = time.perf_counter() - begun
        step = 1000 * seconds / self.lots
        return {"score": step, "step_ms": step, "metric": "milliseconds a step", "seconds": seconds}
