"""The ledger: what was released from one data set, step by step, as plain data.

Reading a ledger never changes it, and nothing is ever taken out of one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

from tfdp.accounting import checks
from tfdp.accounting.events import Event, GaussianEvent
from tfdp.accounting.samplings import FullBatch, Poisson, Relation, Sampling, Shuffled

_STEPS_ADVICE = "write how many releases were made"
# What missing tails cost is derived for these (`finite_support_delta`), and for no sampling derived of them.
_TAILS_ARE_DERIVED = (Poisson, FullBatch, Shuffled)


@dataclasses.dataclass(frozen=True)
class Line:
    """`steps` releases of the same kind, from records chosen in the same way.

    `passes`, for `Shuffled` only, is the number of passes over the data that those steps touched, a partial
    one counted whole. Without it the steps are taken to have run in one go from the start of a pass.
    """

    event: Event
    sampling: Sampling
    steps: int
    passes: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise ValueError(f"event must be an Event such as GaussianEvent(1.1), not {self.event!r}")
        if not isinstance(self.sampling, Sampling):
            raise ValueError(f"sampling must be a Sampling such as Poisson(256 / 60000, 60000), not {self.sampling!r}")
        object.__setattr__(self, "steps", checks.count("steps", self.steps, _STEPS_ADVICE))
        object.__setattr__(self, "passes", self._counted_passes())

    def _counted_passes(self) -> int | None:
        if not isinstance(self.sampling, Shuffled):
            if self.passes is not None:
                raise ValueError(
                    f"passes={self.passes!r} goes with Shuffled sampling only: leave it out for "
                    f"{type(self.sampling).__name__}"
                )
            return None
        fewest = -(-self.steps // self.sampling.batches_per_pass)
        if self.passes is None:
            return fewest
        return checks.count(
            "passes",
            self.passes,
            f"{self.steps} steps of {self.sampling.batches_per_pass} batches a pass touch at least {fewest} passes",
            at_least=fewest,
        )

    def missing_tails_delta(self, weights: int) -> float | None:
        """What it adds to delta that the noise of the line's releases has an end; None if that is not known."""
        if not self.steps:
            return 0.0
        if type(self.sampling) not in _TAILS_ARE_DERIVED:
            return None
        price = self.event.missing_tails_delta(weights, self.steps)
        return price if price is not None and 0 <= price <= 1 else None


@dataclasses.dataclass(frozen=True)
class Ledger:
    """An immutable list of lines; all of them are about the same records.

    Example:
        >>> ledger = Ledger.poisson(sampling_rate=256 / 60000, noise_multiplier=1.1, steps=14062)
        >>> ledger.steps
        14062
    """

    lines: tuple[Line, ...] = ()

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        lines = tuple(lines)
        for line in lines:
            if not isinstance(line, Line):
                raise ValueError(f"a ledger holds Line(event, sampling, steps), not {line!r}")
        object.__setattr__(self, "lines", lines)

    @classmethod
    def poisson(cls, *, sampling_rate: float, noise_multiplier: float, steps: int) -> Ledger:
        """The plain case: `steps` Gaussian releases from Poisson lots."""
        return cls((Line(GaussianEvent(noise_multiplier), Poisson(sampling_rate), steps),))

    @classmethod
    def combined(cls, *ledgers: Ledger) -> Ledger:
        """Everything that all of `ledgers` released from the same records: forks, seeds, siblings of a
        sweep."""
        total = cls()
        for ledger in ledgers:
            if not isinstance(ledger, Ledger):
                raise ValueError(f"Ledger.combined takes ledgers, not {ledger!r}")
            for line in ledger:
                total = total.record(line.event, line.sampling, line.steps, line.passes)
        return total

    @classmethod
    def covering(cls, *ledgers: Ledger) -> Ledger:
        """The least ledger that holds each of `ledgers`: of every kind of step as many as the one with the most.

        For ledgers of one line of descent, such as a run and its own earlier checkpoint, whose steps are not to be
        counted twice.
        """
        lines: dict[tuple, Line] = {}
        for line in itertools.chain(*ledgers):
            kind = (type(line.event), line.event, line.sampling)
            old = lines.setdefault(kind, line)
            passes = None if line.passes is None else max(old.passes, line.passes)
            lines[kind] = Line(line.event, line.sampling, max(old.steps, line.steps), passes)
        return cls(lines.values())

    def record(self, event: Event, sampling: Sampling, steps: int, passes: int | None = None) -> Ledger:
        """A ledger with these releases added: to the line of an equal event and sampling, else as a new
        line."""
        new = Line(event, sampling, steps, passes)
        for position, old in enumerate(self.lines):
            # The types are compared too: an event of a derived class may compare equal to its parent's.
            if type(old.event) is type(event) and old.event == event and old.sampling == sampling:
                merged_passes = None if new.passes is None else old.passes + new.passes
                merged = Line(event, sampling, old.steps + new.steps, merged_passes)
                return Ledger((*self.lines[:position], merged, *self.lines[position + 1 :]))
        return Ledger((*self.lines, new))

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def steps(self) -> int:
        """How many releases were made in all."""
        return sum(line.steps for line in self.lines)

    @property
    def relation(self) -> Relation:
        """The neighbouring relation for which the accountants' numbers hold.

        One relation in all lines: that one. Different ones: ZERO_OUT, which each of them implies at its own
        price. With a public size the rate does not depend on the records, so a record that contributes zero
        has the same effect as an absent one; and an empty record is one of those that REPLACE_ONE may put in
        a record's place.
        """
        found = {line.sampling.relation for line in self.lines if line.steps}
        return found.pop() if len(found) == 1 else Relation.ZERO_OUT

    def to_json(self) -> str:
        """The ledger as strict JSON, from which `from_json` makes an equal ledger."""
        from tfdp.accounting import ledger_json

        return ledger_json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """The ledger that `to_json` wrote. Anything it does not understand is a ValueError, never skipped."""
        from tfdp.accounting import ledger_json

        return ledger_json.loads(text)
