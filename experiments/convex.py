"""Runs of the convex methods of `tfdp.erm`: logistic regression by every method, at one epsilon."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tasks import TASKS
from tfdp.erm import PrivateLogisticRegression
from tfdp.erm.logistic import minimised, smallest_mean_loss
from tfdp.erm.records import Ball, signs_of

PENALTY = 1e-3  # of the L that optimality gaps are of
NOT_PRIVATE = "no privacy"

METHODS: dict[str, tuple[dict, dict[str, tuple]]] = {
    "objective": ({"method": "objective"}, {"regularization": (1e-6, 1e-4, 1e-3, 1e-2)}),
    "output": ({"method": "output"}, {"regularization": (1e-3, 1e-2, 1e-1, 1.0)}),
    "bolt-on SGD": ({"method": "output", "passes": 10}, {"regularization": (1e-3, 1e-2, 1e-1, 1.0)}),
    "gradient": ({"method": "gradient", "epochs": 10, "regularization": PENALTY}, {"learning_rate": (0.5, 3.0)}),
    "DP-LSSGD": (
        {"method": "gradient", "epochs": 10, "regularization": PENALTY, "denoise": "laplacian"},
        {"learning_rate": (0.5, 3.0)},
    ),
    "input": ({"method": "input"}, {"regularization": (1e-4, 1e-2)}),
    "input, labels too": ({"method": "input", "randomized_response": None}, {"regularization": (1e-4, 1e-2)}),
    "input, as published": ({"method": "input", "as_published": True}, {"regularization": (1e-3, 1e-1)}),
    "DBDP": ({"method": "dbdp", "steps": 500, "regularization": PENALTY}, {"learning_rate": (0.01, 0.1)}),
}


@dataclasses.dataclass(frozen=True)
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
    def held_out(self) -> Case:
        """A tenth of the training records in place of the test records."""
        order = np.random.default_rng(0).permutation(len(self.y))
        test, train = order[: len(order) // 10], order[len(order) // 10 :]
        return dataclasses.replace(self, x=self.x[train], y=self.y[train], x_test=self.x[test], y_test=self.y[test])

    @functools.cached_property
    def inside(self) -> tuple[np.ndarray, np.ndarray]:
        return Ball(self.clip, 1.0).inside(self.x), signs_of(self.y, self.classes)

    @functools.cached_property
    def optimum(self) -> float:
        return smallest_mean_loss(*self.inside, PENALTY)

    def gap(self, model: PrivateLogisticRegression) -> float:
        scores, signs = model.decision_function(self.x).reshape(len(self.x), -1).T, self.inside[1]
        norms = (model.coef_**2).sum() * self.clip**2 + (model.intercept_**2).sum()
        return float(np.logaddexp(0, -signs * scores).mean(axis=1).sum() + PENALTY / 2 * norms) - self.optimum


def run(case: Case, method: str, epsilon: float, value: float, with_gap: bool) -> dict:
    """One fit: accuracy in per cent, what its statement says, and the gap of another fit, with L's own penalty."""
    fixed, ((argument, _),) = METHODS[method][0], METHODS[method][1].items()
    arguments = fixed | {argument: value}
    if fixed["method"] == "gradient":
        arguments["batch_size"] = min(256, max(1, len(case.y) // 4))
    if "randomized_response" in fixed:  # half of epsilon for the label
        arguments["randomized_response"] = len(case.classes) / (len(case.classes) + math.expm1(epsilon / 2))
    model = PrivateLogisticRegression(**arguments, epsilon=epsilon, clip_norm=case.clip, classes=case.classes)
    model.fit(case.x, case.y)
    found = {"accuracy": 100 * model.score(case.x_test, case.y_test), "statement": _stated(model.statement_)}
    if with_gap:
        if model.regularization != PENALTY:
            model.set_params(regularization=PENALTY).fit(case.x, case.y)
        found["gap"] = case.gap(model)
    return found


def without_privacy(case: Case) -> float:
    """Test accuracy of the optimum of L."""
    features, signs = case.inside
    start = np.zeros((len(signs), features.shape[1]))
    weights = minimised(features, signs, PENALTY * len(features), start, 1e-6)
    scores = Ball(case.clip, 1.0).inside(case.x_test) @ weights.T
    chosen = (scores[:, 0] > 0).astype(int) if len(weights) == 1 else scores.argmax(axis=1)
    return 100 * float((chosen == case.y_test).mean())


def _stated(statement: Any) -> dict[str, Any]:
    content = json.loads(statement.to_json())
    return {name: content[name] for name in ("epsilon", "delta", "claims")}


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
