"""How the cost of private training grows, against plain Keras: with the lot, with the length of a text, with the width.

    python -m benchmarks.growth --axes lot length width --json results/growth.json

    lot      the two-convolution network of workloads.py, lots of 32 to 8192
    length   the small transformer, texts of 32 to 1024 tokens, lots of 16
    width    two dense layers of 64 to 4096 neurons, lots of 256

What is measured: how far the process grows while it trains through `model.fit`, then the training step on one lot in
memory, as in `step_cost --resident`. Every point of either curve has a process of its own, which may take `--share` of
the free memory and `--limit` seconds; what needs more is recorded as out of reach, with the reason. The table gives the
exponents between neighbouring values, the slopes of the curves in `report`'s log-log plot: 1 is linear growth.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable

import numpy as np

from benchmarks import networks, protocol, sides, tables, workloads
from benchmarks.workloads import Workload


@dataclasses.dataclass(frozen=True)
class Axis:
    """What grows, and the workload at each value."""

    values: tuple[int, ...]
    at: Callable[[int], Workload]


def _lot(value: int) -> Workload:
    return workloads.get(f"cnn@{value}")


def _length(value: int) -> Workload:
    base = workloads.get("transformer@16")
    texts = lambda generator, rows: (10_000 ** generator.random((rows, value))).astype(np.int32)  # noqa: E731
    return dataclasses.replace(base, features=texts, build=lambda: networks.transformer(length=value))


def _width(value: int) -> Workload:
    features = lambda generator, rows: generator.random((rows, 64), dtype=np.float32)  # noqa: E731
    return Workload("wide", 256, 1, 0, features, 10, lambda: networks.wide_mlp(value))


AXES = {
    "lot": Axis((32, 128, 512, 2048, 8192), _lot),
    "length": Axis((32, 64, 128, 256, 512, 1024), _length),
    "width": Axis((64, 256, 1024, 4096), _width),
}


def point(axis: str, value: int, side: str, options: argparse.Namespace) -> dict:
    """Memory and time of one side at one value, in this process."""
    protocol.bound_memory(options.share)
    workload = AXES[axis].at(value)
    try:
        model = sides.compiled(workload, options.optimizer, side)
        grown = sides.memory(model, workload)
        found = sides.resident_times({side: model}, workload, options.steps, options.repeats, options.clock)
        return grown | found[side] | {"weights": model.count_params()}
    except Exception as error:
        return protocol.out_of_reach(error)


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = protocol.parser("growth", __doc__, repeats=5)
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=list(AXES), help="default: all")
    parser.add_argument("--from", type=int, dest="least", default=0, help="leave out smaller values")
    parser.add_argument("--to", type=int, dest="most", default=10**9, help="leave out larger values")
    parser.add_argument("--optimizer", default="sgd", choices=list(sides.OPTIMIZERS))
    parser.add_argument("--steps", type=int, help="steps in a run; default: as many as fill half a second")
    parser.add_argument("--share", type=float, default=0.8, help="of free memory for a point (default 0.8)")
    parser.add_argument(
        "--limit", type=float, default=900, help="seconds after which a point is given up (default 900)"
    )
    parser.add_argument("--point", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    given = sys.argv[1:] if given is None else given
    options = arguments(given)
    if options.point:
        axis, value, side = options.point
        print(json.dumps(point(axis, int(value), side, options)))
        return 0
    results = protocol.Results(options, sides.PACKAGES)
    for axis in options.axes:
        for value in (value for value in AXES[axis].values if options.least <= value <= options.most):
            both = []
            for side in sides.SIDES:
                one = sides.entry(AXES[axis].at(value), options.optimizer, side, "growth")
                one.workload = f"{axis} {value}"
                child = [*given, "--point", axis, str(value), side]
                one.fill(protocol.attempt("point", "benchmarks.growth", *child, limit=options.limit))
                both.append(one)
            results.add(*both)
            print(tables.line(both), flush=True)
    print(tables.growth(results.entries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
