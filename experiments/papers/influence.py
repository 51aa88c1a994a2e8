"""Noise on records of large influence, for any network: Kang et al. 2020 (data perturbation), algorithm 2, as a run of a campaign."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from experiments.scores import accuracy
from experiments.settings import RunSettings
from experiments.statements import claimed

LIPSCHITZ, DAMPING = 1.0, 0.01


@dataclasses.dataclass(frozen=True)
class InfluenceRun:
    """Ordinary training by `pretraining`, then `steps` steps of the algorithm at its learning rate. Nothing is proven of it."""

    pretraining: RunSettings
    epsilon: float
    steps: int = 500
    learning_rate: float = 0.01

    @property
    def label(self) -> str:
        return f"{self.pretraining.dataset}-{self.pretraining.model}-influence-eps{self.epsilon:g}-seed{self.pretraining.seed}"

    @property
    def dataset(self) -> str:
        return self.pretraining.dataset

    length = 1.0

    def identity(self) -> dict[str, Any]:
        return {"kind": "influence", **dataclasses.asdict(self)}

    def with_seed(self, seed: int) -> InfluenceRun:
        return dataclasses.replace(self, pretraining=self.pretraining.replaced(seed=seed))

    def on_held_out(self, seed: int) -> InfluenceRun:
        return dataclasses.replace(self, pretraining=self.pretraining.replaced(seed=seed, held_out=True))

    def quick(self, has_data: bool) -> InfluenceRun:
        from experiments.campaign import TrainingRun

        return dataclasses.replace(self, pretraining=TrainingRun(self.pretraining).quick(has_data).settings, steps=10)

    def execute(self, data_dir: str | os.PathLike | None, work: Path) -> dict[str, Any]:
        import tfdp
        from experiments import training

        settings = self.pretraining
        data, begun = training.load(settings, data_dir), time.monotonic()
        model, (x, y) = training.compiled(settings, data), data.train
        model.fit(x, y, batch_size=settings.batch_size, epochs=settings.epochs, verbose=0)
        perturbation = tfdp.data.InfluencePerturbation(
            model, self.epsilon, settings.delta, lipschitz=LIPSCHITZ, damping=DAMPING
        )
        result = perturbation.train(x, y, self.steps, self.learning_rate)
        return {
            "score": accuracy(model, *data.test),
            "metric": "accuracy",
            "seconds": time.monotonic() - begun,
            "records": len(y),
            "training_loss": float(model.evaluate(x, y, batch_size=1024, verbose=0, return_dict=True)["loss"]),
            "statement": claimed(result.claims, settings.delta),
        }
