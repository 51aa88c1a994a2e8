"""Noise on the records that move a model most: performance improving DBDP-ERM (Kang et al. 2020, data perturbation, algorithm 2)."""

from __future__ import annotations

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf

from tfdp.accounting import Relation, Status, checks
from tfdp.accounting.claims import MEMBERSHIP, RECORD, Claim, in_short
from tfdp.accounting.exposure import expose
from tfdp.accounting.perturbation import RECORD_REASON, record_noise
from tfdp.data.perturbation.influence import Influence, checked_arrays

RULES = ("normalized", "literal")


@dataclasses.dataclass(frozen=True)
class PerturbedTraining:
    """What algorithm 2 returns; its theta_priv is in the model.

    Attributes:
        x, y: D_priv: each record as it was last trained on, or as it is if that was without noise, or never.
        noised: which records of x carry noise.
        noisy_steps, steps: how many steps took a record with noise, and how many there were.
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
            [f"{self.noisy_steps:,} of {self.steps:,} steps on one record each were taken with noise on it.", *said]
        )


class InfluencePerturbation:
    """Trains a model on one record a step, with Gaussian noise on records whose contribution is large.

    Formal guarantee: none. The trained model it starts from, which records get noise, and how much, all depend on the records.

    From the weights the model has (the pretrained theta~), R = steps / local_steps rounds: each draws local_steps records, finds their
    contributions c = H^-1 grad l(z, theta) / n at the round's first weights theta, and takes one gradient step on each. A record is
    left as it is where ``e^-epsilon <= ||(c + theta) / theta|| <= e^epsilon`` (line 9; division by elements), and gets
    N(0, sigma_t^2) with sigma_t of eq. 15 and w_t = ||grad_x grad_theta l|| at the weights of that step otherwise.

    | rule         | the norm in line 9                                                                          |
    |--------------|---------------------------------------------------------------------------------------------|
    | "normalized" | divided by the root of the number of weights, so that it is 1 where c is 0                    |
    | "literal"    | as printed: at least about that root, so that with e^(2 epsilon) weights all records get noise |

    Example:

    >>> model.fit(x, y, epochs=100)  # ordinary training: theta~
    >>> perturbation = tfdp.data.InfluencePerturbation(model, epsilon=1.0, delta=1e-5, lipschitz=1.0)
    >>> result = perturbation.train(x, y, steps=1000, learning_rate=0.1)  # the model now holds theta_priv
    >>> print(result)

    Args:
        model: built, compiled with its loss, and trained.
        epsilon, delta: what the paper claims.
        lipschitz: G of eq. 15, of one record's loss in the weights.
        rule: see above.
        constant: c of eq. 15, which the paper does not give.
        local_steps: T_local, records a round.
        damping: added to the diagonal of the Hessian.
    """

    def __init__(
        self,
        model: keras.Model,
        epsilon: float,
        delta: float,
        *,
        lipschitz: float,
        rule: str = "normalized",
        constant: float = 1.0,
        local_steps: int = 10,
        damping: float = 0.0,
    ):
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(map(repr, RULES))}, not {rule!r}.")
        record_noise(epsilon, delta, 1, 1, lipschitz, 1.0, constant)  # checks them all
        self._model, self._rule, self._damping = model, rule, damping
        self._epsilon, self._delta = float(epsilon), float(delta)
        self._lipschitz, self._constant = float(lipschitz), float(constant)
        self._local_steps = checks.count(
            "local_steps", local_steps, "write how many records a round takes, such as 10", 1
        )
        checks.non_negative("damping", damping, "write what is added to the Hessian's diagonal, such as 0.01")

    def train(self, x: np.ndarray, y: np.ndarray, steps: int, learning_rate: float) -> PerturbedTraining:
        """Takes ``steps`` steps, and leaves theta_priv in the model.

        Weights that were trained privately before lose what was proven of them: their ledger gets an infinite line.
        """
        if hasattr(self._model.optimizer, "ledger"):
            raise ValueError(
                "The model is compiled with a private optimizer, whose ledger can't price these steps: nothing is proven of them. "
                "Compile it with an ordinary one."
            )
        x, y = checked_arrays(x, y)
        steps = checks.count("steps", steps, "write T, a multiple of local_steps, such as 1000", at_least=1)
        learning_rate = checks.positive("learning_rate", learning_rate, "write alpha, such as 0.1")
        if steps % self._local_steps:
            raise ValueError(f"steps={steps} is no multiple of local_steps={self._local_steps}: a round is not cut.")
        influence = Influence(self._model, x, y, self._damping)
        noise = record_noise(self._epsilon, self._delta, steps, len(x), self._lipschitz, 1.0, self._constant)
        rng = np.random.default_rng()
        expose(self._model.trainable_variables)
        released, noised, noisy_steps = x.copy(), np.zeros(len(x), bool), 0
        local = tf.function(self._local_step)
        for _ in range(steps // self._local_steps):
            drawn = rng.integers(len(x), size=self._local_steps)
            large = self.large(influence.contributions(x[drawn], y[drawn]), influence.derivatives.read())
            for i, noisy in zip(drawn, large, strict=True):
                z = noise * rng.normal(size=x[i : i + 1].shape) if noisy else np.zeros_like(x[i : i + 1])
                used = local(
                    influence.derivatives, x[i : i + 1], y[i : i + 1], z.astype(np.float32), learning_rate, bool(noisy)
                )
                released[i], noised[i] = used[0], noisy
            noisy_steps += int(large.sum())
        return PerturbedTraining(released, y, noised, noisy_steps, steps, self._claims(steps, len(x)))

    def large(self, contributions: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Which contributions are beyond line 9's bounds."""
        moved = contributions + weights
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(moved == weights, 1.0, moved / weights)  # 0 / 0 is unchanged
        norms = np.linalg.norm(ratios, axis=1)
        if self._rule == "normalized":
            norms = norms / math.sqrt(len(weights))
        return ~((norms >= math.exp(-self._epsilon)) & (norms <= math.exp(self._epsilon)))

    def _local_step(self, derivatives, x, y, z, learning_rate, noisy: bool):
        """One gradient step, on x + z / sqrt(w). Where no noise on x reaches the gradient (w = 0) there is no step: sigma_t is infinite."""
        moves = True
        if noisy:
            norm = derivatives.mixed_norm(x, y)
            moves = norm > 0
            x = x + z * tf.where(moves, tf.math.rsqrt(tf.where(moves, norm, 1.0)), 0.0)
        gradient = derivatives.split(derivatives.gradient(x, y))
        for variable, part in zip(self._model.trainable_variables, gradient, strict=True):
            variable.assign_sub(
                tf.where(moves, tf.cast(learning_rate * part, variable.dtype), tf.zeros_like(variable.value))
            )
        return x

    def _claims(self, steps: int, size: int) -> tuple[Claim, ...]:
        none = (
            "The model starts from weights trained on the records without noise, and which records get noise, and how much, is chosen by "
            "looking at them; the others are released and trained on as they are"
        )
        how = f"Kang et al. 2020, data perturbation, theorem 2, eq. 15: {steps:,} steps on {size:,} records, c = {self._constant:g}"
        relation = Relation.REPLACE_ONE
        return (
            Claim(MEMBERSHIP, relation, math.inf, self._delta, None, Status.NONE, "no bound is known", (none,)),
            Claim(RECORD, relation, math.inf, self._delta, None, Status.NONE, "no bound is known", (none,)),
            Claim(MEMBERSHIP, relation, self._epsilon, self._delta, None, Status.AS_PUBLISHED, how, (RECORD_REASON,)),
        )
