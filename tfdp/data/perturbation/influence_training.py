"""What algorithm 2 (Kang et al. 2020, data perturbation) gives, and what is claimed of it: nothing is proven."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp.accounting import Relation, Status
from tfdp.accounting.claims import MEMBERSHIP, RECORD, Claim, in_short
from tfdp.accounting.perturbation import RECORD_REASON, range_of_theorem_2
from tfdp.data.perturbation.influence_rounds import Rounds, Setting

_NONE = (
    "The model starts from weights trained on the records without noise, and which records get noise, and how much, is chosen by "
    "looking at them; the others are released and trained on as they are"
)
OTHER_STEPS = (
    "Steps were those of fit, on batches of records as perturbed by then, and not on the records that were drawn in the round, "
    "which are those that the proof is about"
)


@dataclasses.dataclass(frozen=True)
class PerturbedTraining:
    """What algorithm 2 returns; its theta_priv is in the model.

    Attributes:
        x, y: D_priv: each record as it was when it was last drawn, or as it is if that was without noise, or never.
        noised: which records of x carry noise.
        noisy_steps, steps: how many records were drawn for a step and given noise, and how many were drawn.
        claims: nothing is proven; the paper's claim, with the reason.
    """

    x: np.ndarray
    y: np.ndarray
    noised: np.ndarray
    noisy_steps: int
    steps: int
    claims: tuple[Claim, ...]

    def __str__(self) -> str:
        said = [
            f"{claim.protects}: {in_short(claim)} ({claim.how}). {'. '.join(claim.reasons)}." for claim in self.claims
        ]
        return "\n".join(
            [
                f"Noise was given to {self.noisy_steps:,} of {self.steps:,} records that were drawn, one for each step.",
                *said,
            ]
        )


def training_of(rounds: Rounds, setting: Setting, *reasons: str) -> PerturbedTraining:
    """As far as the rounds have come; with reasons against the paper's claim beside those that it always has."""
    records = rounds.records
    size = len(records.x)
    outside = range_of_theorem_2(setting.epsilon, rounds.steps, size)
    claims = _claims(setting, rounds.steps, size, (RECORD_REASON, outside, *reasons))
    return PerturbedTraining(records.released, records.y, records.noised.copy(), rounds.noisy, rounds.drawn, claims)


def _claims(setting: Setting, steps: int, size: int, reasons: tuple[str, ...]) -> tuple[Claim, ...]:
    how = f"Kang et al. 2020, data perturbation, theorem 2, eq. 15: {steps:,} steps on {size:,} records, c = {setting.constant:g}"
    relation, delta = Relation.REPLACE_ONE, setting.delta
    return (
        Claim(MEMBERSHIP, relation, math.inf, delta, None, Status.NONE, "no bound is known", (_NONE,)),
        Claim(RECORD, relation, math.inf, delta, None, Status.NONE, "no bound is known", (_NONE,)),
        Claim(MEMBERSHIP, relation, setting.epsilon, delta, None, Status.AS_PUBLISHED, how, reasons),
    )
