"""What was measured, as markdown tables: one for each section of docs/performance.md. Standard library only.

A ratio is that to the plain side of the same framework (tfdp's is plain Keras), at the same workload, optimizer and
protocol; of a side that XLA compiled, to the plain side that XLA compiled, unless it is said otherwise.
"""

import math
from collections.abc import Iterable

from benchmarks.protocol import PLAIN, PRIVATE, XLA, Entry
from experiments.tables import markdown


def filled(columns: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Without the columns in which nothing stands."""
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]


def number(value: float | None) -> str:
    """Three digits, or nothing."""
    return "" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def over(one: float | None, other: float | None) -> str:
    """How many times as much, or nothing."""
    return "" if one is None or not other else f"{one / other:.2f}"


def median(one: Entry | None, what: str = "step_ms") -> float | None:
    summary = one and getattr(one, what)
    return summary["median"] if summary else None


def step(one: Entry | None) -> str:
    """Its time with the quartiles, or why there is none."""
    if one is None:
        return ""
    if one.step_ms is None:
        return f"{one.status}: {one.reason}"
    return f"{number(one.step_ms['median'])} ({number(one.step_ms['low'])} to {number(one.step_ms['high'])})"


def settings(entries: Iterable[Entry]) -> dict[tuple[str, str], dict[str, Entry]]:
    """Keras's and tfdp's sides of each workload and optimizer, by method."""
    found: dict[tuple[str, str], dict[str, Entry]] = {}
    for one in entries:
        if one.library in ("keras", "tfdp"):
            found.setdefault((one.workload, one.optimizer), {})[one.method] = one
    return found


def ratio(one: Entry, entries: Iterable[Entry]) -> float | None:
    """Time over that of the plain side of the same framework."""
    framework = "keras" if one.library == "tfdp" else one.library
    method = PLAIN + XLA if one.library == "tfdp" and one.method.endswith(XLA) else PLAIN
    wanted = (framework, method, one.workload, one.optimizer, one.protocol)
    for other in entries:
        if (
            other.library,
            other.method,
            other.workload,
            other.optimizer,
            other.protocol,
        ) == wanted and other is not one:
            found, plain = median(one), median(other)
            return found / plain if found and plain else None
    return None


def line(entries: list[Entry]) -> str:
    """What was just measured, in a line."""
    parts = []
    for one in entries:
        found = ratio(one, entries)
        what = one.status if one.step_ms is None else f"{number(median(one))} ms"
        parts.append(f"{one.library} {one.method} {what}" + ("" if found is None else f" (x {found:.2f})"))
    return f"{entries[0].workload} {entries[0].optimizer}: {'; '.join(parts)}"


def every_method(entries: list[Entry]) -> str:
    """A row for every entry."""
    columns = ["workload", "optimizer", "library", "method", "step, ms", "ratio", "a fit, ms", "memory, MB"]
    names, rows = list(dict.fromkeys(one.workload for one in entries)), []
    for one in sorted(entries, key=lambda one: (names.index(one.workload), one.optimizer)):
        numbers = ratio(one, entries), median(one, "fit_ms"), one.memory_mb
        rows.append([one.workload, one.optimizer, one.library, one.method, step(one), *map(number, numbers)])
    return markdown(*filled(columns, rows))


def sides(entries: list[Entry]) -> str:
    """Private against plain: a row for each workload and optimizer, with the columns that were measured."""
    columns = ["workload", "optimizer", "plain, ms", "private, ms", "ratio", "ratio of CPU time"]
    columns += ["a fit plain, ms", "a fit private, ms", "plain, MB", "private, MB"]
    rows = []
    for (workload, optimizer), found in settings(entries).items():
        plain, private = found.get(PLAIN), found.get(PRIVATE)
        times = [over(median(private, clock), median(plain, clock)) for clock in ("step_ms", "cpu_ms")]
        fits = [number(median(one, "fit_ms")) for one in (plain, private)]
        grown = [number(one and one.memory_mb) for one in (plain, private)]
        rows.append([workload, optimizer, step(plain), step(private), *times, *fits, *grown])
    return markdown(*filled(columns, rows))


def jit(entries: list[Entry]) -> str:
    """Both sides with XLA and without."""
    columns = ["workload", "optimizer", "plain, ms", "plain, XLA, ms", "private, ms", "private, XLA, ms"]
    columns += ["private / plain", "private, XLA / plain, XLA", "private, XLA / plain"]
    rows = []
    for (workload, optimizer), found in settings(entries).items():
        methods = (PLAIN, PLAIN + XLA, PRIVATE, PRIVATE + XLA)
        plain, plain_xla, private, private_xla = (median(found.get(method)) for method in methods)
        ratios = [over(private, plain), over(private_xla, plain_xla), over(private_xla, plain)]
        rows.append([workload, optimizer, *(step(found.get(method)) for method in methods), *ratios])
    return markdown(columns, rows)


def growth(entries: list[Entry]) -> str:
    """A row for each value of each axis, with the exponents between it and the value before."""
    columns = ["axis", "value", "plain, ms", "private, ms", "ratio", "exponents", "plain, MB", "private, MB"]
    columns += ["ratio of memory", "exponents of memory"]
    rows, last = [], None
    for (workload, _), found in settings(entries).items():
        axis, value = workload.split(" ")
        plain, private = found.get(PLAIN), found.get(PRIVATE)
        here = {"axis": axis, "value": int(value), "ms": [median(plain), median(private)]}
        here["MB"] = [one and one.memory_mb for one in (plain, private)]
        row = [axis, value, step(plain), step(private), over(*here["ms"][::-1]), exponents("ms", last, here)]
        row += [*map(number, here["MB"]), over(*here["MB"][::-1]), exponents("MB", last, here)]
        rows.append(row)
        last = here
    return markdown(columns, rows)


def exponents(what: str, last: dict | None, here: dict) -> str:
    """The slopes of plain and private in the log-log plot: "1.00, 1.05" is linear growth, and a little more."""
    if last is None or last["axis"] != here["axis"]:
        return ""
    run = math.log(here["value"] / last["value"])
    found = [
        f"{math.log(after / before) / run:.2f}" if before and after else "?"
        for before, after in zip(last[what], here[what], strict=True)
    ]
    return ", ".join(found)


def physical(entries: list[Entry]) -> str:
    """Large lots in parts against small lots, the first of the workload: time of an example, and memory."""
    columns = [
        "workload",
        "optimizer",
        "max_physical_batch",
        "an example, ms",
        "ratio",
        "memory of the step, MB",
        "ratio",
    ]
    columns += ["records of a lot, MB", "memory of fit, MB"]
    rows, firsts = [], {}
    for one in entries:
        first = firsts.setdefault(one.workload.partition("@")[0], one)
        mine, its = (median(side) and median(side) / side.lot for side in (one, first))
        limit = one.method.partition("max_physical_batch=")[2]
        time = [number(mine) or step(one), over(mine, its)]
        grown = [number(one.memory_mb), over(one.memory_mb, first.memory_mb)]
        beside = [number(one.records_mb), number(one.fit_memory_mb)]
        rows.append([one.workload, one.optimizer, limit, *time, *grown, *beside])
    return markdown(columns, rows)


def drawing(entries: list[Entry]) -> str:
    """The input pipeline alone against the training step, which is the first entry."""
    rows, training = [], entries[0]
    for one in entries:
        shares = [median(one, clock) / median(training, clock) for clock in ("step_ms", "cpu_ms")]
        percent = ["" if share is None else f"{100 * share:.1f} %" for share in (*shares, one.padding)]
        rows.append([one.workload, one.method, step(one), *percent])
    return markdown(["workload", "what", "a lot, ms", "share of training", "of its CPU time", "padding"], rows)


def epoch(entries: list[Entry]) -> str:
    """Records from a memory map against the same records in memory, which are the first entry."""
    rows = []
    for one in entries:
        seconds = median(one) and median(one) * one.steps / 1000
        rows.append([one.workload, one.method, step(one), number(seconds), over(median(one), median(entries[0]))])
    return markdown(["workload", "records", "step, ms", "an epoch, s", "ratio"], rows)


def fastest(entries: Iterable[Entry]) -> Entry | None:
    return min((one for one in entries if median(one)), key=median, default=None)


def peers(entries: list[Entry]) -> str:
    """tfdp against the fastest method of each peer: time and memory of the step on a lot in memory. Blank: not measured."""
    libraries = sorted({one.library for one in entries} - {"keras", "tfdp"})
    columns = ["workload", "optimizer", "plain Keras, ms", "tfdp, ms", *(f"{library}, ms" for library in libraries)]
    columns += ["fastest peer / tfdp", "tfdp, MB", "fastest peer, MB"]
    rows = []
    for workload, optimizer in dict.fromkeys((one.workload, one.optimizer) for one in entries):
        here = [one for one in entries if (one.workload, one.optimizer) == (workload, optimizer)]
        private = [one for one in here if one.method != PLAIN]
        best = {library: fastest(one for one in private if one.library == library) for library in libraries}
        if not any(one.library in libraries for one in here):
            continue
        plain = fastest(one for one in here if one.library == "keras")
        own, rival = fastest(one for one in private if one.library == "tfdp"), fastest(filter(None, best.values()))
        tried = {one.library for one in private}
        nothing = {library: "out of reach" if library in tried else "" for library in libraries}
        cells = [f"{number(median(one))} ({one.method})" if one else nothing[name] for name, one in best.items()]
        row = [
            workload,
            optimizer,
            number(median(plain)),
            number(median(own)),
            *cells,
            over(median(rival), median(own)),
        ]
        rows.append([*row, number(own and own.memory_mb), number(rival and rival.memory_mb)])
    return markdown(columns, rows)
