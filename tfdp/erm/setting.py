"""What is public of a run of this room, and the share of delta that pays for the noise's missing tails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tfdp.accounting import Relation
from tfdp.accounting.budgets import TAILS_SHARE
from tfdp.accounting.largest_fitting import largest_fitting


@dataclasses.dataclass(frozen=True)
class Setting:
    """Everything noise is made of: nothing here depends on any record's content.

    Attributes:
        records: how many there are, n.
        fits: one for two classes, else one a class.
        weights: of one fit, the intercept's included.
        radius: no record's features are longer.
        relation: which data sets are neighbours.
        epsilon, delta: what the release may cost.
        penalty: lambda in ``1/n sum of losses + lambda / 2 ||w||^2``.
        tolerance: the gradient's norm at which the minimiser stops, in units of the radius.
    """

    records: int
    fits: int
    weights: int
    radius: float
    relation: Relation
    epsilon: float
    delta: float
    penalty: float
    tolerance: float

    @property
    def gradient_norm(self) -> float:
        """At which the minimiser stops: of the sum over records, not of the mean."""
        return self.tolerance * self.radius

    @property
    def gradients_moved(self) -> int:
        """How many records' gradients differ between neighbours: the one that is left out, or the old and the new."""
        return 2 if self.relation is Relation.REPLACE_ONE else 1

    @property
    def delta_left(self) -> float:
        """Without the share that pays for missing tails."""
        return self.delta * (1 - TAILS_SHARE)

    def largest_mu(self, cost: Callable[[float], float], tails: Callable[[float], float]) -> float:
        """The largest mu with ``cost(mu) <= delta_left`` and ``tails(mu)`` within the share of delta set aside for it.

        With a large epsilon the second one binds: the noise is then that of a smaller epsilon, about 24 at a delta of 1e-5.
        """
        range_of_mu = {"least": 1e-9, "most": 50.0, "close_enough": 1e-9}
        mu = largest_fitting(cost, self.delta_left, 1.0, **range_of_mu)
        if mu and tails(mu) > TAILS_SHARE * self.delta:
            mu = largest_fitting(tails, TAILS_SHARE * self.delta, 1.0, **range_of_mu)
        if not mu:
            raise ValueError(
                f"epsilon={self.epsilon:g} at delta={self.delta:g} is beyond what noise made of 75 random bits can prove. Give a larger "
                "delta: it is usually a bit below 1 / (number of records)."
            )
        return mu
