"""Releases between the steps of a run, on a schedule that is fixed before the first one."""

from __future__ import annotations

import dataclasses

from tfdp.accounting import checks
from tfdp.accounting.events import Event
from tfdp.accounting.ledger import Ledger
from tfdp.accounting.samplings import Sampling


@dataclasses.dataclass(frozen=True)
class Schedule:
    """One release of `event` under `sampling` after the first `first` steps, and one after every `every` steps from there.

    A release that is due comes right before a step, and only if that step is taken. So how many of them a run makes
    follows from the number of its steps: they bring no choice into the run that the steps do not.

    | steps taken | releases, for every=10, first=0 |
    |-------------|---------------------------------|
    | 0           | 0                               |
    | 1 to 10     | 1                               |
    | 11          | 2                               |
    """

    event: Event
    sampling: Sampling
    every: int
    first: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event) or not isinstance(self.sampling, Sampling):
            raise ValueError(
                f"a schedule is of an Event under a Sampling, such as Schedule(GaussianEvent(20.0), FullBatch(60000), 235), "
                f"not {self.event!r} under {self.sampling!r}"
            )
        every = checks.count("every", self.every, "write the number of steps between two releases", at_least=1)
        object.__setattr__(self, "every", every)
        object.__setattr__(self, "first", checks.count("first", self.first, "write the steps before the first release"))

    @property
    def kind(self) -> tuple[Event, Sampling]:
        """What tells its line of a ledger from others."""
        return self.event, self.sampling

    def releases(self, steps: int) -> int:
        """How many have been made when so many steps are taken."""
        return max(0, -(-(steps - self.first) // self.every))

    def recorded(self, ledger: Ledger, steps: int) -> Ledger:
        """`ledger` with the releases that belong to so many further steps."""
        releases = self.releases(steps)
        return ledger.record(self.event, self.sampling, releases) if releases else ledger

    def begun(self, steps: int, releases: int) -> Schedule:
        """What is left of the schedule once so many steps and releases were made."""
        return dataclasses.replace(self, first=max(0, self.first + releases * self.every - steps))

    def begins_with(self, steps: int, releases: int) -> bool:
        """Whether so many steps and releases are what a run on this schedule makes up to some moment."""
        return self.releases(steps) <= releases <= self.releases(steps + 1)
