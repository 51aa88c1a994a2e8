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

    `metric` is what it watches ("loss", "val_accuracy"), None if that can't be known.
    """

    callback: str
    metric: str | None
    action: Action

    @property
    def saw_training_records(self) -> bool:
        """Metrics of a validation set are computed from released weights and other records."""
        return self.metric is None or not self.metric.startswith("val_")


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
        not_taken: the steps that were planned and not taken because training ended before.
    """

    steps: int
    weights: int
    fits: int = 1
    unchecked: tuple[str, ...] = ()
    watchers: tuple[Watcher, ...] = ()
    budgets: tuple[Budget, ...] = ()
    not_taken: Ledger = dataclasses.field(default_factory=Ledger)

    def merged(self, other: FitRecord) -> FitRecord | None:
        """Both as one record; None if their circumstances differ."""
        alike = ("weights", "unchecked", "watchers", "budgets")
        if any(getattr(self, name) != getattr(other, name) for name in alike):
            return None
        return dataclasses.replace(
            self,
            steps=self.steps + other.steps,
            fits=self.fits + other.fits,
            not_taken=Ledger.combined(self.not_taken, other.not_taken),
        )


def with_record(records: Iterable[FitRecord], new: FitRecord) -> tuple[FitRecord, ...]:
    """The records with a new one at the end, merged into the last one where the two are alike."""
    records = tuple(records)
    merged = records[-1].merged(new) if records else None
    return (*records, new) if merged is None else (*records[:-1], merged)


def dumps(records: Iterable[FitRecord]) -> str:
    return json.dumps([{**dataclasses.asdict(r), "not_taken": r.not_taken.to_json()} for r in records])


def loads(text: str) -> tuple[FitRecord, ...]:
    def record(data: dict) -> FitRecord:
        data["unchecked"] = tuple(data["unchecked"])
        data["watchers"] = tuple(Watcher(**watcher) for watcher in data["watchers"])
        data["budgets"] = tuple(Budget(**budget) for budget in data["budgets"])
        data["not_taken"] = Ledger.from_json(data["not_taken"])
        return FitRecord(**data)

    return tuple(record(data) for data in json.loads(text))
