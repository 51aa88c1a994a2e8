"""The rounds of algorithm 2 (Kang et al. 2020, data perturbation), without its gradient steps: who is drawn, who gets how much noise."""

from __future__ import annotations

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf

from tfdp.accounting import checks
from tfdp.accounting.perturbation import record_noise
from tfdp.data.perturbation.influence import Influence
from tfdp.data.perturbation.records_so_far import RecordsSoFar

RULES = ("normalized", "literal")


@dataclasses.dataclass(frozen=True)
class Setting:
    """The arguments of `InfluencePerturbation`, checked."""

    epsilon: float
    delta: float
    lipschitz: float
    rule: str
    constant: float
    local_steps: int
    damping: float

    def __post_init__(self):
        if not checks.is_one_of(self.rule, RULES):
            raise ValueError(f"rule must be one of {', '.join(map(repr, RULES))}, not {self.rule!r}.")
        self.noise(1, 1)
        checks.count("local_steps", self.local_steps, "write how many records a round takes, such as 10", 1)
        checks.non_negative("damping", self.damping, "write what is added to the Hessian's diagonal, such as 0.01")

    def noise(self, steps: int, size: int) -> float:
        """sigma_t of eq. 15 where w_t is 1."""
        return record_noise(self.epsilon, self.delta, steps, size, self.lipschitz, 1.0, self.constant)

    def large(self, contributions: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Which contributions are beyond line 9's bounds."""
        moved = contributions + weights
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(moved == weights, 1.0, moved / weights)  # 0 / 0 is unchanged
        norms = np.linalg.norm(ratios, axis=1)
        if self.rule == "normalized":
            norms = norms / math.sqrt(len(weights))
        with np.errstate(divide="ignore"):
            return ~(np.abs(np.log(norms)) <= self.epsilon)  # e^epsilon may be beyond all floats; NaN is large


class Rounds:
    """One run of T steps from the weights the model has, the pretrained theta~.

    Attributes:
        steps: T.
        drawn, noisy: how many records were drawn so far, and how many of the draws were given noise: not those whose w_t is 0.
    """

    def __init__(self, model: keras.Model, records: RecordsSoFar, setting: Setting, steps: int):
        self.steps, self.drawn, self.noisy = steps, 0, 0
        self.records, self._setting = records, setting
        self._noise = setting.noise(steps, len(records.x))
        self._influence = Influence(model, records.x, records.y, setting.damping)
        self.derivatives = self._influence.derivatives
        self._mixed_norm = tf.function(self.derivatives.mixed_norm, reduce_retracing=True)
        self._rng = np.random.default_rng()

    def draw(self, count: int) -> list[tuple[int, bool]]:
        """Lines 7 to 9: numbers of records, and which of them get noise, at the weights of now."""
        weights = self.derivatives.read()
        if not np.isfinite(weights).all():
            raise ValueError("The weights are no longer finite. Train with a smaller learning rate.")
        drawn = self._rng.integers(len(self.records.x), size=count)
        contributions = self._influence.contributions(self.records.x[drawn], self.records.y[drawn])
        large = self._setting.large(contributions, weights)
        self.drawn += count
        return list(zip(drawn.tolist(), large.tolist(), strict=True))

    def perturb(self, number: int, large: bool) -> np.ndarray | None:
        """Line 12 and line 18: the record ``[1, ...]`` to train on, which from now on stands in D_priv.

        None where no noise on x reaches the gradient (w_t = 0, so that sigma_t is infinite): then there is no step on it.
        """
        x = self.records.x[number : number + 1]
        norm = float(self._mixed_norm(x, self.records.y[number : number + 1])) if large else 0.0
        if norm:
            self.noisy += 1
            x = x + (self._noise / math.sqrt(norm) * self._rng.normal(size=x.shape)).astype(np.float32)
        self.records.show(number, x[0], noised=norm > 0)
        return None if large and not norm else x
