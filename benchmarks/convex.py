"""The figures of Kang et al. 2020 (both papers) in numbers: logistic regression by every convex method of tfdp.erm, side by side.

    python -m benchmarks.convex study --data-dir DIR --cases adult bank --epsilons 0.1 1 7 --json results/convex.jsonl
    python -m benchmarks.convex table --json results/convex.jsonl

Study: accuracy on test records, and the optimality gap L(w) - L* on the training records, in the mean over `--runs`. L is the same for all
methods: the mean loss plus 0.0005 ||w||^2 (summed over the fits), on features clipped to the case's norm; the gap is that of a fit with this
penalty. How methods are tuned, and what the data are: `kang_2020.py`.

Column "proven": what the statement proves of a record's membership; "features" if it is about the features alone, "none" if nothing is.
Neighbours: zero-out for objective, output and gradient; replacement for what puts noise on records.
"""

import sys

from benchmarks import kang_2020
from experiments import convex
from experiments.convex import METHODS, Case
from experiments.papers.reproduce import proven


def run(case: Case, method: str, epsilon: float, value: float, with_gap: bool) -> dict:
    found = convex.run(case, method, epsilon, value, with_gap)
    return {"proven": proven([found])} | {name: one for name, one in found.items() if name != "statement"}


def without_privacy(case: Case) -> dict:
    return {"accuracy": convex.without_privacy(case)}


def _grid(method: str) -> tuple[float, ...]:
    (grid,) = METHODS[method][1].values()
    return grid


FAMILY = kang_2020.Family({method: _grid(method) for method in METHODS}, run, without_privacy)


def main() -> int:
    return kang_2020.main(FAMILY, "benchmarks.convex", __doc__)


if __name__ == "__main__":
    sys.exit(main())
