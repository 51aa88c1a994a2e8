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
import itertools
import sys
from pathlib import Path

import numpy as np

from experiments.convex import METHODS, NOT_PRIVATE, Case, run, without_privacy
from experiments.papers.reproduce import proven
from experiments.results import Results
from experiments.tables import markdown
from experiments.tasks import TASKS

EPSILONS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 7.0)

CASES = ("kddcup99", "adult", "bank", "breast_cancer", "creditcard", "iris")


def load(folder: str, name: str) -> Case:
    with np.load(Path(folder) / f"{name}.npz") as data:
        x, x_test = (data[part].astype(np.float64) for part in ("x_train", "x_test"))
        return Case(x, data["y_train"].astype(int), x_test, data["y_test"].astype(int), TASKS[name].feature_norm)


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
                    found = run(held_out if tuning else case, method, epsilon, value, not tuning)
                    results.add(key, {"proven": proven([found])} | {n: v for n, v in found.items() if n != "statement"})
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
    cases, methods = list(CASES), [NOT_PRIVATE, *METHODS]
    rows.sort(key=lambda one: (cases.index(one[0]), float(one[1] or 0), methods.index(one[2])))
    print(markdown(COLUMNS, rows))


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.convex", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    options = commands.add_parser("study")
    for command in (commands.add_parser("table"), options):
        command.add_argument("--json", default="results/convex.jsonl")
    options.add_argument("--data-dir", required=True, help="where <name>.npz lie")
    options.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--tuning-runs", type=int, default=3)
    options = parser.parse_args()
    {"table": table, "study": study}[options.command](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
