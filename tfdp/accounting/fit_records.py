"""What a ledger's lines do not say of the fits that wrote them, and a privacy statement has to: plain data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Literal

from tfdp.accounting.budgets import Budget
from tfdp.accounting.ledger import Ledger, Line
from tfdp.accounting.schedules import Schedule

Action = Literal["stops training", "chooses weights", "changes the learning rate", "unknown"]


@dataclasses.dataclass(frozen=True)
class Watcher:
    """A callback that saw metrics, which carry no noise, and could act on what it saw.

    `metric` is what it watches ("loss", "val_accuracy"), None if that can't be known. `validation` says that it is
    computed from validation records: from released weights and records that training did not see.
    """

    callback: str
    metric: str | None
    action: Action
    validation: bool = False

    @property
    def saw_training_records(self) -> bool:
        return not self.validation


@dataclasses.dataclass(frozen=True)
class FitRecord:
    """The circumstances of one or several alike calls of `fit`.

    Attributes:
        steps: the releases they made, with those of the schedule.
        weights: how many numbers got noise in each step.
        fits: how many calls of `fit` this stands for.
        unchecked: what the user declared of the data set and could not be checked.
        watchers: callbacks that saw metrics and may have acted on them.
        budgets: the limits that were set before the first step and enforced by every step.
        planned: the whole ledger as it would be had all planned steps been taken. Whether they were may have been
            decided by looking at results, and so may which of the weights in between became the model.
        schedule: of releases that were made between the steps (as if from the first step on); None if there were none.
        scheduled: how many of `steps` they are.
        trained_before: how many times the weights had been trained in another way before.
    """

    steps: int
    weights: int
    fits: int = 1
    unchecked: tuple[str, ...] = ()
    watchers: tuple[Watcher, ...] = ()
    budgets: tuple[Budget, ...] = ()
    planned: Ledger = dataclasses.field(default_factory=Ledger)
    schedule: Schedule | None = None
    scheduled: int = 0
    trained_before: int = 0

    def merged(self, other: FitRecord) -> FitRecord | None:
        """Both as one record; None if their circumstances differ."""
        alike = ("weights", "unchecked", "watchers", "budgets", "schedule", "trained_before")
        if any(getattr(self, name) != getattr(other, name) for name in alike):
            return None
        return dataclasses.replace(
            self,
            steps=self.steps + other.steps,
            fits=self.fits + other.fits,
            planned=Ledger.covering(self.planned, other.planned),
            scheduled=self.scheduled + other.scheduled,
        )


def with_record(records: Iterable[FitRecord], new: FitRecord) -> tuple[FitRecord, ...]:
    """The records with a new one at the end, merged into the last one where the two are alike."""
    records = tuple(records)
    merged = records[-1].merged(new) if records else None
    return (*records, new) if merged is None else (*records[:-1], merged)


def on_schedule(records: Iterable[FitRecord], schedule: Schedule) -> tuple[int, int]:
    """How many steps were taken, and how many releases made, on a schedule that is given as from the first step on."""
    own = [record for record in records if record.schedule == schedule]
    releases = sum(record.scheduled for record in own)
    return sum(record.steps for record in own) - releases, releases


def dumps(records: Iterable[FitRecord]) -> str:
    def data(record: FitRecord) -> dict:
        plain = {**dataclasses.asdict(record), "planned": record.planned.to_json()}
        return {**plain, "schedule": record.schedule and _schedule_to_json(record.schedule)}

    return json.dumps([data(record) for record in records])


def loads(text: str) -> tuple[FitRecord, ...]:
    def record(data: dict) -> FitRecord:
        data["unchecked"] = tuple(data["unchecked"])
        data["watchers"] = tuple(Watcher(**watcher) for watcher in data["watchers"])
        data["budgets"] = tuple(Budget(**budget) for budget in data["budgets"])
        data["planned"] = Ledger.from_json(data["planned"])
        data["schedule"] = data.get("schedule") and _schedule_from_json(**data["schedule"])
        return FitRecord(**data)

    return tuple(record(data) for data in json.loads(text))


def _schedule_to_json(schedule: Schedule) -> dict:
    """Events and samplings are written as a ledger writes them: by a line of no steps."""
    kind = Ledger([Line(schedule.event, schedule.sampling, 0)]).to_json()
    return {"kind": kind, "every": schedule.every, "first": schedule.first}


def _schedule_from_json(kind: str, every: int, first: int) -> Schedule:
    (line,) = Ledger.from_json(kind)
    return Schedule(line.event, line.sampling, every, first)
