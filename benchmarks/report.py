"""Tables and plots of what the benchmarks wrote: `python -m benchmarks.report results/*.json [--write-docs]`.

A table has a line for every workload, optimizer, library and method; the ratio is that to the plain side of the same
framework and protocol (tfdp's is plain Keras). `--write-docs` puts the tables into docs/performance.md, between marks, and
the plots beside it; without matplotlib there are no plots.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from benchmarks import protocol
from benchmarks.protocol import Entry

DOCS = protocol.ROOT / "docs"
TITLES = {
    "fit": "Through model.fit",
    "resident": "The training step on one lot in memory",
}
# Whose plain side a library is compared with, beside its own.
FRAMEWORK = {"tfdp": "keras"}


def plain_of(one: Entry, entries: list[Entry]) -> Entry | None:
    """The same workload without privacy, in the same framework."""
    framework = FRAMEWORK.get(one.library, one.library)
    same = (one.workload, one.optimizer, one.protocol)
    for other in entries:
        measured_plain = other.method == "plain" and other.library == framework and other.step_ms is not None
        if measured_plain and (other.workload, other.optimizer, other.protocol) == same:
            return other
    return None


def ratio(one: Entry, entries: list[Entry]) -> float | None:
    plain = plain_of(one, entries)
    if plain is None or plain is one or one.step_ms is None:
        return None
    return one.step_ms["median"] / plain.step_ms["median"]


def line(entries: list[Entry]) -> str:
    """What was just measured, in a line."""
    parts = []
    for one in entries:
        found = ratio(one, entries)
        what = one.status if one.step_ms is None else f"{_number(one.step_ms, 'median')} ms"
        parts.append(f"{one.library} {one.method} {what}" + ("" if found is None else f" (x {found:.2f})"))
    return f"{entries[0].workload} {entries[0].optimizer}: {', '.join(parts)}"


def table(entries: list[Entry]) -> str:
    """All entries as markdown, a table for each protocol."""
    parts = []
    for how in dict.fromkeys(one.protocol for one in entries):
        chosen = sorted((one for one in entries if one.protocol == how), key=_order(entries))
        columns = [
            "workload",
            "optimizer",
            "library",
            "method",
            "step, ms",
            "quartiles",
            "ratio",
            "a fit, ms",
            "memory, MB",
        ]
        if how == "resident":
            columns.remove("a fit, ms")
        lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        lines += ["| " + " | ".join(_cells(one, entries, columns)) + " |" for one in chosen]
        parts.append(f"### {TITLES.get(how, how)}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _order(entries: list[Entry]):
    names = list(dict.fromkeys(one.workload for one in entries))
    libraries = ["keras", "tfdp"]
    return lambda one: (
        names.index(one.workload),
        one.optimizer,
        libraries.index(one.library) if one.library in libraries else len(libraries),
        one.library,
        one.method != "plain",
        one.method,
    )


def _cells(one: Entry, entries: list[Entry], columns: list[str]) -> list[str]:
    found = ratio(one, entries)
    quartiles = f"{_number(one.step_ms, 'low')} to {_number(one.step_ms, 'high')}" if one.step_ms else ""
    cells = {
        "workload": one.workload,
        "optimizer": one.optimizer,
        "library": one.library,
        "method": one.method,
        "step, ms": _number(one.step_ms, "median") if one.step_ms else f"{one.status}: {one.reason}",
        "quartiles": quartiles,
        "ratio": "" if found is None else f"{found:.2f}",
        "a fit, ms": _number(one.fit_ms, "median"),
        "memory, MB": "" if one.memory_mb is None else f"{one.memory_mb:.0f}",
    }
    return [cells[column] for column in columns]


def _number(summary: dict | None, which: str) -> str:
    return "" if summary is None else f"{summary[which]:.3g}" if abs(summary[which]) < 100 else f"{summary[which]:.0f}"


def plot(entries: list[Entry], path: Path) -> bool:
    """A bar for each workload and way of training it. False without matplotlib.

    Through fit that is the ratio of private to plain; for lots in memory the time itself, of plain Keras and of the
    quickest method of every library.
    """
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    resident = all(one.protocol == "resident" for one in entries)
    heights = _times(entries) if resident else _ratios(entries)
    names = list(dict.fromkeys(name for name, _ in heights))
    series = list(dict.fromkeys(kind for _, kind in heights))
    figure, axes = pyplot.subplots(figsize=(2 + 1.4 * len(names), 4.5), layout="constrained")
    width = 0.8 / max(1, len(series))
    for index, kind in enumerate(series):
        here = {i: heights[name, kind] for i, name in enumerate(names) if (name, kind) in heights}
        bars = axes.bar([i + index * width for i in here], list(here.values()), width, label=kind)
        axes.bar_label(bars, fmt="%.3g", fontsize=6)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(names))], names)
    axes.set_ylabel("time of a step, ms" if resident else "time of a step, private / plain")
    if resident:
        axes.set_yscale("log")
    else:
        axes.axhline(1.0, color="black", linewidth=0.8)
    axes.legend(fontsize=8, ncols=2)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return True


def _ratios(entries: list[Entry]) -> dict[tuple[str, str], float]:
    found = {(one.workload, f"{one.library}, {one.optimizer}"): ratio(one, entries) for one in entries}
    return {key: value for key, value in found.items() if value is not None}


def _times(entries: list[Entry]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for one in entries:
        if one.step_ms is None or (one.method == "plain" and one.library != "keras"):
            continue
        key = (one.workload, f"{one.library}{' plain' if one.method == 'plain' else ''}, {one.optimizer}")
        found[key] = min(found.get(key, float("inf")), one.step_ms["median"])
    return found


def write_docs(entries: list[Entry], where: dict, docs: Path = DOCS) -> None:
    """Tables and plots of all protocols into docs/performance.md; what else stands there stays."""
    docs.mkdir(exist_ok=True)
    versions = ", ".join(f"{name} {version}" for name, version in where["packages"].items())
    clock = "CPU time of all threads" if where.get("clock") == "cpu" else "Wall-clock time"
    measured = (
        f"{clock}. Measured on {where['cores']} cores of {where['processor']}, Python {where['python']}, {versions}."
    )
    for how in dict.fromkeys(one.protocol for one in entries):
        chosen = [one for one in entries if one.protocol == how]
        image = docs / f"performance-{how}.png"
        picture = f"\n\n![{TITLES.get(how, how)}]({image.name})" if plot(chosen, image) else ""
        write_section(how, f"{table(chosen)}\n\n{measured}{picture}", docs)


def write_section(name: str, content: str, docs: Path = DOCS) -> None:
    """Replace what stands between the marks of this name in docs/performance.md, or add it at the end."""
    page = docs / "performance.md"
    text = page.read_text() if page.exists() else "# What privacy costs in time and memory\n"
    begin, end = f"<!-- {name}: written by benchmarks -->", f"<!-- end of {name} -->"
    section = f"{begin}\n{content}\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    replaced, found = pattern.subn(lambda _: section, text)
    page.write_text(replaced if found else text.rstrip("\n") + f"\n\n{section}\n")


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", help="JSON files of step_cost and of the peers")
    parser.add_argument("--write-docs", action="store_true", help="put tables and plots into docs/performance.md")
    options = parser.parse_args(given)
    entries = protocol.read(*options.files)
    print(table(entries))
    if options.write_docs:
        where = json.loads(Path(options.files[0]).read_text())["machine"]
        for other in options.files[1:]:
            where["packages"] |= json.loads(Path(other).read_text())["machine"]["packages"]
        write_docs(entries, where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
