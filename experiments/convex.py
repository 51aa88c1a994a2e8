"""Runs of the convex methods of `tfdp.erm`: logistic regression by every method, at one epsilon."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.statements import stated
from experiments.tasks import TASKS
from tfdp.erm import PrivateLogisticRegression
from tfdp.erm.logistic import mean_loss, minimised, smallest_mean_loss
from tfdp.erm.records import Ball, signs_of

PENALTY = 1e-3  # of the L that optimality gaps are of
NOT_PRIVATE = "no privacy"

ALL = 10**9  # records in a lot: more than any set has

_PENALTIES = {"regularization": (1e-3, 1e-2, 1e-1, 1.0)}
_NOISY_SGD = {"method": "gradient", "epochs": 10, "regularization": PENALTY}
METHODS: dict[str, tuple[dict, dict[str, tuple]]] = {
    "objective": ({"method": "objective"}, {"regularization": (1e-6, 1e-4, 1e-3, 1e-2)}),
    "output": ({"method": "output"}, _PENALTIES),
    "gradient descent": ({"method": "output", "gradient_steps": 50}, _PENALTIES),
    "bolt-on SGD": ({"method": "output", "passes": 10}, _PENALTIES),
    "gradient": (_NOISY_SGD, {"learning_rate": (0.5, 3.0)}),
    "gradient, all records": (_NOISY_SGD | {"epochs": 50, "batch_size": ALL}, {"learning_rate": (0.5, 3.0)}),
    "DP-LSSGD": (_NOISY_SGD | {"denoise": "laplacian"}, {"learning_rate": (0.5, 3.0)}),
    "input": ({"method": "input"}, {"regularization": (PENALTY,)}),
    "input, labels too": ({"method": "input", "randomized_response": None}, {"regularization": (PENALTY,)}),
    "input, as published": ({"method": "input", "as_published": True, "steps": 50}, {"regularization": (PENALTY,)}),
    "DBDP": ({"method": "dbdp", "steps": 500, "regularization": PENALTY}, {"learning_rate": (0.1,)}),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """Records for training and for tests, and the norm that features are clipped to."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    clip: float

    @property
    def classes(self) -> np.ndarray:
        return np.arange(self.y.max() + 1)

    @property
    def delta(self) -> float:
        return float(f"1e-{len(str(len(self.y)))}")

    @property
    def lot(self) -> int:
        """Expected records of a lot of gradient perturbation: few large ones, for the study's time."""
        return max(1, min(2048, len(self.y) // 8))

    @functools.cached_property
    def held_out(self) -> Case:
        """A tenth of the training records in place of the test records."""
        order = np.random.default_rng(0).permutation(len(self.y))
        test, train = order[: len(order) // 10], order[len(order) // 10 :]
        return dataclasses.replace(self, x=self.x[train], y=self.y[train], x_test=self.x[test], y_test=self.y[test])

    def label_noise(self, epsilon: float) -> float:
        """The share of labels drawn anew with which a label takes half of epsilon."""
        return len(self.classes) / (len(self.classes) + math.expm1(epsilon / 2))


@functools.cache
def inside(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Training features in the ball, and signs."""
    return Ball(case.clip, 1.0).inside(case.x), signs_of(case.y, case.classes)


@functools.cache
def optimum(case: Case) -> float:
    """L*"""
    return smallest_mean_loss(*inside(case), PENALTY)


def gap(case: Case, model: PrivateLogisticRegression) -> float:
    weights = np.hstack([model.coef_ * case.clip, model.intercept_[:, None]])
    return mean_loss(weights, *inside(case), PENALTY) - optimum(case)


def run(case: Case, method: str, epsilon: float, value: float, with_gap: bool) -> dict:
    """One fit: accuracy in per cent, what its statement says, and the gap of another fit, with L's own penalty."""
    fixed, ((argument, _),) = METHODS[method][0], METHODS[method][1].items()
    arguments = fixed | {argument: value}
    if fixed["method"] == "gradient":
        arguments.setdefault("batch_size", case.lot)
    if "randomized_response" in fixed:
        arguments["randomized_response"] = case.label_noise(epsilon)
    model = PrivateLogisticRegression(**arguments, epsilon=epsilon, clip_norm=case.clip, classes=case.classes)
    model.fit(case.x, case.y)
    found = {"accuracy": 100 * model.score(case.x_test, case.y_test), "statement": stated(model.statement_)}
    if with_gap:
        if model.regularization != PENALTY:
            model.set_params(regularization=PENALTY).fit(case.x, case.y)
        found["gap"] = gap(case, model)
    return found


def without_privacy(case: Case) -> float:
    """Test accuracy of the optimum of L."""
    features, signs = inside(case)
    start = np.zeros((len(signs), features.shape[1]))
    weights = minimised(features, signs, PENALTY * len(features), start, 1e-6)
    scores = Ball(case.clip, 1.0).inside(case.x_test) @ weights.T
    chosen = (scores[:, 0] > 0).astype(int) if len(weights) == 1 else scores.argmax(axis=1)
    return 100 * float((chosen == case.y_test).mean())


@dataclasses.dataclass(frozen=True)
class ConvexRun:
    """One logistic regression, as a run of a campaign.

    Attributes:
        method: one of `METHODS`, or `NOT_PRIVATE`.
        value: of the method's own penalty or learning rate.
        records: the first so many only.
    """

    dataset: str
    method: str
    epsilon: float
    value: float
    seed: int = 0
    held_out: bool = False
    records: int | None = None

    @property
    def label(self) -> str:
        return f"{self.dataset}-{self.method}-eps{self.epsilon:g}-seed{self.seed}"

    length = 1.0

    def identity(self) -> dict[str, Any]:
        return {"kind": "convex", **dataclasses.asdict(self)}

    def with_seed(self, seed: int) -> ConvexRun:
        return dataclasses.replace(self, seed=seed)

    def on_held_out(self, seed: int) -> ConvexRun:
        return dataclasses.replace(self, seed=seed, held_out=True)

    def quick(self, has_data: bool) -> ConvexRun:
        return dataclasses.replace(self, records=500, dataset=self.dataset if has_data else "digits")

    def execute(self, data_dir: str | os.PathLike | None, work: Path) -> dict[str, Any]:
        case = _loaded(self.dataset, data_dir, self.records)
        begun = time.monotonic()
        if self.method == NOT_PRIVATE:
            found = {"accuracy": without_privacy(case), "gap": 0.0}
        else:
            found = run(
                case.held_out if self.held_out else case, self.method, self.epsilon, self.value, not self.held_out
            )
        seconds = time.monotonic() - begun
        return {
            "score": found.pop("accuracy"),
            "metric": "accuracy",
            "seconds": seconds,
            "records": len(case.y),
            **found,
        }


def grid(dataset: str, method: str, epsilon: float) -> tuple[ConvexRun, ...]:
    """A run for each value that its method's penalty or learning rate may have."""
    ((_, values),) = METHODS[method][1].items()
    return tuple(ConvexRun(dataset, method, epsilon, value) for value in values)


@functools.lru_cache(maxsize=1)
def _loaded(dataset: str, data_dir: str | os.PathLike | None, records: int | None) -> Case:
    from tfdp.data import load

    (x, y), (x_test, y_test) = load(dataset, data_dir)
    x, x_test = (part.reshape(len(part), -1).astype(np.float64) for part in (x, x_test))
    return Case(x[:records], y[:records], x_test, y_test, TASKS[dataset].feature_norm)
