"""What the studies of both papers of Kang et al. 2020 share: their data sets, how a method is tuned and repeated, and the tables.

`convex.py` runs logistic regression, `kang_networks.py` networks of one hidden layer.

For each method one number (a penalty, a learning rate) is the best of its grid by the accuracy on a tenth of the training records that is
held out, in the mean over `--tuning-runs`: at each epsilon, or with `--tuning-epsilons` at the nearest of those. That looks at the
records without paying for it, and the data are standardised by their own statistics: results compare methods, they are no recipe. delta is the
largest power of ten below 1 / (number of records).

`DIR/<name>.npz` holds x_train, y_train, x_test, y_test. Every finished run is a line of the JSON file; a second call goes on where
the first was stopped. Keras's graphs stay in memory: give each large data set a call of its own.
"""

import argparse
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.convex import NOT_PRIVATE, Case
from experiments.results import Results
from experiments.tables import markdown
from experiments.tasks import TASKS

EPSILONS = (0.01, 0.05, 0.1, 0.25, 1.0, 3.0, 7.0)
CASES = ("kddcup99", "adult", "bank", "breast_cancer", "creditcard", "iris")


def load(folder: str, name: str) -> Case:
    with np.load(Path(folder) / f"{name}.npz") as data:
        x, x_test = (data[part].astype(np.float64) for part in ("x_train", "x_test"))
        return Case(x, data["y_train"].astype(int), x_test, data["y_test"].astype(int), TASKS[name].feature_norm)


@dataclasses.dataclass(frozen=True)
class Family:
    """One kind of model.

    Attributes:
        grids: each method's name, and the values of the number that is tuned.
        run: (case, method, epsilon, value, with gap) -> "accuracy" in per cent, "proven", and "gap" if it is asked for.
        without_privacy: its "accuracy".
    """

    grids: dict[str, tuple[float, ...]]
    run: Callable[[Case, str, float, float, bool], dict]
    without_privacy: Callable[[Case], dict]


def study(family: Family, options: argparse.Namespace) -> None:
    results = Results(Path(options.json))
    for name in options.cases:
        case = load(options.data_dir, name)
        if (name, NOT_PRIVATE) not in results.scores:
            results.add((name, NOT_PRIVATE), family.without_privacy(case))
        for epsilon, method in itertools.product(options.epsilons, options.methods):

            def once(*setting, name=name, case=case) -> dict:
                (method, epsilon, value, _, tuning), key = setting, (name, *setting)
                if key not in results.scores:
                    one = case.held_out if tuning else case
                    results.add(key, family.run(one, method, epsilon, value, not tuning))
                return results.scores[key]

            best = tuned(family.grids[method], functools.partial(once, method), epsilon, options)
            found = [once(method, epsilon, best, i, False) for i in range(options.runs)]
            print("| " + " | ".join(row(name, epsilon, method, best, found)) + " |", flush=True)


def tuned(grid: tuple[float, ...], once: Callable[..., dict], epsilon: float, options: argparse.Namespace) -> float:
    if len(grid) == 1:
        return grid[0]
    at = min(options.tuning_epsilons or [epsilon], key=lambda one: abs(math.log(one / epsilon)))
    accuracies = {
        value: np.mean([once(at, value, i, True)["accuracy"] for i in range(options.tuning_runs)]) for value in grid
    }
    return max(accuracies, key=accuracies.get)


def row(name: str, epsilon: float, method: str, best: float, found: list[dict]) -> list[str]:
    """For watching a study: the number at the end is the one that was chosen."""
    accuracies = [one["accuracy"] for one in found]
    spread = f"{min(accuracies):.1f} to {max(accuracies):.1f}"
    return [name, f"{epsilon:g}", found[0]["proven"], method, cell(found), spread, f"{best:g}"]


def cell(found: list[dict]) -> str:
    """Mean accuracy, and mean gap in brackets."""
    accuracy, gap = (np.mean([one[what] for one in found]) for what in ("accuracy", "gap"))
    return f"{accuracy:.1f} ({gap:.2g})"


def counted_cell(found: list[dict] | None, most: int) -> str:
    if not found:
        return ""
    return cell(found) if len(found) == most else f"{cell(found)}, {len(found)} of {most} runs"


def table(family: Family, options: argparse.Namespace) -> str:
    """A table for each case: a row a method, a column an epsilon; "accuracy (gap)" of the runs with all records, and how many where
    that are fewer than elsewhere."""
    scores = Results(Path(options.json)).scores
    found: dict[tuple, list[dict]] = {}
    for setting, one in scores.items():
        if setting[1] != NOT_PRIVATE and not setting[5]:
            name, method, epsilon, *_ = setting
            found.setdefault((name, method, epsilon), []).append(one)
    most = max(map(len, found.values()), default=0)
    blocks = []
    for name in (name for name in CASES if (name, NOT_PRIVATE) in scores):
        epsilons = sorted({epsilon for one, _, epsilon in found if one == name})
        rows = [[NOT_PRIVATE, "none", f"{scores[name, NOT_PRIVATE]['accuracy']:.1f}", *[""] * (len(epsilons) - 1)]]
        for method in family.grids:
            runs = [found.get((name, method, epsilon)) for epsilon in epsilons]
            if any(runs):
                rows.append([method, proven_of(epsilons, runs), *(counted_cell(one, most) for one in runs)])
        blocks.append(f"{name}\n\n{markdown(['method', 'proven', *(f'{e:g}' for e in epsilons)], rows)}")
    return "\n\n".join(blocks)


def proven_of(epsilons: list[float], runs: list[list[dict] | None]) -> str:
    """ "as nominal", or what is proven at each nominal epsilon."""
    pairs = [(f"{epsilon:.3g}", one[0]["proven"]) for epsilon, one in zip(epsilons, runs, strict=True) if one]
    for what in ("", "features "):
        if all(proves.startswith(what) and _near(proves.removeprefix(what), nominal) for nominal, proves in pairs):
            return what + "as nominal"
    short = [proves.removeprefix("features ") for _, proves in pairs]
    if set(short) == {"none"}:
        return "none"
    about = "features " if any(proves.startswith("features") for _, proves in pairs) else ""
    return about + ", ".join(short)


def _near(one: str, nominal: str) -> bool:
    """A ledger's epsilon may be a little less than its target."""
    return one != "none" and not one.startswith("f") and 0.98 * float(nominal) <= float(one) <= float(nominal)


def main(family: Family, program: str, about: str) -> int:
    parser = argparse.ArgumentParser(program, description=about.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    options = commands.add_parser("study")
    for command in (commands.add_parser("table"), options):
        command.add_argument("--json", default=f"results/{program.rsplit('.', 1)[-1]}.jsonl")
    options.add_argument("--data-dir", required=True, help="where <name>.npz lie")
    options.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options.add_argument("--methods", nargs="+", default=list(family.grids), choices=list(family.grids))
    options.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--tuning-runs", type=int, default=3)
    options.add_argument("--tuning-epsilons", nargs="+", type=float, help="default: every epsilon")
    options = parser.parse_args()
    if options.command == "study":
        study(family, options)
    else:
        print(table(family, options))
    return 0
