"""The figures of Kang et al. 2020 (both papers) in numbers: logistic regression by every convex method of tfdp.erm, side by side.

    python -m benchmarks.convex study --data-dir DIR --cases adult bank --epsilons 0.1 1 7 --json results/convex.jsonl
    python -m benchmarks.convex table --json results/convex.jsonl

Study: accuracy on test records, and the optimality gap L(w) - L* on the training records, in the mean over `--runs`. L is the same for all
methods: the mean loss plus 0.0005 ||w||^2, on features clipped to the case's norm; the gap is that of a fit with this penalty. For the
accuracy each method's own penalty or learning rate is the best of its grid at each epsilon, by the accuracy on a tenth of the training records that is held out, in the mean over
`--tuning-runs`. That looks at the records without paying for it, and the data are standardised by their own statistics: results compare
methods, they are no recipe. delta is the largest power of ten below 1 / (number of records).

Column "proven": what the statement proves of a record's membership; "features" if it is about the features alone, "none" if nothing is.
Neighbours: zero-out for objective, output and gradient; replacement for what puts noise on records.

`DIR/<name>.npz` holds x_train, y_train, x_test, y_test. Every finished run is a line of the JSON file; a second call goes on where
the first was stopped.
"""

import argparse
import dataclasses
import functools
import itertools
import math
import sys
from pathlib import Path

import numpy as np

from benchmarks import tables
from benchmarks.directional import Results
from tfdp.accounting import Status
from tfdp.accounting.claims import FEATURES
from tfdp.erm import PrivateLogisticRegression
from tfdp.erm.logistic import minimised, smallest_mean_loss
from tfdp.erm.records import Ball, signs_of

PENALTY = 1e-3  # of the L that optimality gaps are of
NOT_PRIVATE = "no privacy"
EPSILONS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 7.0)

CLIPS = {"kddcup99": 5.0, "adult": 4.0, "bank": 5.0, "breast_cancer": 3.0, "creditcard": 5.0, "iris": 2.0}

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
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    clip: float

    @property
    def classes(self) -> np.ndarray:
        return np.arange(self.y.max() + 1)

    @property
    def held_out(self) -> "Case":
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


def load(folder: str, name: str) -> Case:
    with np.load(Path(folder) / f"{name}.npz") as data:
        x, x_test = (data[part].astype(np.float64) for part in ("x_train", "x_test"))
        return Case(x, data["y_train"].astype(int), x_test, data["y_test"].astype(int), CLIPS[name])


def run(case: Case, method: str, epsilon: float, value: float, with_gap: bool) -> dict:
    """One fit: accuracy in per cent, what is proven, and the gap of a fit with L's own penalty."""
    fixed, ((argument, _),) = METHODS[method][0], METHODS[method][1].items()
    arguments = fixed | {argument: value}
    if fixed["method"] == "gradient":
        arguments["batch_size"] = min(256, max(1, len(case.y) // 4))
    if "randomized_response" in fixed:  # half of epsilon for the label
        arguments["randomized_response"] = len(case.classes) / (len(case.classes) + math.expm1(epsilon / 2))
    model = PrivateLogisticRegression(**arguments, epsilon=epsilon, clip_norm=case.clip, classes=case.classes)
    model.fit(case.x, case.y)
    found = {"accuracy": 100 * model.score(case.x_test, case.y_test), "proven": proven(model.statement_)}
    if with_gap:
        if model.regularization != PENALTY:
            model.set_params(regularization=PENALTY).fit(case.x, case.y)
        found["gap"] = case.gap(model)
    return found


def proven(statement) -> str:
    if statement.epsilon is not None:
        return f"{statement.epsilon:.3g}"
    features = [c for c in statement.claims if c.protects == FEATURES and c.status is Status.PROVEN]
    return f"features {features[0].epsilon:.3g}" if features else "none"


def without_privacy(case: Case) -> float:
    """Test accuracy of the optimum of L."""
    features, signs = case.inside
    start = np.zeros((len(signs), features.shape[1]))
    weights = minimised(features, signs, PENALTY * len(features), start, 1e-6)
    scores = Ball(case.clip, 1.0).inside(case.x_test) @ weights.T
    chosen = (scores[:, 0] > 0).astype(int) if len(weights) == 1 else scores.argmax(axis=1)
    return 100 * float((chosen == case.y_test).mean())


def study(options: argparse.Namespace) -> None:
    results = Results(Path(options.json))
    for name in options.cases:
        case = load(options.data_dir, name)
        held_out = case.held_out
        if (name, NOT_PRIVATE) not in results.scores:
            results.add((name, NOT_PRIVATE), {"accuracy": without_privacy(case)})
        for epsilon, method in itertools.product(options.epsilons, options.methods):

            def once(*setting, name=name, case=case, held_out=held_out) -> dict:
                (method, epsilon, value, _, tuning), key = setting, (name, *setting)
                if key not in results.scores:
                    results.add(key, run(held_out if tuning else case, method, epsilon, value, not tuning))
                return results.scores[key]

            (grid,) = METHODS[method][1].values()
            tuned = {
                value: np.mean([once(method, epsilon, value, i, True)["accuracy"] for i in range(options.tuning_runs)])
                for value in grid
            }
            best = max(tuned, key=tuned.get)
            found = [once(method, epsilon, best, i, False) for i in range(options.runs)]
            print("| " + " | ".join(row(name, epsilon, method, best, found)) + " |", flush=True)


COLUMNS = ["case", "epsilon", "method", "proven", "accuracy", "lowest to highest", "optimality gap", "chosen"]


def row(name: str, epsilon: float, method: str, best: float, found: list[dict]) -> list[str]:
    accuracies = [one["accuracy"] for one in found]
    spread = f"{min(accuracies):.1f} to {max(accuracies):.1f}"
    gap = f"{np.mean([one['gap'] for one in found]):.3g}"
    return [name, f"{epsilon:g}", method, found[0]["proven"], f"{np.mean(accuracies):.1f}", spread, gap, f"{best:g}"]


def table(options: argparse.Namespace) -> None:
    """A row for each case, epsilon and method of which runs with all records are there."""
    results = Results(Path(options.json)).scores
    found: dict[tuple, list[dict]] = {}
    rows = []
    for setting, one in results.items():
        if setting[1] == NOT_PRIVATE:
            rows.append([setting[0], "", NOT_PRIVATE, "none", f"{one['accuracy']:.1f}", "", "", ""])
        elif not setting[5]:
            name, method, epsilon, value, *_ = setting
            found.setdefault((name, epsilon, method, value), []).append(one)
    rows += [row(*key, ones) for key, ones in found.items()]
    cases, methods = list(CLIPS), [NOT_PRIVATE, *METHODS]
    rows.sort(key=lambda one: (cases.index(one[0]), float(one[1] or 0), methods.index(one[2])))
    print(tables.markdown(COLUMNS, rows))


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.convex", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    options = commands.add_parser("study")
    for command in (commands.add_parser("table"), options):
        command.add_argument("--json", default="results/convex.jsonl")
    options.add_argument("--data-dir", required=True, help="where <name>.npz lie")
    options.add_argument("--cases", nargs="+", default=list(CLIPS), choices=list(CLIPS))
    options.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--tuning-runs", type=int, default=3)
    options = parser.parse_args()
    {"table": table, "study": study}[options.command](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
