"""What was released so far, and what is planned, as plain data."""

import dataclasses

from tfdp.accounting import Budget, Event, FitRecord, Ledger, NotPrivateEvent, Poisson, Sampling, Schedule, Watcher
from tfdp.accounting.fit_records import with_record


@dataclasses.dataclass(frozen=True)
class Past:
    """What was released before: the ledger, and the circumstances of the fits that wrote it."""

    ledger: Ledger = dataclasses.field(default_factory=Ledger)
    fits: tuple[FitRecord, ...] = ()

    def and_then(self, later: "Past") -> "Past":
        """Releases of both."""
        fits = self.fits
        for record in later.fits:
            fits = with_record(fits, record)
        return Past(Ledger.combined(self.ledger, later.ledger), fits)

    def joined(self, other: "Past") -> "Past":
        """Both are of one line of descent, such as a run and its own checkpoint: what is in both counts once."""
        ledger = Ledger.covering(self.ledger, other.ledger)
        for past in (self, other):
            if past.ledger.steps == ledger.steps:
                return Past(ledger, past.fits)
        return Past(ledger, self.fits + other.fits)

    def with_unknown(self, event: Event, steps: int) -> "Past":
        """Releases that no fit of ours made."""
        return Past(self.ledger.record(event, Poisson(1.0, None), steps), self.fits)


@dataclasses.dataclass(frozen=True)
class OpenLine:
    """The fit that is running: what each of its steps releases, and what was planned.

    With a ``schedule``, given as from this fit's first step on, there are releases between the steps. They are a line of their
    own in the ledger.
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
        )
        return Past(self._recorded(before.ledger, steps, scheduled), with_record(before.fits, record))

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
