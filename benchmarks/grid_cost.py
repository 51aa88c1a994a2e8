"""What releases on a grid cost: a private step of `tfdp.NoisySGD` with `grid=True` against one without.

    python -m benchmarks.grid_cost --workloads mlp@256 cnn@256 --clock cpu

Fits in turn, as in `benchmarks/step_cost.py`; printed is the time of a step, median over epochs and repeats, and the median over the
repeats of the ratio of both.
"""

import argparse
import statistics

from benchmarks import protocol, sides, workloads

PLAIN_NOISE, ON_GRID = "floats", "grid"


def ratios(seconds: dict[str, list[float]]) -> list[float]:
    """Of every pair of epochs that ran one after the other."""
    return [grid / floats for floats, grid in zip(seconds[PLAIN_NOISE], seconds[ON_GRID], strict=True)]


def measured(workload: workloads.Workload, options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of the epochs of both, in turn; each fit's first epoch warms up."""
    records = workload.records(options.steps * workload.lot)
    seconds: dict[str, list[float]] = {PLAIN_NOISE: [], ON_GRID: []}
    models = {
        kind: sides.compiled(workload, "sgd", protocol.PRIVATE, grid=kind == ON_GRID) for kind in (PLAIN_NOISE, ON_GRID)
    }
    for model in models.values():
        sides.fit(model, workload, records)
    for _ in range(options.repeats):
        for kind, model in models.items():
            epochs = sides.Epochs()
            sides.fit(model, workload, records, 2, [epochs])
            seconds[kind] += epochs.seconds[options.clock][1:]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=["mlp@256", "cnn@256"])
    parser.add_argument("--steps", type=int, default=40, help="of an epoch")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--clock", choices=protocol.CLOCKS, default="cpu")
    options = parser.parse_args()
    for workload in map(workloads.get, options.workloads):
        seconds = measured(workload, options)
        step = {kind: 1e3 * statistics.median(found) / options.steps for kind, found in seconds.items()}
        found = sorted(ratios(seconds))
        print(
            f"{workload.name} ({workload.weights:,} weights): {step[PLAIN_NOISE]:.3g} ms, on a grid {step[ON_GRID]:.3g} ms, "
            f"ratio {statistics.median(found):.3f} ({found[len(found) // 4]:.3f} to {found[-1 - len(found) // 4]:.3f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
