"""What was measured, as pictures beside docs/performance.md and docs/encoding.md. Each gives False, and no picture, without matplotlib."""

from collections.abc import Callable
from pathlib import Path

from benchmarks import tables
from benchmarks.protocol import PLAIN, PRIVATE, Entry

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
except ImportError:
    pyplot = None

AXES = {"lot": "examples in a lot", "length": "tokens in a text", "width": "neurons in a layer"}


def ratios(entries: list[Entry], path: Path) -> bool:
    """A bar for each workload and way of training it: its time over plain Keras's."""
    found = {(one.workload, f"{one.method}, {one.optimizer}"): tables.ratio(one, entries) for one in entries}
    return _bars({key: value for key, value in found.items() if value}, "time of a step, private / plain", path)


def times(entries: list[Entry], path: Path) -> bool:
    """A bar for plain Keras and for the fastest method of every library."""
    found: dict[tuple[str, str], float] = {}
    for one in entries:
        if one.step_ms and (one.method != PLAIN or one.library == "keras"):
            key = (one.workload, f"{one.library}{' plain' if one.method == PLAIN else ''}, {one.optimizer}")
            found[key] = min(found.get(key, float("inf")), tables.median(one))
    return _bars(found, "time of a step, ms", path, log=True)


def _bars(heights: dict[tuple[str, str], float], label: str, path: Path, log: bool = False) -> bool:
    if pyplot is None:
        return False
    names = list(dict.fromkeys(name for name, _ in heights))
    series = list(dict.fromkeys(kind for _, kind in heights))
    figure, axes = pyplot.subplots(figsize=(2 + 1.4 * len(names), 4.5), layout="constrained")
    width = 0.8 / max(1, len(series))
    for index, kind in enumerate(series):
        here = {i: heights[name, kind] for i, name in enumerate(names) if (name, kind) in heights}
        bars = axes.bar([i + index * width for i in here], list(here.values()), width, label=kind)
        axes.bar_label(bars, fmt="%.3g", fontsize=6)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(names))], names)
    axes.set_ylabel(label)
    if log:
        axes.set_yscale("log")
    else:
        axes.axhline(1.0, color="black", linewidth=0.8)
    axes.legend(fontsize=8, ncols=2)
    return _saved(figure, path)


def growth(entries: list[Entry], path: Path) -> bool:
    """Time and memory over each axis, all logarithmic: a straight line is a power."""
    if pyplot is None:
        return False
    kinds: dict[str, Callable[[Entry], float | None]] = {
        "time of a step, ms": tables.median,
        "growth of memory, MB": lambda one: one.memory_mb,
    }
    axes = list(dict.fromkeys(one.workload.split(" ")[0] for one in entries))
    size = (4.2 * len(axes), 3.4 * len(kinds))
    figure, panels = pyplot.subplots(len(kinds), len(axes), figsize=size, squeeze=False, layout="constrained")
    for row, (label, of) in zip(panels, kinds.items(), strict=True):
        for panel, axis in zip(row, axes, strict=True):
            for method in (PLAIN, PRIVATE):
                here = [
                    one for one in entries if one.workload.split(" ")[0] == axis and one.method == method and of(one)
                ]
                panel.loglog(
                    [int(one.workload.split(" ")[1]) for one in here], [of(one) for one in here], "o-", label=method
                )
            panel.set(xlabel=AXES[axis], ylabel=label)
            panel.legend()
    return _saved(figure, path)


def distortions(lines: dict[str, dict[float, float]], path: Path) -> bool:
    """Expected l1 distortion of each noise over the Renyi divergence, and the same over that of the Gaussian."""
    if pyplot is None:
        return False
    figure, (whole, ratio) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name, line in lines.items():
        whole.loglog(list(line), list(line.values()), "o-", markersize=3, label=name)
        ratio.semilogx(list(line), [l1 / lines["Gaussian"][at] for at, l1 in line.items()], "o-", markersize=3)
    label = "Renyi divergence of order 2, one step"
    whole.set(xlabel=label, ylabel="expected l1 distortion, in clips")
    ratio.set(xlabel=label, ylabel="the same / Gaussian")
    whole.legend(fontsize=8)
    return _saved(figure, path)


def _saved(figure, path: Path) -> bool:
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return True
