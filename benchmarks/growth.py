"""How the cost of private training grows, against plain Keras: with the lot, with the length of a text, with the width.

    python -m benchmarks.growth --axes lot length width --memory --json results/growth.json --plot results/growth.png

    lot      the two-convolution network of workloads.py, lots of 32 to 8192
    length   the small transformer, texts of 32 to 1024 tokens, lots of 16
    width    two dense layers of 64 to 4096 neurons, lots of 256

What is measured: the training step on one lot in memory, with and without privacy, as in `step_cost --resident`, and
with `--memory` how far the process grows, every point in a process of its own.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks import networks, protocol, report, step_cost, workloads
from benchmarks.protocol import Entry
from benchmarks.workloads import Workload


@dataclasses.dataclass(frozen=True)
class Axis:
    """What grows, and the workload at each value."""

    label: str
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
    "lot": Axis("examples in a lot", (32, 128, 512, 2048, 8192), _lot),
    "length": Axis("tokens in a text", (32, 64, 128, 256, 512, 1024), _length),
    "width": Axis("neurons in a layer", (64, 256, 1024, 4096), _width),
}


def point(axis: str, value: int, options: argparse.Namespace) -> Iterator[Entry]:
    """Both sides at one value, plain first."""
    found = step_cost.resident_cost(AXES[axis].at(value), options.optimizer, options.steps, options.repeats)
    for one in found:
        one.workload = f"{axis} {value}"
        if options.memory:
            task = ["--memory-of", axis, str(value), options.optimizer, "plain" if one.method == "plain" else "private"]
            one = dataclasses.replace(one, **protocol.in_a_process_of_its_own("benchmarks.growth", *task))
        yield one


def table(entries: list[Entry]) -> str:
    parts = []
    for axis, values in _values(entries).items():
        lines = [f"| {AXES[axis].label} | plain, ms | private, ms | ratio | plain, MB | private, MB |"]
        lines.append("|" + " --- |" * 6)
        for value in values:
            plain, private = _sides(entries, axis, value)
            cells = [
                str(value),
                _ms(plain),
                _ms(private),
                f"{report.ratio(private, entries):.2f}",
                _mb(plain),
                _mb(private),
            ]
            lines.append("| " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _values(entries: list[Entry]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in entries:
        axis, value = one.workload.split(" ")
        if int(value) not in found.setdefault(axis, []):
            found[axis].append(int(value))
    return found


def _sides(entries: list[Entry], axis: str, value: int) -> list[Entry]:
    """Plain and private."""
    here = [one for one in entries if one.workload == f"{axis} {value}"]
    return sorted(here, key=lambda one: one.method != "plain")


def _ms(one: Entry) -> str:
    return f"{one.step_ms['median']:.3g}"


def _mb(one: Entry) -> str:
    return "" if one.memory_mb is None else f"{one.memory_mb:.0f}"


def plot(entries: list[Entry], path: Path) -> bool:
    """Time, and memory where it was measured, over each axis, both logarithmic. False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    kinds: dict[str, Callable[[Entry], Any]] = {"time of a step, ms": lambda one: one.step_ms["median"]}
    if all(one.memory_mb is not None for one in entries):
        kinds["growth of memory, MB"] = lambda one: one.memory_mb
    axes = _values(entries)
    size = (4.2 * len(axes), 3.4 * len(kinds))
    figure, panels = pyplot.subplots(len(kinds), len(axes), figsize=size, squeeze=False, layout="constrained")
    for row, (label, of) in enumerate(kinds.items()):
        for panel, (axis, values) in zip(panels[row], axes.items(), strict=True):
            both = [_sides(entries, axis, value) for value in values]
            panel.loglog(values, [of(plain) for plain, _ in both], "o-", label="plain Keras")
            panel.loglog(values, [of(private) for _, private in both], "o-", label="tfdp")
            panel.set(xlabel=AXES[axis].label, ylabel=label)
            panel.legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return True


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=list(AXES), help="default: all")
    parser.add_argument("--from", type=int, dest="least", default=0, help="leave out smaller values")
    parser.add_argument("--to", type=int, dest="most", default=10**9, help="leave out larger values")
    parser.add_argument("--optimizer", default="sgd", choices=list(step_cost.OPTIMIZERS))
    parser.add_argument("--repeats", type=int, default=5, help="runs of every side; the median counts (default 5)")
    parser.add_argument("--steps", type=int, help="steps in a run; default: as many as fill half a second")
    parser.add_argument("--memory", action="store_true", help="measure memory too, every point in its own process")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--plot", help="draw them here (needs matplotlib)")
    parser.add_argument("--write-docs", action="store_true", help="put table and plot into docs/performance.md")
    parser.add_argument("--memory-of", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    if options.memory_of:
        axis, value, optimizer, side = options.memory_of
        print(json.dumps(step_cost.memory(AXES[axis].at(int(value)), optimizer, side)))
        return 0
    where, entries = protocol.machine(*step_cost.PACKAGES), []
    for axis in options.axes:
        for value in AXES[axis].values:
            if options.least <= value <= options.most:
                found = list(point(axis, value, options))
                entries += found
                print(report.line(found), flush=True)
                keras.backend.clear_session()
                if options.json:
                    protocol.write(options.json, entries, where, repeats=options.repeats)
    print(table(entries))
    if options.plot and not plot(entries, Path(options.plot)):
        print("No plot: matplotlib is not installed.")
    if options.write_docs:
        image = report.DOCS / "performance-growth.png"
        picture = f"\n\n![Growth of the cost]({image.name})" if plot(entries, image) else ""
        report.write_section("growth", f"### How the cost grows\n\n{table(entries)}{picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
