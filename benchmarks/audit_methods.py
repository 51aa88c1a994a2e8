"""What `benchmarks.audits` audits: optimizers with their canaries, and noise on records, proven and as Kang et al. 2020 publish it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdp.noise import Gaussian

if TYPE_CHECKING:
    import keras

DELTA = 1e-5
LEARNING_RATE = 0.1
RECORDS_A_CANARY, STEPS, CONVEXITY, FEATURES = 20, 100, 0.01, 5
NEXT_TO_NOTHING = 1e-4


@dataclasses.dataclass(frozen=True)
class Method:
    """An optimizer.

    Attributes:
        optimizer: of tfdp.
        arguments: of it.
        spread: whether canaries have a direction of many weights, not a weight each.
        published: whether what it claims is not proven. An audit then tries to refute it, for which more guesses are better.
    """

    optimizer: str
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    spread: bool = False
    published: bool = False


METHODS = {
    "noisy": Method("NoisySGD"),
    "noisy-adam": Method("NoisyAdam"),
    "noisy-adagrad": Method("NoisyAdagrad"),
    "grid": Method("NoisySGD", {"grid": True}),
    "dp-lssgd": Method("NoisySGD", {"denoise": "laplacian"}),
    "adaclip": Method("AdaClipDPSGD"),
    "directional": Method("DirectionalDPSGD"),
    "directional-full": Method("DirectionalDPSGD", {"direction": "full_gradient"}),
    "pruned-compress": Method("DirectionalDPSGD", {"pruning_ratio": 0.5, "pruning": "compress"}, spread=True),
    "pruned-support": Method("DirectionalDPSGD", {"pruning_ratio": 0.5, "pruning": "support"}, spread=True),
    "encoded": Method("EncodedDPSGD", spread=True),
    "encoded-gaussian": Method("EncodedDPSGD", {"noise": Gaussian(1.0)}, spread=True),
    "published-full": Method("DirectionalDPSGD", {"as_published": True}, published=True),
    "published-concentrated": Method("DirectionalDPSGD", {"as_published": True}, published=True),
}
FORMULAS = {"eq9": {"strong_convexity": CONVEXITY}, "eq12": {"pl": True}, "eq10": {"sampling_rate": None}}
SEEN = ("records", "model")
PROVEN = "proven-records"
ON_RECORDS = [PROVEN, *(f"{formula}-{seen}" for formula in FORMULAS for seen in SEEN)]


def guesses_of(method: str, canaries: int) -> int:
    """Where the claim may be false most canaries are guessed, elsewhere as many as usual."""
    published = METHODS[method].published if method in METHODS else method != PROVEN
    return 4 * canaries // 5 if published else max(30, canaries // 10)


def optimizer_of(name: str, claimed: float) -> keras.optimizers.Optimizer:
    import keras

    import tfdp

    method = METHODS[name]
    arguments = dict(method.arguments)
    if name == "published-concentrated":
        arguments["direction"] = keras.saving.register_keras_serializable("benchmarks")(away_from_canaries)
    return getattr(tfdp, method.optimizer)(
        LEARNING_RATE, l2_norm_clip=1.0, target_epsilon=claimed, delta=DELTA, **arguments
    )


def away_from_canaries(weight: keras.Variable) -> np.ndarray:
    """A public w that lies in the model's own weights alone, or nearly: where w is not, there is next to no noise."""
    of_canaries = weight.path.split("/")[-2].startswith("canaries")
    return np.full(tuple(weight.shape), NEXT_TO_NOTHING if of_canaries else 1.0)


def scores_on_records(method: str, claimed: float, seed: int, canaries: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Scores and coins of canaries among records that an `InputPerturbation` noised, and that.

    A canary that is in has the feature 1 in a place of its own and the label 1; of one that is left out the features are 0, or where
    the claim is of replaced records of norm 1 (the proven one) -1. All other records have features in places of theirs. Seen are either the noised records, where the score is the feature, or a
    logistic regression after so many steps of gradient descent on all of them, as the formula takes it to be, where it is the
    feature's weight.
    """
    import tfdp

    formula, _, seen = method.partition("-")
    random = np.random.default_rng(seed)
    size = RECORDS_A_CANARY * canaries
    included = random.random(canaries) < 0.5
    if method == PROVEN:
        perturbation, left_out = tfdp.data.InputPerturbation.proven(claimed, DELTA, 1.0), -1.0
    else:
        arguments = dict(FORMULAS[formula])
        if "sampling_rate" in arguments:
            arguments["sampling_rate"] = size**-0.5  # of the order that theorem 1 is for
        perturbation = tfdp.data.InputPerturbation.as_published(claimed, DELTA, STEPS, size, 1.0, **arguments)
        left_out = 0.0
    x = np.zeros((size, FEATURES + canaries), np.float32)
    x[np.arange(canaries), FEATURES + np.arange(canaries)] = np.where(included, 1.0, left_out)
    x[canaries:, :FEATURES] = random.standard_normal((size - canaries, FEATURES))
    y = (x[:, 0] > 0).astype(np.float32)
    y[:canaries] = 1.0
    noised = perturbation.on_arrays(x)
    scores = np.diagonal(noised[:canaries, FEATURES:]) if seen == "records" else trained(noised, y)[FEATURES:]
    return scores, included, perturbation


def trained(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The weights of a logistic regression with the penalty that makes it strongly convex, from 0 on."""
    weights, rate = np.zeros(x.shape[1], np.float32), 1.0
    for _ in range(STEPS):
        errors = 1 / (1 + np.exp(-(x @ weights))) - y
        weights = weights - rate * (x.T @ errors / len(x) + CONVEXITY * weights)
    return weights
