"""Runs a table or figure of a paper, and puts the paper's numbers beside ours."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.campaign import Campaign, Record
from experiments.papers.study import BY_EPOCH, BY_X, EPOCHS_TO_REACH, GAP, SCORE, STEP, Computation, Row, Study
from experiments.report.figures import Line, Panel
from experiments.report.found import Found
from tfdp.accounting.claims import FEATURES, rounded_up

TUNING_SEED = 10**6
QUICK_ROWS = 8
_QUICK = "A trial on {data}, with few steps and one run each: it shows that the command works. Nothing follows from its numbers."
_QUICK_COMPUTED = "A trial: fewer points, and of encoded gradients fewer weights and codewords, than the whole has."
_HELD_OUT = (
    "Where a setting was chosen among several, it was by one run on a tenth of the training records, held out, with another seed. That "
    "looks at the records without paying for it: results compare methods, they are no recipe."
)
_NOMINAL = "Nominal is what the paper states; of methods and epsilons of ours, the target that the noise was found for."
_PROVEN = (
    'Proven is the largest over the runs of what their statements prove, of one run alone: "features" if it '
    'is about the features of a record and not about the whole of it, "none" if nothing is.'
)


def folder_name(study: Study | Computation, quick: bool) -> str:
    return f"{study.name}-quick" if quick else study.name


def reproduce(
    study: Study | Computation,
    folder: Path,
    data_dir: str | os.PathLike | None,
    quick: bool,
    seeds: int | None,
    only: Sequence[str],
    command: str,
) -> Found:
    """What was found. Runs go to `folder`/<results>.jsonl, and none is run twice."""
    if isinstance(study, Computation):
        if only or seeds:
            raise ValueError(f"{study.name} is computed, not trained: leave out --only and --seeds.")
        computed = study.compute(quick)
        notes = (_QUICK_COMPUTED, *study.notes) if quick else study.notes
        return Found(study.title, study.about, computed.columns, computed.rows, computed.panels, notes, command)
    rows = chosen(study, only)
    if quick:
        rows = _trial(rows, data_dir is not None)
    campaign = Campaign(folder, study.results + ("-quick" if quick else ""), data_dir)
    rows = _tuned(rows, campaign)
    runs = [[row.run.with_seed(seed) for row in rows] for seed in range(seeds or (1 if quick else study.seeds))]
    campaign.run_all(
        [run for round_ in runs for run in round_]
    )  # round by round: a study that is broken off has whole ones
    records = [[campaign.record(round_[i]) for round_ in runs] for i in range(len(rows))]
    return _found(study, rows, records, quick, data_dir is not None, command)


def chosen(study: Study, only: Sequence[str]) -> tuple[Row, ...]:
    """The rows whose names contain one of these texts; all if there is none."""
    names = [f"{row.panel} {row.series} {_x(row)}".lower() for row in study.rows]
    # A number ends where its text ends: "epsilon 1" is not in "epsilon 10.43".
    wanted = [re.escape(text.lower()) + (r"(?!\.?\d)" if text[-1:].isdigit() else "") for text in only]
    rows = tuple(
        row
        for row, name in zip(study.rows, names, strict=True)
        if not only or any(re.search(text, name) for text in wanted)
    )
    if not rows:
        said = ", ".join(dict.fromkeys(f"{row.panel} {row.series}".strip() for row in study.rows))
        raise ValueError(f"--only {' '.join(only)} leaves nothing of {study.name}. Its rows are: {said}.")
    return rows


def _trial(rows: Sequence[Row], has_data: bool) -> tuple[Row, ...]:
    """The first and the last of each line of the first panel, few in all, each made small."""
    rows = [row for row in rows if row.panel == rows[0].panel]
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row.series, []).append(row)
    ends = [row for line in lines.values() for row in ([line[0], line[-1]] if len(line) > 1 else line)]
    places = dict.fromkeys(np.linspace(0, len(ends) - 1, min(QUICK_ROWS, len(ends))).round().astype(int).tolist())
    return tuple(_small(ends[i], has_data) for i in places)


def _small(row: Row, has_data: bool) -> Row:
    """Without the paper's numbers where its data are not there."""
    small = dataclasses.replace(
        row, run=row.run.quick(has_data), grid=tuple(run.quick(has_data) for run in row.grid[:1])
    )
    if has_data:
        return small
    panel = f"digits in place of {row.panel}" if row.panel else ""
    return dataclasses.replace(small, panel=panel, published=None, nominal=None)


def _tuned(rows: Sequence[Row], campaign: Campaign) -> tuple[Row, ...]:
    """With the best run of each grid."""
    tried = [[run.on_held_out(TUNING_SEED) for run in row.grid] for row in rows]
    campaign.run_all([run for some in tried for run in some])
    found = []
    for row, some in zip(rows, tried, strict=True):
        scores = [_signed(campaign.record(run)) for run in some]
        found.append(dataclasses.replace(row, run=row.grid[int(np.argmax(scores))]) if scores else row)
    return tuple(found)


def _signed(record: Record) -> float:
    return -record["score"] if record["metric"] == "rmse" else record["score"]


def _found(
    study: Study, rows: Sequence[Row], records: list[list[Record]], quick: bool, has_data: bool, command: str
) -> Found:
    if quick and not has_data:
        study = dataclasses.replace(study, columns=tuple(c for c in study.columns if not c.name.startswith("paper")))
    values = [
        [_value(study, record, least) for record in some]
        for some, least in zip(records, _least(rows, records), strict=True)
    ]
    data = "the first records of the data" if has_data else "embedded digits in place of the paper's data"
    notes = ((_QUICK.format(data=data),) if quick else ()) + study.notes
    notes += (_NOMINAL,) if any(row.nominal is not None for row in rows) else ()
    notes += (_PROVEN,)
    notes += (_HELD_OUT,) if any(row.grid for row in rows) else ()
    measure = _metric(study, records)
    columns = ["data", "setting", study.x_label, f"paper: {measure}"]
    columns += [f"ours: {measure}", "lowest to highest", "runs", "nominal epsilon", "proven epsilon"]
    columns += [*(column.name for column in study.columns), "CPU seconds a run"]
    told = tuple(_row(study, row, some, value) for row, some, value in zip(rows, records, values, strict=True))
    kept = [
        i for i in range(len(columns)) if any(row[i] for row in told) or (columns[i].startswith("paper") and not quick)
    ]
    cells = tuple(tuple(row[i] for i in kept) for row in told)
    panels = _panels(study, rows, records, values, measure)
    return Found(study.title, study.about, tuple(columns[i] for i in kept), cells, panels, notes, command)


def _metric(study: Study, records: list[list[Record]]) -> str:
    if study.measure != SCORE:
        return study.measure
    return "accuracy, %" if records[0][0]["metric"] == "accuracy" else records[0][0]["metric"].upper()


def _value(study: Study, record: Record, least_loss: float) -> float:
    """What the study measures of a run."""
    if study.measure == GAP:
        return record["gap"] if "gap" in record else record["training_loss"] - least_loss
    if study.measure == STEP:
        return record["step_ms"]
    by_epoch = [100 * row["val_accuracy"] for row in record.get("history", ()) if "val_accuracy" in row]
    return max(by_epoch) if study.highest and by_epoch else record["score"]


def _least(rows: Sequence[Row], records: list[list[Record]]) -> list[float]:
    """For each row, the smallest training loss of any run of its panel: what stands for L* where the optimum is not known."""
    found: dict[str, float] = {}
    for row, some in zip(rows, records, strict=True):
        for record in some:
            found[row.panel] = min(found.get(row.panel, math.inf), record.get("training_loss", math.inf))
    return [found[row.panel] for row in rows]


def _row(study: Study, row: Row, records: list[Record], values: list[float]) -> tuple[str, ...]:
    shape = {GAP: ".3g", STEP: ".1f"}.get(study.measure, ".1f" if records[0]["metric"] == "accuracy" else ".3f")
    middle = np.median if study.measure == STEP else np.mean  # times of a shared machine have outliers
    typical, low, high = (format(value, shape) for value in (middle(values), min(values), max(values)))
    return (
        row.panel,
        row.series,
        _x(row),
        "" if row.published is None else f"{row.published:g}",
        typical,
        f"{low} to {high}",
        str(len(records)),
        "" if row.nominal is None else f"{row.nominal:g}",
        proven(records),
        *(column.of(row, records) for column in study.columns),
        f"{np.mean([record['cpu_seconds'] for record in records]):.0f}",
    )


def _x(row: Row) -> str:
    return "" if row.x is None else f"{row.x:g}"


def proven(records: Sequence[Record]) -> str:
    """The largest that is proven of any."""
    said = [_proven(record["statement"]) for record in records if "statement" in record]
    return max(said, key=lambda one: (one[1], one[0]))[0] if said else ""


def _proven(statement: dict) -> tuple[str, float]:
    if statement["epsilon"] is not None:
        return rounded_up(statement["epsilon"]), statement["epsilon"]
    features = [one for one in statement["claims"] if one["protects"] == FEATURES and one["status"] == "proven"]
    return (f"features {rounded_up(features[0]['epsilon'])}", math.inf) if features else ("none", math.inf)


def _panels(
    study: Study, rows: Sequence[Row], records: list[list[Record]], values: list[list[float]], measure: str
) -> tuple[Panel, ...]:
    made = []
    for panel in dict.fromkeys(row.panel for row in rows):
        here = [i for i, row in enumerate(rows) if row.panel == panel]
        title = ", ".join(part for part in (study.name, panel) if part)
        if study.plot == BY_X:
            lines, labels = (
                _by_x([rows[i] for i in here], [values[i] for i in here]),
                (study.x_label or "row of the table", measure),
            )
        else:
            curves = {
                rows[i].series + (f", {study.x_label} {_x(rows[i])}" if rows[i].x is not None else ""): records[i]
                for i in here
            }
            lines, labels = _by_epoch(curves, study.plot)
        made.append(Panel(title, *labels, tuple(lines), log_x=study.log_x, log_y=study.measure == GAP))
    return tuple(made)


def _by_x(rows: Sequence[Row], values: Sequence[list[float]]) -> list[Line]:
    """A line for each series, the paper's numbers as rings; of a table, the rows one after the other."""
    if all(row.x is None for row in rows):
        places = tuple(float(i + 1) for i in range(len(rows)))
        ours = [Line("ours", places, tuple(float(np.mean(some)) for some in values), "points")]
        known = [i for i, row in enumerate(rows) if row.published is not None]
        return [
            *ours,
            Line("paper", tuple(places[i] for i in known), tuple(rows[i].published for i in known), "points"),
        ]
    found = []
    for series in dict.fromkeys(row.series for row in rows):
        points = sorted(
            (row.x, float(np.mean(some)), row.published)
            for row, some in zip(rows, values, strict=True)
            if row.series == series and row.x is not None
        )
        if points:
            found.append(Line(series, tuple(p[0] for p in points), tuple(p[1] for p in points)))
        told = [(x, published) for x, _, published in points if published is not None]
        if told:
            found.append(Line(f"{series}, paper", *map(tuple, zip(*told, strict=True)), "points"))
    levels = [(row.series, float(np.mean(some))) for row, some in zip(rows, values, strict=True) if row.x is None]
    span = [row.x for row in rows if row.x is not None]
    return found + [Line(name, (min(span), max(span)), (level, level), "dashed") for name, level in levels]


def _by_epoch(curves: dict[str, list[Record]], plot: str) -> tuple[list[Line], tuple[str, str]]:
    """Mean test accuracy after each epoch, or the other way round: the first epoch at which it is reached."""
    means = {}
    for name, records in curves.items():
        runs = [[100 * row["val_accuracy"] for row in record["history"]] for record in records]
        shortest = min(map(len, runs))  # a budget may end runs at different epochs
        means[name] = np.mean([run[:shortest] for run in runs], axis=0)
    if plot == BY_EPOCH:
        lines = [Line(name, tuple(range(1, len(mean) + 1)), tuple(mean.tolist())) for name, mean in means.items()]
        return lines, ("epoch", "test accuracy, %")
    assert plot == EPOCHS_TO_REACH
    lines = []
    for name, mean in means.items():
        levels = [level for level in range(0, 100) if mean.max() >= level > mean.min()]
        epochs = tuple(int(np.argmax(mean >= level)) + 1 for level in levels)
        lines.append(Line(name, tuple(map(float, levels)), tuple(map(float, epochs))))
    return lines, ("test accuracy, %", "epochs to reach it")
