"""Directional noise as Xiang et al. 2021 publish it (algorithm 1): shaped noise on gradients that are clipped to a ball.

What the paper claims of it does not follow (docs/directional.md). It is here to be compared with.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfdp.accounting import Budget, Event, Ledger, Poisson, PublishedEvent, Sampling
from tfdp.accounting.published import published_noise_multiplier
from tfdp.gradients import Ellipsoid, LotGradients
from tfdp.mechanisms.direction import (
    FULL_GRADIENT,
    ONES,
    Direction,
    checked_direction,
    loaded,
    spread_over,
)
from tfdp.mechanisms.gaussian import GaussianMechanism, State
from tfdp.mechanisms.published_direction import PublishedDirection
from tfdp.mechanisms.ranges import check_stddev, number

IMPORTANCE = "importance"
_ROUNDING = 1 - 2.0**-15  # float32 sums over all coordinates err by less

_OF_SAMPLING = (
    "The paper accounts for sampling at a rate q by taking epsilon / q and delta / q, but q turns epsilon / q into "
    "ln(1 + q (exp(epsilon / q) - 1)), which is more than epsilon."
)
_OF_THE_WORST_CASE = (
    "The paper bounds the privacy loss at one difference of two gradients (eq. 13), but a difference along the coordinate with the "
    "least noise loses more; nor does sampling at a rate q turn epsilon / q into epsilon."
)
_OF_W = (
    "The noise of each coordinate is chosen by looking at the records (by w), so that no bound on the least of it is known "
    "beforehand but sigma_floor, where it is given; and w, a clipped mean, can move by twice what the paper counts."
)


def published_scales(importances: Sequence[tf.Tensor], clip: float, tau: float) -> list[tf.Tensor]:
    """sigma of each coordinate: equations 11 to 13 of Xiang et al. 2021 in closed form.

    (11) sigma_i = (2 lambda Delta_i^2 / |w_i|)^(1/3) at (13) Delta_i = clip w_i / ||w|| is proportional to |w_i|^(1/3), and
    lambda (12) is such that sum Delta_i^2 / sigma_i^2 = tau. With u = w / ||w||:

        sigma_i = clip / sqrt(tau) * |u_i|^(1/3) * sqrt(sum_j |u_j|^(4/3)).

    Where w is 0, so is sigma: there is no noise.
    """
    sizes = [tf.abs(w) for w in importances]
    largest = tf.reduce_max(tf.stack([tf.reduce_max(w) for w in sizes]))
    sizes = [w / largest for w in sizes]  # squares stay within range
    norm = tf.sqrt(_sum([tf.square(w) for w in sizes]))
    roots = [tf.pow(w / norm, 1 / 3) for w in sizes]
    factor = clip / tau**0.5 * tf.sqrt(_sum([root**4 for root in roots]))
    return [factor * root for root in roots]


@keras.saving.register_keras_serializable("tfdp")
class PublishedMechanism(GaussianMechanism):
    """Algorithm 1 of Xiang et al. 2021 on the sum of a lot: clip to a ball, then noise of another shape.

    Examples are clipped to ``||g|| <= l2_norm_clip``. To their sum N(0, diag(sigma^2)) is added, with sigma of
    ``published_scales`` for importances w and the tau that the paper finds for its target and the plan of ``fit``
    (``tfdp.accounting.published``). The sum is divided by the expected lot size. w is a noised full gradient, anew before
    each step (``PublishedDirection``), if it is not fixed.

    Formal guarantee: let c be the least sigma_i in units of ``l2_norm_clip``. For two neighbouring lots sums differ by at most
    ``l2_norm_clip`` in l2 norm, so a step is at worst the Gaussian mechanism with noise multiplier c, whatever the direction in
    which they differ. All that a claim can be proven from is a c that was known before the records were looked at: that of
    w = 1, that of a w that is public, or ``sigma_floor``. The event holds it beside what the paper claims.

    Args:
        l2_norm_clip: alpha, the largest norm of an example's contribution.
        noise_multiplier: ``1 / sqrt(tau)``, the noise that all coordinates have with w = 1, in units of ``l2_norm_clip``. It is
            found in ``fit``; leave it out.
        target_epsilon, delta: what the paper claims of the planned steps together.
        direction: w: "full_gradient", "ones", a list with an array of positive numbers for each trainable weight, or a function that is given such
            a weight and returns one. Arrays and functions are public knowledge, not computed from the records.
        direction_budget: with "full_gradient": the share of epsilon and delta that the paper gives to w.
        direction_noise_multiplier: with "full_gradient": the noise of w, found in ``fit``; leave it out.
        sigma_floor: in units of ``l2_norm_clip``: no coordinate gets less noise.
    """

    has_own_accounting = True
    calibrated = ("noise_multiplier", "direction_noise_multiplier")

    def __init__(
        self,
        l2_norm_clip: float,
        noise_multiplier: float | None = None,
        *,
        target_epsilon: float,
        delta: float,
        direction: Direction = FULL_GRADIENT,
        direction_budget: float = 1 / 8,
        direction_noise_multiplier: float | None = None,
        sigma_floor: float | None = None,
    ):
        super().__init__(l2_norm_clip, noise_multiplier)
        target = Budget(target_epsilon, delta)
        self.target_epsilon, self.delta = target.target_epsilon, target.delta
        self.direction = checked_direction(direction, (FULL_GRADIENT, ONES), where=" with as_published=True")
        self.full_gradient = self._full_gradient(direction_budget, direction_noise_multiplier)
        self._importances: list[np.ndarray] | None = None  # public ones, when the weights are known
        self.sigma_floor = None if sigma_floor is None else number("sigma_floor", sigma_floor, positive=True)
        check_stddev("sigma_floor", self.sigma_floor or 0.0, self.l2_norm_clip)

    def _full_gradient(self, share: float, noise_multiplier: float | None) -> PublishedDirection | None:
        if self.direction == FULL_GRADIENT:
            if not 0 < number("direction_budget", share, positive=True) < 1:
                raise ValueError(f"direction_budget is a share of target_epsilon: between 0 and 1, not {share!r}.")
            return PublishedDirection(self.l2_norm_clip, noise_multiplier, share)
        if share != 1 / 8:
            raise ValueError(
                f"direction_budget= goes with direction={FULL_GRADIENT!r}: no other costs anything. Leave it out."
            )
        return None

    def check_target(self, target_epsilon: float | None, delta: float | None, accountant: str) -> None:
        own = (self.target_epsilon, self.delta, "pld")
        if (target_epsilon, delta, accountant) != own:
            raise ValueError(
                f"as_published finds its noise by the paper's own formula: give the optimizer target_epsilon={own[0]:g} and "
                f"delta={own[1]:g} like the mechanism, and no noise_multiplier and no accountant."
            )

    def calibrate(self, budget: Budget, sampling: Sampling, steps: int, spent: Ledger) -> None:
        """The paper knows of no other releases: what was spent before has no part in its formula."""
        if not isinstance(sampling, Poisson):
            raise ValueError(
                f"as_published needs lots of which each record is a member with the same probability, not {type(sampling).__name__} "
                "sampling: the paper's formula divides by it. Give fit arrays, or tfdp.data.PoissonBatches."
            )
        share = self._share_of_steps
        epsilon, delta = share * self.target_epsilon, share * self.delta
        found = published_noise_multiplier(epsilon, delta, sampling.sampling_rate, steps)
        if self.direction == ONES:  # then it is the noise of every coordinate
            found = max(found, self.sigma_floor or 0.0)
        self.noise_multiplier = found

    def event(self, state: State | None = None) -> Event:
        if self.direction == FULL_GRADIENT:
            return self._claimed(_OF_W, self.sigma_floor)
        reason = _OF_SAMPLING if self.direction == ONES else _OF_THE_WORST_CASE
        return self._claimed(reason, self._least_noise(state or {}))

    def _claimed(self, reason: str, proven: float | None) -> PublishedEvent:
        return PublishedEvent(
            self.target_epsilon, self.delta, reason, proven, self.noise_multiplier, self._share_of_steps
        )

    @property
    def _share_of_steps(self) -> float:
        return 1.0 if self.full_gradient is None else 1 - self.full_gradient.share

    def _least_noise(self, state: State) -> float:
        """The least sigma_i in units of ``l2_norm_clip``."""
        if self.noise_multiplier is None:
            raise ValueError("There is no noise yet: fit finds it.")
        shape = self.ellipsoid(state)
        if shape is None:
            return self.noise_multiplier
        least = min(float(tf.reduce_min(scale)) for scale in shape.scales)
        return _ROUNDING * self.noise_multiplier * least

    def realised_worst_case_mu(self, state: State | None = None) -> float:
        """alpha / min sigma: the mu of Gaussian differential privacy of a step with this state, if every record took part.

        A diagnostic of what happened, not private and not a claim: where sigma is chosen by looking at the records, it was
        not known beforehand.
        """
        return 1 / self._least_noise(state or {})

    @property
    def settled(self) -> dict[str, object]:
        return {"direction": self.direction}

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        if self.direction == FULL_GRADIENT:  # the first one comes before the first step
            return {IMPORTANCE: [np.ones(tuple(w.shape), np.float32) for w in weights]}
        # What a bound is proven from is no variable, which anyone may assign: a constant of the step.
        if self.direction != ONES:
            self._importances = spread_over(weights, "direction", self.direction)
        return {}

    def importances(self, state: State) -> list[tf.Tensor] | None:
        """w; None where it is 1."""
        if self.direction == FULL_GRADIENT:
            return state[IMPORTANCE]
        if self.direction == ONES:
            return None
        if self._importances is None:
            raise ValueError("direction is as long as the model has weights: build the optimizer first.")
        return [tf.constant(w) for w in self._importances]

    def copy(self) -> "PublishedMechanism":
        other = super().copy()
        other._importances = self._importances
        return other

    def with_full_gradient(self, state: State, released: list[tf.Tensor], size: float) -> State:
        return {IMPORTANCE: released}

    def ellipsoid(self, state: State) -> Ellipsoid | None:
        """The shape of the noise alone, sigma in units of ``noise_multiplier * l2_norm_clip``: the clip is a ball."""
        importances = self.importances(state)
        if importances is None:
            return None
        floor = (self.sigma_floor or 0.0) / self.noise_multiplier
        return Ellipsoid([tf.maximum(scale, floor) for scale in published_scales(importances, 1.0, 1.0)])

    def bounded_sum(
        self, lot: LotGradients, present: tf.Tensor, ellipsoid: Ellipsoid | None = None
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Clipped to the ball around 0, whatever shape the noise has."""
        return super().bounded_sum(lot, present)

    def get_config(self) -> dict:
        own = ("target_epsilon", "delta", "direction", "sigma_floor")
        config = {**super().get_config(), **{name: getattr(self, name) for name in own}}
        full = self.full_gradient
        if full is not None:
            config |= {"direction_budget": full.share, "direction_noise_multiplier": full.noise_multiplier}
        return config

    @classmethod
    def from_config(cls, config: dict) -> "PublishedMechanism":
        return cls(**{**config, "direction": loaded(config.get("direction", FULL_GRADIENT))})


def _sum(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(part) for part in parts])
