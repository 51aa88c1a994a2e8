"""The privacy statement of a trained model."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json

import keras

from tfdp.accounting import Event, FitRecord, Ledger, Relation, Sampling, Status, checks
from tfdp.accounting.claims import MEMBERSHIP, Claim, in_short, strict_json
from tfdp.optimizers import PrivateOptimizer
from tfdp.report import wording
from tfdp.report.claims import claims_of
from tfdp.report.facts import Facts, facts_of
from tfdp.report.not_protected import Limit, limits_of

_FORMAT = "tfdp.privacy_statement"
_VERSION = 1


@dataclasses.dataclass(frozen=True, repr=False)
class Statement:
    """Claims about one training run, and what none of them covers. ``print`` it, or keep ``to_json()``.

    Attributes:
        claims: the main one first.
        delta: the one that the claims were asked for; None if it is not known and nothing depends on it.
        facts: what the claims were made from.
    """

    claims: tuple[Claim, ...]
    delta: float | None
    facts: Facts

    @property
    def relation(self) -> Relation:
        """The run's own neighbouring relation."""
        return self.facts.ledger.relation

    @property
    def best(self) -> Claim | None:
        """The smallest proven claim for a whole record's membership, under the run's own relation and at ``delta``."""
        proven = [
            claim
            for claim in self.claims
            if claim.status is Status.PROVEN
            and (claim.protects, claim.neighbours, claim.delta) == (MEMBERSHIP, self.relation, self.delta)
        ]
        return min(proven, key=lambda claim: claim.epsilon, default=None)

    @property
    def epsilon(self) -> float | None:
        """Of the best claim; None if nothing is proven."""
        return None if self.best is None else self.best.epsilon

    @property
    def meaning(self) -> str:
        """What an attacker can find out about a person, in one sentence or two."""
        return wording.meaning(self.facts, self.claims, self.best)

    @property
    def not_protected(self) -> tuple[Limit, ...]:
        return limits_of(self.facts)

    def __str__(self) -> str:
        return wording.text(self.facts, self.claims, self.best, self.meaning, self.delta, self.not_protected)

    def __repr__(self) -> str:
        return f"Statement({in_short(self.best or self.claims[0])})"

    def to_json(self) -> str:
        """The statement as strict JSON, with infinities as the string "infinity". No record and no seed is in it."""
        ledger = self.facts.ledger
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "claims": [dataclasses.asdict(claim) for claim in self.claims],
            "meaning": self.meaning,
            "released": _released(ledger),
            "ledger": json.loads(ledger.to_json()),
            "fits": [_fit(record) for record in self.facts.fits],
            "not_protected": [dataclasses.asdict(limit) for limit in self.not_protected],
            "versions": _versions(),
        }
        return strict_json(content)


def privacy_statement(
    model: keras.Model | PrivateOptimizer, delta: float | None = None, settings_fixed_beforehand: bool = False
) -> Statement:
    """What the training of a model reveals about a record, and what is not covered.

    Example:

    >>> model.fit(x, y, batch_size=256, epochs=15)
    >>> statement = tfdp.privacy_statement(model)
    >>> print(statement)
    >>> statement.epsilon  # the smallest proven one, None if nothing is proven

    Args:
        model: the trained model, or its private optimizer.
        delta: the probability with which the claim may fail. By default the one the optimizer was given, or the largest
            power of ten below 1 / (number of records).
        settings_fixed_beforehand: your word that all settings of several fits (noise, lot size, steps) were fixed
            beforehand, or chosen without looking at the records or at results. The statement then says so.

    Raises:
        TypeError: `model` is neither.
        ValueError: a delta outside of (0, 1), or none where the number of records is not known.
    """
    checks.true_or_false("settings_fixed_beforehand", settings_fixed_beforehand)
    return statement_of(facts_of(model), delta, settings_fixed_beforehand)


def statement_of(facts: Facts, delta: float | None, settings_fixed_beforehand: bool) -> Statement:
    delta = _delta(facts, delta)
    return Statement(claims_of(facts, delta, settings_fixed_beforehand), delta, facts)


def _delta(facts: Facts, given: float | None) -> float | None:
    if given is not None:
        try:
            return checks.delta(given)
        except ValueError:
            raise ValueError(
                f"delta lies between 0 and 1, well below 1 / (number of records), not {given!r}."
            ) from None
    if facts.delta is not None:
        return facts.delta
    budgets = [budget.delta for record in facts.fits for budget in record.budgets]
    if budgets:
        return min(budgets)
    if facts.size is not None:
        return float(
            f"1e-{len(str(facts.size))}"
        )  # the smallest power of ten above n has as many zeros as n has digits
    if facts.not_private or not facts.ledger.steps:
        return None
    raise ValueError(
        "The ledger does not say how many records there were: give delta=, well below 1 / (number of records)."
    )


def _released(ledger: Ledger) -> list[dict]:
    return [
        {
            "steps": line.steps,
            "passes": line.passes,
            "event": _typed(line.event),
            "sampling": _typed(line.sampling),
            "neighbours": line.sampling.relation,
        }
        for line in ledger
    ]


def _fit(record: FitRecord) -> dict:
    found = {**dataclasses.asdict(record), "planned": _released(record.planned)}
    if record.schedule is not None:
        found["schedule"] |= {"event": _typed(record.schedule.event), "sampling": _typed(record.schedule.sampling)}
    return found


def _typed(described: Event | Sampling) -> dict:
    return {"type": type(described).__name__, **dataclasses.asdict(described)}


def _versions() -> dict[str, str]:
    names = {"keras": "keras", "tensorflow": "tensorflow", "dp_accounting": "dp-accounting"}
    versions = {key: importlib.metadata.version(name) for key, name in names.items()}
    return {"tfdp": importlib.import_module("tfdp").__version__, **versions}
