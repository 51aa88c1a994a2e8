"""What an accountant answers: never a bare epsilon, always with what it holds for and how sure it is."""

from __future__ import annotations

import dataclasses
import enum

from tfdp.accounting.samplings import Relation


class Status(enum.StrEnum):
    """How sure a claim is.

    PROVEN: an upper bound that follows from what was run.
    APPROXIMATE: a limit or an estimate; the truth may be worse.
    AS_PUBLISHED: a paper's claim that does not follow from what was run.
    NONE: no claim.
    """

    PROVEN = "proven"
    APPROXIMATE = "approximate"
    AS_PUBLISHED = "as published"
    NONE = "none"


@dataclasses.dataclass(frozen=True)
class Report:
    """(epsilon, delta) of a ledger under `relation`, found by `accountant`; `how` says by which method
    exactly.

    `interval` is the grid of the privacy loss ("pld" only), `order` the best Renyi order ("rdp", "moments"),
    `mu` the parameter of Gaussian differential privacy ("gdp").
    """

    accountant: str
    epsilon: float
    delta: float
    relation: Relation
    status: Status
    how: str
    interval: float | None = None
    order: float | None = None
    mu: float | None = None

    def __str__(self) -> str:
        return (
            f"epsilon = {self.epsilon:.4g} at delta = {self.delta:.3g} ({self.status}; {self.relation} "
            "neighbours; "
            f"{self.accountant}: {self.how})"
        )
