"""The figures of Kang et al. 2020 (both papers) in numbers: logistic regression by every convex method of tfdp.erm, side by side.

    python -m benchmarks.convex study --data-dir DIR --cases adult bank --epsilons 0.1 1 7 --json results/convex.jsonl
    python -m benchmarks.convex table --json results/convex.jsonl

Study: accuracy on test records, and the optimality gap L(w) - L* on the training records, in the mean over `--runs`. L is the same for all
methods: the mean loss plus 0.0005 ||w||^2 (summed over the fits), on features clipped to the case's norm; the gap is that of a fit with this
penalty. How methods are tuned, and what the data are: `kang_2020.py`.

Column "proven": what the statement proves of a record's membership; "features" if it is about the features alone, "none" if nothing is.
Neighbours: zero-out for objective, output and gradient; replacement for what puts noise on records.
"""

import functools
import sys

import numpy as np

from benchmarks import kang_2020
from benchmarks.kang_2020 import Case, proven
from tfdp.erm import PrivateLogisticRegression
from tfdp.erm.logistic import mean_loss, minimised, smallest_mean_loss
from tfdp.erm.records import Ball, signs_of

PENALTY = 1e-3  # of the L that optimality gaps are of
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
    """One fit: accuracy in per cent, what is proven, and the gap of a fit with L's own penalty."""
    fixed, ((argument, _),) = METHODS[method][0], METHODS[method][1].items()
    arguments = fixed | {argument: value}
    if fixed["method"] == "gradient":
        arguments.setdefault("batch_size", case.lot)
    if "randomized_response" in fixed:
        arguments["randomized_response"] = case.label_noise(epsilon)
    model = PrivateLogisticRegression(**arguments, epsilon=epsilon, clip_norm=case.clip, classes=case.classes)
    model.fit(case.x, case.y)
    found = {"accuracy": 100 * model.score(case.x_test, case.y_test), "proven": proven(model.statement_)}
    if with_gap:
        if model.regularization != PENALTY:
            model.set_params(regularization=PENALTY).fit(case.x, case.y)
        found["gap"] = gap(case, model)
    return found


def without_privacy(case: Case) -> dict:
    """Of the optimum of L."""
    features, signs = inside(case)
    start = np.zeros((len(signs), features.shape[1]))
    weights = minimised(features, signs, PENALTY * len(features), start, 1e-6)
    scores = Ball(case.clip, 1.0).inside(case.x_test) @ weights.T
    chosen = (scores[:, 0] > 0).astype(int) if len(weights) == 1 else scores.argmax(axis=1)
    return {"accuracy": 100 * float((chosen == case.y_test).mean())}


def _grid(method: str) -> tuple[float, ...]:
    (grid,) = METHODS[method][1].values()
    return grid


FAMILY = kang_2020.Family({method: _grid(method) for method in METHODS}, run, without_privacy)


def main() -> int:
    return kang_2020.main(FAMILY, "benchmarks.convex", __doc__)


if __name__ == "__main__":
    sys.exit(main())
