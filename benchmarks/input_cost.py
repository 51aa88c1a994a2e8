"""What the input costs: drawing and padding Poisson lots, and reading records from a memory map.

    python -m benchmarks.input_cost --gigabytes 2 --json results/input.json

Drawing: lots are drawn from `--records` records in memory, by the input pipeline alone, as `fit` draws them; and padded to
a few sizes, as it does for XLA. Both, and the private training step on a lot in memory, in turn; the medians of the
repeats are compared. Lots come in blocks, of which the last are drawn and not used, so a run is of many lots. In a fit the
pipeline runs beside the steps: its share of the step is the most it can cost.
Padding is the share of rows that are not records among all.

Epoch: a memory map of `--gigabytes` of random float32, made in a temporary directory (`--folder`) and deleted at the end,
and the same records in memory, train the same network (two dense layers of `--width` on 784 features, lots of 256) through
private `model.fit`. Each fit has a process of its own, in turn; its first epoch does not count. The file's pages may stay
in the system's cache from epoch to epoch, as those of any file that is smaller than free memory.
"""

import argparse
import functools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks import networks, protocol, sides, tables, workloads
from benchmarks.protocol import PRIVATE, Entry
from benchmarks.workloads import Workload
from tfdp.data import PoissonBatches

FEATURES, LOT = 784, 256
BLOCK = 2**16  # rows that are written at once
IN_MEMORY, MAPPED = "in memory", "memory map"


class Lots:
    """The input pipeline of a fit, alone."""

    def __init__(self, lots: tf.data.Dataset):
        self.rows = self.present = 0
        self._lots = lots

    def run(self, steps: int) -> None:
        """Draws so many lots, without leaving tf.data."""

        def counted(state, lot):
            _, present = lot
            return state[0] + tf.size(present), state[1] + tf.math.count_nonzero(present, dtype=tf.int32)

        rows, present = self._lots.take(steps).reduce((0, 0), counted)
        self.rows, self.present = self.rows + int(rows), self.present + int(present)

    @property
    def padding(self) -> float:
        return 1 - self.present / self.rows


def drawing(options: argparse.Namespace) -> list[Entry]:
    """The training step, lots, and padded lots."""
    workload = workloads.get(options.workload)
    x, y = workload.records(options.records)
    batches = PoissonBatches(x, y, batch_size=workload.lot)
    lots = {"lots": Lots(batches.dataset()), "padded lots": Lots(batches.dataset(bucketed=True))}
    model = sides.compiled(workload, options.optimizer, PRIVATE)
    entries = []

    def measure() -> None:
        step = sides.resident(model, sides.lot_in_memory(workload, PRIVATE))
        step(2)
        runs = {"training step": functools.partial(step, options.steps)}
        runs |= {name: functools.partial(one.run, options.lots) for name, one in lots.items()}
        for name, seconds in protocol.interleaved(runs, options.repeats).items():
            times = protocol.steps_taken(seconds, options.lots if name in lots else options.steps, options.clock)
            padding = lots[name].padding if name in lots else None
            entries.append(sides.entry(workload, options.optimizer, name, "drawing", padding=padding, **times))

    sides.inside_a_fit(model, workload, measure)
    return entries


def write_rows(file: Path, gigabytes: float) -> int:
    """Makes the file, a block at a time; returns its number of rows."""
    rows = max(2 * LOT, int(gigabytes * 2**30 / 4 / FEATURES))
    free = shutil.disk_usage(file.parent).free
    if free < 1.1 * 4 * FEATURES * rows:
        raise SystemExit(f"{file.parent} has {free / 2**30:.1f} GB free; give another --folder, or fewer --gigabytes.")
    generator = np.random.default_rng(0)
    with file.open("wb") as out:
        for start in range(0, rows, BLOCK):
            generator.random((min(BLOCK, rows - start), FEATURES), dtype=np.float32).tofile(out)
    return rows


def epoch_of(file: str, records: str, options: argparse.Namespace) -> dict:
    """One fit, in this process."""
    kind = Workload(
        "wide", LOT, 1, 0, lambda generator, rows: None, 10, lambda: networks.wide_mlp(options.width, FEATURES)
    )
    x = np.memmap(file, np.float32, "r").reshape(-1, FEATURES)
    labels = np.random.default_rng(1).integers(0, kind.classes, len(x), dtype=np.int32)
    if records == IN_MEMORY:
        x = np.array(x)
    model = sides.compiled(kind, options.optimizer, PRIVATE)
    fits = {records: lambda callbacks: sides.fit(model, kind, (x, labels), options.epochs, callbacks)}
    steps = {records: -(-len(x) // LOT)}
    return sides.timed_fits(fits, steps, 1, options.clock)[records]


def epochs(options: argparse.Namespace) -> list[Entry]:
    """The same records from memory and from a memory map, each fit in a process of its own."""
    found: dict[str, list[dict]] = {IN_MEMORY: [], MAPPED: []}
    needed = 2 * 1024 * options.gigabytes
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder) / "records.float32"
        write_rows(file, options.gigabytes)
        for _ in range(options.repeats):
            for records, so_far in found.items():
                if records == IN_MEMORY and protocol.available_mb() < needed:
                    so_far.append({"out_of_reach": f"less than {needed:.0f} MB of memory are free"})
                    continue
                child = [*options.given, "--epoch-of", str(file), records]
                so_far.append(protocol.attempt("epoch", "benchmarks.input_cost", *child))
    entries = []
    for records, parts in found.items():
        one = Entry(f"mlp of {options.gigabytes:g} GB", "tfdp", records, options.optimizer, "epoch", lot=LOT)
        one.fill(protocol.together(parts))
        entries.append(one)
    return entries


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = protocol.parser("input_cost", __doc__, repeats=3)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS), help="default: both")
    parser.add_argument("--optimizer", default="sgd", choices=list(sides.OPTIMIZERS))
    parser.add_argument("--workload", default="cnn@256", help="whose lots are drawn (default cnn@256)")
    parser.add_argument("--records", type=int, default=60_000, help="that lots are drawn from (default 60,000)")
    parser.add_argument("--lots", type=int, default=400, help="drawn in a run (default 400)")
    parser.add_argument("--steps", type=int, default=20, help="training steps in a run (default 20)")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of the memory map (default 2)")
    parser.add_argument("--folder", help="where its temporary directory is made")
    parser.add_argument("--width", type=int, default=128, help="of the network that reads it (default 128)")
    parser.add_argument("--epochs", type=int, default=3, help="of every fit; the first warms up (default 3)")
    parser.add_argument("--epoch-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    options.given = sys.argv[1:] if given is None else given
    return options


PARTS: dict[str, tuple[Callable, Callable]] = {"drawing": (drawing, tables.drawing), "epoch": (epochs, tables.epoch)}


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    if options.epoch_of:
        print(json.dumps(epoch_of(*options.epoch_of, options)))
        return 0
    results = protocol.Results(options, sides.PACKAGES)
    for part in options.parts:
        measure, table = PARTS[part]
        found = measure(options)
        results.add(*found)
        print(table(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
