"""Does `max_physical_batch` bound memory, and what does it cost? Large lots run in parts, against small lots.

    python -m benchmarks.physical_batches --workloads cnn --json results/physical.json

What is measured: private training of the workload with lots of `--physical` examples (256), and with lots of `--lot`
(8192) and `max_physical_batch` of 256, on the same records.

Time: as in `step_cost`, through `model.fit`: medians over epochs of fits that are run in turn, given for an example.
The epoch is as many records for both.

Memory, each in a process of its own: growth of the process, from before the model is first trained, to the highest
while it takes training steps on one lot. That lot, and the arrays, lie in memory before, because 8192 records are
themselves memory, whatever bounds the step; their size stands beside. Growth through the whole of `fit`, whose input
pipeline holds some lots at a time, is measured as well.
"""

import argparse
import dataclasses
import functools
import json
import sys

import keras
import numpy as np

from benchmarks import protocol, sides, tables, workloads
from benchmarks.protocol import PRIVATE, Entry
from benchmarks.workloads import Records, Workload

EPOCH_LOTS = 4  # of the large lot


def lots_of(kind: str, options: argparse.Namespace) -> list[tuple[Workload, int | None]]:
    """The workload at small lots; and at large ones, with the most examples to run at once."""
    return [
        (workloads.get(f"{kind}@{options.physical}"), None),
        (workloads.get(f"{kind}@{options.lot}"), options.physical),
    ]


def times(kind: str, options: argparse.Namespace) -> list[Entry]:
    """Both through fit."""
    rows = EPOCH_LOTS * options.lot
    entries, fits, steps = {}, {}, {}
    for workload, limit in lots_of(kind, options):
        model = sides.compiled(workload, options.optimizer, PRIVATE, max_physical_batch=limit)
        name = PRIVATE if limit is None else f"{PRIVATE}, max_physical_batch={limit}"
        entries[name] = sides.entry(workload, options.optimizer, name, "physical", lot=workload.lot)
        fits[name] = functools.partial(sides.fit, model, workload, workload.records(rows), options.epochs)
        steps[name] = rows // workload.lot
        fits[name]()
    for name, found in sides.timed_fits(fits, steps, options.repeats, options.clock).items():
        entries[name].fill(found)
    return list(entries.values())


def memory_of_step(workload: Workload, model: keras.Model, rows: int) -> dict:
    """Growth of this process, beside the records, by the steps that train on so many rows.

    They run inside a fit of few records, whose own lots take little: the step takes a lot of any size.
    """
    run_on = sides.lot_in_memory(workload, PRIVATE)
    host = dataclasses.replace(workload, lot=8)
    before = protocol.resident_mb()
    with protocol.memory_growth(before) as grown:
        sides.inside_a_fit(model, host, lambda: sides.resident(model, run_on)(rows // workload.lot))
    return {"memory_mb": grown.megabytes, "records_mb": size_mb(workload.records(workload.lot))}


def memory_of_fit(workload: Workload, model: keras.Model, rows: int) -> dict:
    records = workload.records(rows)
    before = protocol.resident_mb()
    with protocol.memory_growth(before) as grown:
        sides.fit(model, workload, records, 2)
    return {"fit_memory_mb": grown.megabytes}


def size_mb(records: Records) -> float:
    return sum(np.asarray(part).nbytes for part in keras.tree.flatten(records)) / 2**20


MEMORY = {"step": memory_of_step, "fit": memory_of_fit}


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = protocol.parser("physical_batches", __doc__, repeats=5)
    parser.add_argument("--workloads", nargs="+", default=["cnn"], help="kinds; default: cnn")
    parser.add_argument("--optimizer", default="sgd", choices=list(sides.OPTIMIZERS))
    parser.add_argument("--lot", type=int, default=8192, help="the large lot (default 8192)")
    parser.add_argument("--physical", type=int, default=256, help="the small lot, and the part's size (default 256)")
    parser.add_argument("--epochs", type=int, default=3, help="of every fit; the first warms up (default 3)")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    given = sys.argv[1:] if given is None else given
    options = arguments(given)
    if options.memory_of:
        what, kind, which = options.memory_of
        workload, limit = lots_of(kind, options)[int(which)]
        model = sides.compiled(workload, options.optimizer, PRIVATE, max_physical_batch=limit)
        print(json.dumps(MEMORY[what](workload, model, EPOCH_LOTS * options.lot)))
        return 0
    results = protocol.Results(options, sides.PACKAGES)
    for kind in options.workloads:
        found = times(kind, options)
        for which, one in enumerate(found):
            for what in MEMORY:
                child = [*given, "--memory-of", what, kind, str(which)]
                one.fill(protocol.in_a_process_of_its_own("benchmarks.physical_batches", *child))
        results.add(*found)
        print(tables.physical(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
