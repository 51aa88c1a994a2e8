"""What a ledger's lines do not say of the fits that wrote them, and a privacy statement has to: plain data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Literal

from tfdp.accounting.budgets import Budget
from tfdp.accounting.ledger import Ledger

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
        steps: the releases they made.
        weights: how many numbers got noise in each step.
        fits: how many calls of `fit` this stands for.
        unchecked: what the user declared of the data set and could not be checked.
        watchers: callbacks that saw metrics and may have acted on them.
        budgets: the limits that were set before the first step and enforced by every step.
        planned: the whole ledger as it would be had all planned steps been taken. Whether they were may have been
            decided by looking at results, and so may which of the weights in between became the model.
    """

    steps: int
    weights: int
    fits: int = 1
    unchecked: tuple[str, ...] = ()
    watchers: tuple[Watcher, ...] = ()
    budgets: tuple[Budget, ...] = ()
    planned: Ledger = dataclasses.field(default_factory=Ledger)

    def merged(self, other: FitRecord) -> FitRecord | None:
        """Both as one record; None if their circumstances differ."""
        alike = ("weights", "unchecked", "watchers", "budgets")
        if any(getattr(self, name) != getattr(other, name) for name in alike):
            return None
        return dataclasses.replace(
            self,
            steps=self.steps + other.steps,
            fits=self.fits + other.fits,
            planned=Ledger.covering(self.planned, other.planned),
        )


def with_record(records: Iterable[FitRecord], new: FitRecord) -> tuple[FitRecord, ...]:
    """The records with a new one at the end, merged into the last one where the two are alike."""
    records = tuple(records)
    merged = records[-1].merged(new) if records else None
    return (*records, new) if merged is None else (*records[:-1], merged)


def dumps(records: Iterable[FitRecord]) -> str:
    return json.dumps([{**dataclasses.asdict(r), "planned": r.planned.to_json()} for r in records])


def loads(text: str) -> tuple[FitRecord, ...]:
    def record(data: dict) -> FitRecord:
        data["unchecked"] = tuple(data["unchecked"])
        data["watchers"] = tuple(Watcher(**watcher) for watcher in data["watchers"])
        data["budgets"] = tuple(Budget(**budget) for budget in data["budgets"])
        data["planned"] = Ledger.from_json(data["planned"])
        return FitRecord(**data)

    return tuple(record(data) for data in json.loads(text))
