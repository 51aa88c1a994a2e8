"""The cost of private training against plain Keras, with nothing changed but the optimizer.

    python -m benchmarks.step_cost --workloads cnn@256 text@512 --memory --json results/fit.json

What is measured: the same model, loss and arrays are trained by `keras.optimizers.SGD` and `tfdp.NoisySGD` (and `Adam`
and `NoisyAdam`; clip 1, noise multiplier 1.1) through ordinary `model.fit` at the same batch size. The private side
includes all that it does in a step: drawing Poisson lots, per-example norms, clipping, noise, the ledger.

How: a first fit of each side warms up (weights, the proof of the engine, tracing). Then fits of `--epochs` epochs are
run, plain and private in turn, and a callback reads wall clock and CPU time as each epoch begins and ends. The first epoch
of every fit warms up and does not count. A step costs the time of an epoch over its steps, median over epochs and
repeats; "a fit" is what the call takes beside its epochs, which does not grow with them. `--clock` chooses which of both
times counts; the CPU time of the steps is recorded beside it.

`--jit` measures both sides compiled by XLA (`jit_compile=True`) as well, in turn with those that are not.

`--resident` times `model.train_function` alone, on one lot that lies in memory, inside a running fit: no lots are drawn
and no callbacks run. That is what peers are compared by (`benchmarks/peers`).

`--memory` runs every side in a process of its own: see `benchmarks/protocol.py`. `benchmarks/report.py` makes tables and
plots of the JSON.
"""

import argparse
import functools
import json
import sys

import keras

from benchmarks import protocol, sides, tables, workloads
from benchmarks.protocol import Entry
from benchmarks.workloads import Workload


def fit_cost(workload: Workload, optimizer: str, options: argparse.Namespace) -> list[Entry]:
    """Both sides through fit, or all four."""
    steps = options.steps or workload.steps
    records = workload.records(steps * workload.lot)
    weights, fits = {}, {}
    for side in sides.ALL_SIDES if options.jit else sides.SIDES:
        model = sides.compiled(workload, optimizer, side)
        fits[side] = functools.partial(sides.fit, model, workload, records, options.epochs)
        fits[side]()
        weights[side] = model.count_params()
    found = sides.timed_fits(fits, dict.fromkeys(fits, steps), options.repeats, options.clock)
    how = "jit" if options.jit else "fit"
    return [sides.entry(workload, optimizer, side, how, weights=weights[side], **found[side]) for side in fits]


def resident_cost(workload: Workload, optimizer: str, options: argparse.Namespace) -> list[Entry]:
    """Both sides, one lot in memory."""
    records = workload.records(sides.MEMORY_LOTS * workload.lot)
    models = {side: sides.compiled(workload, optimizer, side) for side in sides.SIDES}
    for model in models.values():
        sides.fit(model, workload, records)
    found = sides.resident_times(models, workload, options.steps, options.repeats, options.clock)
    weights = {side: model.count_params() for side, model in models.items()}
    return [sides.entry(workload, optimizer, side, "resident", weights=weights[side], **found[side]) for side in models]


def memory_of(name: str, optimizer: str, side: str) -> dict:
    workload = workloads.get(name)
    return sides.memory(sides.compiled(workload, optimizer, side), workload)


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = protocol.parser("step_cost", __doc__, repeats=5)
    parser.add_argument(
        "--workloads", nargs="+", default=list(workloads.WORKLOADS), help="kind or kind@lot; default: all"
    )
    parser.add_argument(
        "--optimizers", nargs="+", default=list(sides.OPTIMIZERS), choices=list(sides.OPTIMIZERS), help="default: both"
    )
    parser.add_argument("--epochs", type=int, default=4, help="of every fit; the first warms up (default 4)")
    parser.add_argument("--steps", type=int, help="of an epoch or run; default: enough for each workload")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--jit", action="store_true", help="measure both sides compiled by XLA as well")
    how.add_argument("--resident", action="store_true", help="time the training step alone, on a lot in memory")
    parser.add_argument("--memory", action="store_true", help="measure memory too, every side in its own process")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.epochs < 2:
        parser.error("--epochs: at least 2, because the first epoch does not count.")
    return options


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    if options.memory_of:
        print(json.dumps(memory_of(*options.memory_of)))
        return 0
    results = protocol.Results(options, sides.PACKAGES)
    for workload in map(workloads.get, options.workloads):
        for optimizer in options.optimizers:
            found = (resident_cost if options.resident else fit_cost)(workload, optimizer, options)
            for one in found if options.memory else []:
                child = ["--memory-of", workload.name, optimizer, one.method]
                one.fill(protocol.in_a_process_of_its_own("benchmarks.step_cost", *child))
            results.add(*found)
            print(tables.line(found), flush=True)
            keras.backend.clear_session()
    print(tables.every_method(results.entries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
