"""The privacy statement of a release that was made at once: no steps, no lots, no ledger.

Claims, their status and their words are those of ``tfdp.report``.
"""

from __future__ import annotations

import dataclasses
import math

from tfdp.accounting import Relation, Status, Tradeoff
from tfdp.accounting.claims import MEMBERSHIP, Claim, in_short, section, strict_json
from tfdp.data import PerturbationStatement
from tfdp.erm.objective import ObjectivePerturbation
from tfdp.erm.output import OutputPerturbation
from tfdp.report import Statement
from tfdp.report.not_protected import Limit
from tfdp.report.wording import accusations, told_apart

_FORMAT = "tfdp.erm_statement"
_VERSION = 1

NEVER_PROTECTED = (
    Limit("training_metrics", "score and optimality_gap on the training records: they carry no noise."),
    Limit("searches", "Hyperparameter search and sibling fits on the same records: their epsilons add up."),
    Limit(
        "preprocessing",
        "Scaling, encoding or selection fitted on the records: only the clip to clip_norm is enforced here.",
    ),
    Limit("size", "The number of records, of features and of classes: they are public."),
    Limit("convergence", "How long the minimiser took."),
    Limit(
        "floating_point_noise", "Attacks on the last bits of floats (Mironov 2012), beyond the rounding of the weights."
    ),
)
CLASSES_OF_THE_LABELS = Limit(
    "classes", "Which classes there are: they were read from the labels. Give classes= if that is not public anyway."
)


@dataclasses.dataclass(frozen=True, repr=False)
class ConvexStatement:
    """Claims about one release, and what none of them covers. ``print`` it, or keep ``to_json()``.

    Attributes:
        claims: the main one first.
        delta: the one that the release was calibrated for.
        relation: which data sets are neighbours.
        records: how many there were.
        released: what, in words.
        not_protected: what no claim covers.
        tradeoff: what an attacker must get wrong, None where nothing is proven.
        missing_tails: what the noise's missing tails cost of delta at most.
    """

    claims: tuple[Claim, ...]
    delta: float
    relation: Relation
    records: int
    released: str
    not_protected: tuple[Limit, ...]
    tradeoff: Tradeoff | None
    missing_tails: float

    @property
    def best(self) -> Claim | None:
        """The smallest proven claim for a whole record's membership, under the release's own relation and at ``delta``."""
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

    def __str__(self) -> str:
        blocks = [
            ["Privacy statement", "================="],
            section("What was released", [f"Once: {self.released}."]),
            section("What is claimed", [*self._basis(), *map(_claim, self.claims)]),
            section("What it means to a person", [self._meaning()]),
            section("Not protected", [limit.text for limit in self.not_protected]),
        ]
        return "\n\n".join("\n".join(block) for block in blocks)

    def __repr__(self) -> str:
        return f"ConvexStatement({in_short(self.best or self.claims[0])})"

    def _basis(self) -> list[str]:
        share = self.delta * self.records
        found = [
            f"About {MEMBERSHIP}, against whoever sees the weights: {told_apart(self.relation)}.",
            f"delta = {self.delta:.3g} is {share:.2g} times 1 / (number of records), {self.records:,} records.",
        ]
        if share >= 1:
            found[-1] += " WARNING: that is too large. Give a smaller delta."
        return found

    def _meaning(self) -> str:
        if self.best is None:
            return "No number is given here: there is no proven claim."
        return accusations(self.tradeoff, self.missing_tails)

    def to_json(self) -> str:
        """The statement for machines. No record and no seed is in it."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "neighbours": self.relation,
            "records": self.records,
            "claims": [dataclasses.asdict(claim) for claim in self.claims],
            "released": self.released,
            "not_protected": [dataclasses.asdict(limit) for limit in self.not_protected],
        }
        return strict_json(content)


def statement_of(mechanism: ObjectivePerturbation | OutputPerturbation, seeded: bool) -> ConvexStatement:
    """Of one release by `mechanism`: proven if the noise is secret."""
    setting = mechanism.setting
    epsilon, mu, status, how, reasons = setting.epsilon, mechanism.gdp_mu, Status.PROVEN, mechanism.how(), ()
    if seeded:
        epsilon, mu, status, how = math.inf, None, Status.NONE, "no bound is known"
        reasons = ("noise_seed was given: whoever knows the seed can subtract the noise.",)
    claim = Claim(MEMBERSHIP, setting.relation, epsilon, setting.delta, mu, status, how, reasons)
    return ConvexStatement(
        claims=(claim,),
        delta=setting.delta,
        relation=setting.relation,
        records=setting.records,
        released=mechanism.described(),
        not_protected=NEVER_PROTECTED,
        tradeoff=mechanism.tradeoff(),
        missing_tails=setting.delta - setting.delta_left,
    )


def with_classes_of_the_labels(
    statement: ConvexStatement | Statement | PerturbationStatement,
) -> ConvexStatement | Statement | PerturbationStatement:
    """The same statement, which also says that classes are not protected: those of other rooms say it with each claim."""
    if isinstance(statement, ConvexStatement):
        limits = (CLASSES_OF_THE_LABELS, *statement.not_protected)
        return dataclasses.replace(statement, not_protected=limits)
    reason = f"Not protected: {CLASSES_OF_THE_LABELS.text}"
    claims = (dataclasses.replace(claim, reasons=(*claim.reasons, reason)) for claim in statement.claims)
    return dataclasses.replace(statement, claims=tuple(claims))


def _claim(claim: Claim) -> str:
    return " ".join([f"{in_short(claim)} ({claim.how}).", *claim.reasons])
