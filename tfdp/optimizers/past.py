"""What was released so far, and what is planned, as plain data."""

import dataclasses
from collections.abc import Iterable

from tfdp.accounting import Budget, Event, FitRecord, Ledger, NotPrivateEvent, Poisson, Sampling, Schedule, Watcher
from tfdp.accounting.fit_records import with_record

Origins = tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class Past:
    """What was released before: the ledger, and the circumstances of the fits that wrote it.

    Attributes:
        ledger: all of it.
        fits: the circumstances.
        origins: the calls of fit that made these releases, each by a random name, and how many it made. Equal lines
            don't say whether two files come from one run or from two; names do.
    """

    ledger: Ledger = dataclasses.field(default_factory=Ledger)
    fits: tuple[FitRecord, ...] = ()
    origins: Origins = ()

    def and_then(self, later: "Past") -> "Past":
        """Releases of both."""
        fits: tuple[FitRecord, ...] = ()
        for past, other in ((self, later), (later, self)):
            for record in past.fits:
                planned = Ledger.combined(record.planned, other.ledger)
                fits = with_record(fits, dataclasses.replace(record, planned=planned))
        return Past(Ledger.combined(self.ledger, later.ledger), fits, _most(self.origins, later.origins))

    def joined(self, other: "Past") -> "Past":
        """What this one and a file's hold. A run and its own checkpoint: what is in both counts once.

        Of two runs, or two branches of one, the releases add up, for none of the two holds the other's. (What two branches
        have in common then counts twice: lines do not say which of their steps it is.)
        """
        origins = _most(self.origins, other.origins)
        held = [past for past in (self, other) if dict(past.origins) == dict(origins)]
        if not held:
            return dataclasses.replace(self.and_then(other), origins=origins)
        ledger = Ledger.covering(self.ledger, other.ledger)
        for past in held:
            if past.ledger.steps == ledger.steps:
                return Past(ledger, past.fits, origins)
        return Past(ledger, self.fits + other.fits, origins)

    def with_unknown(self, event: Event, steps: int) -> "Past":
        """Releases that no fit of ours made."""
        return dataclasses.replace(self, ledger=self.ledger.record(event, Poisson(1.0, None), steps))


def _most(*origins: Iterable[tuple[str, int]]) -> Origins:
    """Of every name the largest number."""
    found: dict[str, int] = {}
    for name, releases in (pair for pairs in origins for pair in pairs):
        found[name] = max(found.get(name, 0), releases)
    return tuple(found.items())


@dataclasses.dataclass(frozen=True)
class OpenLine:
    """The fit that is running: what each of its steps releases, and what was planned.

    With a ``schedule``, given as from this fit's first step on, there are releases between the steps. They are a line of their
    own in the ledger. ``name`` is a random one (``Past.origins``).
    """

    event: Event
    sampling: Sampling
    planned: int
    weights: int
    steps_per_pass: int | None = None
    unchecked: tuple[str, ...] = ()
    watchers: tuple[Watcher, ...] = ()
    budgets: tuple[Budget, ...] = ()
    schedule: Schedule | None = None
    name: str = ""
    trained_before: int = 0

    def after(self, before: Past, steps: int, scheduled: int) -> Past:
        """What was released once so many steps were taken and scheduled releases made; the rest of the plan goes into the
        record."""
        if steps == scheduled == 0:
            return before
        planned = max(self.planned, steps)
        at_end = 0 if self.schedule is None else max(self.schedule.releases(planned), scheduled)
        record = FitRecord(
            steps + scheduled,
            self.weights,
            unchecked=self.unchecked,
            watchers=self.watchers,
            budgets=self.budgets,
            planned=self._recorded(before.ledger, planned, at_end),
            schedule=self.schedule and dataclasses.replace(self.schedule, first=0),
            scheduled=scheduled,
            trained_before=self.trained_before,
        )
        return Past(
            self._recorded(before.ledger, steps, scheduled),
            with_record(before.fits, record),
            _most(before.origins, [(self.name, steps + scheduled)]),
        )

    def _recorded(self, ledger: Ledger, steps: int, scheduled: int) -> Ledger:
        if scheduled:
            ledger = ledger.record(self.schedule.event, self.schedule.sampling, scheduled)
        passes = None if self.steps_per_pass is None else -(-steps // self.steps_per_pass)
        return ledger.record(self.event, self.sampling, steps, passes) if steps else ledger


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The noise that was found for a target, and the counts of releases in the ledger between which it was meant."""

    noise_multiplier: float
    began_at: int
    last_step: int
    full_gradient_noise_multiplier: float | None = None


def unknown() -> Event:
    return NotPrivateEvent("steps that no line of the ledger describes")
