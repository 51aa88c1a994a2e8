"""Audit of one training run: a lower bound on epsilon from guesses about canaries (Steinke, Nasr and Jagielski 2023)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import keras
import numpy as np

from tfdp.accounting import Ledger, Tradeoff, checks
from tfdp.audit import bounds, tradeoff_bounds
from tfdp.audit.attacks import Attack, FinalLosses, OwnWeights, ReleasedGradients
from tfdp.audit.canaries import Canaries, GradientCanaries, Planted
from tfdp.mechanisms import AdaClipMechanism
from tfdp.optimizers import PrivateOptimizer

_ATTACKS = ("white_box", "black_box")
_LEAST_GUESSES = 30
_SHARE_OF_GUESSES = 10


@dataclasses.dataclass(frozen=True)
class OneRun:
    """What one audited run says.

    Attributes:
        canaries: how many coins were flipped.
        guesses: how many of them were guessed, fixed before training.
        correct: how many guesses were right.
        delta, confidence: what the lower bound is meant at.
        epsilon_lower_bound: training is not (epsilon, delta)-differentially private for any smaller epsilon; where it is, an
            audit says so with probability at most 1 - confidence.
        attack: "white_box" or "black_box".
        ledger: of the audited run: what its claims are made from.
        scores: the attack's, of each canary.
        included: the coins.
    """

    canaries: int
    guesses: int
    correct: int
    delta: float
    confidence: float
    epsilon_lower_bound: float
    attack: str
    ledger: Ledger
    scores: np.ndarray = dataclasses.field(repr=False, compare=False)
    included: np.ndarray = dataclasses.field(repr=False, compare=False)

    def p_value(self, epsilon: float) -> float:
        """How likely so many correct guesses are at most, if training is (epsilon, delta)-private."""
        return bounds.p_value(epsilon, self.delta, **self._counts)

    def tradeoff_p_value(self, curve: Tradeoff) -> float:
        """How likely they are at most, if no attack is better than the curve: ``tfdp.accounting.tradeoff(self.ledger)``."""
        return tradeoff_bounds.tradeoff_p_value(curve, **self._counts)

    @property
    def gaussian_epsilon_lower_bound(self) -> float:
        """The larger bound that holds if training's trade-off curve is a Gaussian's (Mahloujifar et al. 2024)."""
        return tradeoff_bounds.gaussian_epsilon_lower_bound(
            **self._counts, delta=self.delta, confidence=self.confidence
        )

    @property
    def _counts(self) -> dict[str, int]:
        return {"canaries": self.canaries, "guesses": self.guesses, "correct": self.correct}

    def __str__(self) -> str:
        return (
            f"{self.correct} of {self.guesses} guesses about {self.canaries} canaries were right ({self.attack}): epsilon is at "
            f"least {self.epsilon_lower_bound:.3f} at delta = {self.delta:g}, with confidence {self.confidence:g}. That is what "
            "this attack found, not how private training is."
        )


def one_run(
    make_model: Callable[[], keras.Model],
    x: np.ndarray,
    y: np.ndarray,
    *,
    canaries: Canaries,
    batch_size: int,
    epochs: int,
    delta: float,
    attack: str = "white_box",
    guesses: int | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
) -> OneRun:
    """Train once, with canaries among the records, and guess from what was released which of them were in.

    Training is ``model.fit`` as ever. A canary that is left out stays as a record of weight 0, so that the number of records
    and the sampling rate are the same whatever the coins say; two outcomes of a coin are zero-out neighbours.

    Example:

    >>> found = tfdp.audit.one_run(make_model, x, y, canaries=tfdp.audit.GradientCanaries(1000), batch_size=100, epochs=10, delta=1e-5)
    >>> found.epsilon_lower_bound, tfdp.accounting.epsilon(found.ledger, delta=1e-5)

    Args:
        make_model: returns a new model, compiled with a private optimizer; plain SGD leaks most to the white-box attack, and
            which inner optimizer it is makes no difference to what is claimed.
        x, y: real records, in arrays.
        canaries: ``GradientCanaries(count)``, ``MislabelledCanaries(count)`` or ``RandomCanaries(count)``.
        batch_size, epochs: of ``fit``.
        delta: the delta that the lower bound is meant at.
        attack: "white_box" sees the weights after every step, "black_box" the final model's losses.
        guesses: how many canaries to guess: half of them the highest scores, guessed to be in, half the lowest. It must not
            depend on what was seen. By default a tenth of the canaries, and 30 at least (all, if there are fewer).
        confidence: of the lower bound.
        seed: of the coins and the choice of canaries, to repeat an audit. Noise and lots stay secret.

    Raises:
        ValueError: bad arguments, or a model that can't be audited in this way. Nothing was trained then.
    """
    delta, confidence = checks.delta(delta), bounds.checked_confidence(confidence)
    _check_records(x, y)
    guesses = _number_of_guesses(guesses, canaries)
    chosen = _chosen_attack(attack, canaries)
    model = make_model()
    if not isinstance(model, keras.Model) or not isinstance(getattr(model, "optimizer", None), PrivateOptimizer):
        raise ValueError(
            "make_model must return a keras.Model compiled with a private optimizer, such as tfdp.NoisySGD(0.1, "
            f"l2_norm_clip=1.0, noise_multiplier=1.1); it returned {model!r}."
        )
    random = np.random.default_rng(seed)
    planted = canaries.planted(model, x, y, random)
    included = random.random(planted.count) < 0.5
    watcher = chosen(planted)
    planted.model.fit(
        planted.x,
        planted.y,
        sample_weight=weights_of(planted, included),
        batch_size=batch_size,
        epochs=epochs,
        callbacks=[watcher],
        verbose=0,
    )
    scores = watcher.scores()
    correct = correct_guesses(scores, included, guesses)
    counts = {"canaries": planted.count, "guesses": guesses, "correct": correct}
    return OneRun(
        **counts,
        delta=delta,
        confidence=confidence,
        epsilon_lower_bound=bounds.epsilon_lower_bound(**counts, delta=delta, confidence=confidence),
        attack=attack,
        ledger=planted.model.optimizer.ledger,
        scores=scores,
        included=included,
    )


def correct_guesses(scores: np.ndarray, included: np.ndarray, guesses: int) -> int:
    """How many are right, if half of the guesses are the highest scores, taken to be in, and half the lowest. A score that is
    not a number is in the middle."""
    order = np.argsort(np.nan_to_num(scores, nan=np.nanmedian(scores)), kind="stable")
    out, last = order[: guesses // 2], order[len(order) - (guesses - guesses // 2) :]
    return int(np.sum(~included[out]) + np.sum(included[last]))


def weights_of(planted: Planted, included: np.ndarray) -> object:
    """All records', without those of canaries that are left out.

    A record of weight 0 has the gradient 0, and adds nothing to a sum of clipped gradients. Where gradients are clipped around
    a centre it would still add something; there it gets a gradient that is not finite, which adds nothing anywhere.
    """
    nothing = math.nan if isinstance(planted.model.optimizer.mechanism, AdaClipMechanism) else 0.0

    def without(weights: np.ndarray) -> np.ndarray:
        weights = weights.copy()
        own = weights[-planted.count :]
        own[~included & (own != 0)] = nothing
        return weights

    return keras.tree.map_structure(without, planted.weights)


def _chosen_attack(attack: str, canaries: Canaries) -> type[Attack]:
    if not checks.is_one_of(attack, _ATTACKS):
        raise ValueError(f"attack must be one of {', '.join(_ATTACKS)}, not {attack!r}.")
    if isinstance(canaries, GradientCanaries):
        if attack == "black_box":
            raise ValueError(
                "GradientCanaries have no loss under the model that was asked for, only under the one with their weights: use "
                'attack="white_box", or MislabelledCanaries or RandomCanaries.'
            )
        return OwnWeights
    return ReleasedGradients if attack == "white_box" else FinalLosses


def _number_of_guesses(guesses: int | None, canaries: Canaries) -> int:
    if not isinstance(canaries, Canaries):
        raise ValueError(f"canaries must be canaries, such as tfdp.audit.GradientCanaries(1000), not {canaries!r}.")
    if guesses is None:
        return min(canaries.count, max(_LEAST_GUESSES, canaries.count // _SHARE_OF_GUESSES))
    guesses = checks.count("guesses", guesses, "write how many canaries to guess, such as 100", at_least=1)
    if guesses > canaries.count:
        raise ValueError(f"guesses ({guesses}) must not exceed the number of canaries ({canaries.count}).")
    return guesses


def _check_records(x: np.ndarray, y: np.ndarray) -> None:
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray) or len(x) != len(y) or len(x) == 0:
        raise ValueError(
            "x and y must be numpy arrays with a row for each record, as many in one as in the other, and one at least: canaries "
            "are planted among their rows."
        )
