"""A grid of settings, each run once, and what they cost together."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.campaign import Record, TrainingRun
from experiments.report.figures import Line, Panel
from experiments.report.found import Found
from experiments.settings import RunSettings
from tfdp.accounting import Ledger, report
from tfdp.accounting.claims import rounded_up

COLUMNS = ("method", "target epsilon", "proven epsilon", "mean", "lowest to highest", "runs", "CPU seconds a run")


def grid(base: dict[str, Any], methods: Sequence[str], epsilons: Sequence[float], seeds: int) -> list[RunSettings]:
    """Seeds outermost: a sweep that is broken off has whole rounds."""
    made = []
    for seed, method, epsilon in itertools.product(range(seeds), methods, epsilons):
        own = {} if method.startswith("no-privacy") else {"epsilon": epsilon}
        made.append(RunSettings.of(**base, method=method, seed=seed, **own))
    return list({setting.name: setting for setting in made}.values())


def folder_name(settings: Sequence[RunSettings]) -> str:
    """Of a sweep's table and report among those of other sweeps: how many runs, and a few digits that differ where any run does."""
    names = "\n".join(sorted(one.name for one in settings))
    return f"{len(settings)}-runs-{hashlib.sha256(names.encode()).hexdigest()[:6]}"


def found(runs: Sequence[TrainingRun], records: Sequence[Record], command: str) -> Found:
    """A row for each method and epsilon, over its seeds."""
    groups: dict[tuple, list[Record]] = {}
    for run, record in zip(runs, records, strict=True):
        groups.setdefault((run.settings.method, run.settings.epsilon), []).append(record)
    dataset, metric = runs[0].settings.dataset, records[0]["metric"]
    scored = "held-out" if runs[0].settings.held_out else "test"
    return Found(
        f"Sweep on {dataset}",
        f"{metric} on {scored} records of {dataset}, {len(records)} runs.",
        COLUMNS,
        tuple(_row(method, epsilon, some) for (method, epsilon), some in groups.items()),
        (Panel(f"Sweep on {dataset}", "target epsilon", f"{scored} {metric}", _lines(groups), log_x=True),),
        (siblings(records, runs[0].settings.delta),),
        command,
    )


def _row(method: str, epsilon: float | None, records: list[Record]) -> tuple[str, ...]:
    proven = [record["statement"]["epsilon"] for record in records]
    said = "none" if None in proven else rounded_up(max(proven))
    return (method, "" if epsilon is None else f"{epsilon:g}", said, *mean_and_range(records), mean_seconds(records))


def mean_and_range(records: Sequence[Record], key: str = "score") -> tuple[str, str, str]:
    scores = [record[key] for record in records]
    digits = 2 if records[0]["metric"] == "accuracy" and key == "score" else 4
    mean, low, high = (f"{value:.{digits}f}" for value in (np.mean(scores), min(scores), max(scores)))
    return mean, f"{low} to {high}", str(len(scores))


def mean_seconds(records: Sequence[Record]) -> str:
    return f"{np.mean([record['cpu_seconds'] for record in records]):.0f}"


def _lines(groups: dict[tuple, list[Record]]) -> tuple[Line, ...]:
    """No privacy is a level line."""
    epsilons = sorted({epsilon for _, epsilon in groups if epsilon is not None})
    found = []
    for method in dict.fromkeys(method for method, _ in groups):
        means = {epsilon: np.mean([r["score"] for r in some]) for (m, epsilon), some in groups.items() if m == method}
        at = sorted(means, key=lambda epsilon: epsilon or 0)
        if at == [None]:
            found.append(Line(method, tuple(epsilons), (float(means[None]),) * len(epsilons), "dashed"))
        else:
            found.append(Line(method, tuple(at), tuple(float(means[epsilon]) for epsilon in at)))
    return tuple(found)


def siblings(records: Iterable[Record], delta: float) -> str:
    """What all runs cost together: whoever chose one by its result has used them all."""
    ledgers = [record["statement"].get("ledger") for record in records]
    told = f"These {len(ledgers)} runs are siblings, trained on the same records."
    if None in ledgers or any(not ledger["lines"] for ledger in ledgers):
        return f"{told} Some have no ledger (no privacy, or noise on records), so nothing is proven of all together."
    try:
        both = report(Ledger.combined(*(Ledger.from_json(json.dumps(one)) for one in ledgers)), delta=delta)
    except ValueError as refusal:
        return f"{told} No accountant can price all together: {refusal}."
    return (
        f"{told} Each claim is about its own run. Against whoever sees all of them, or one that was chosen by its result, all "
        f"ledgers together have epsilon {rounded_up(both.epsilon)} at delta {delta:g} ({both.status}, {both.how})."
    )
