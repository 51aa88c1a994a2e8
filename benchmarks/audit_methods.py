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
PROVEN, LABELS = "proven-records", "proven-labels"
INFLUENCE = [f"influence-{seen}" for seen in SEEN]
INFLUENCE_RECORDS_A_CANARY, INFLUENCE_STEPS = 2, 500
ON_RECORDS = [PROVEN, LABELS, *(f"{formula}-{seen}" for formula in FORMULAS for seen in SEEN), *INFLUENCE]


def guesses_of(method: str, canaries: int) -> int:
    """Where the claim may be false most canaries are guessed, and where all are equally hard; elsewhere as many as usual."""
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


def scores_on_records(method: str, claimed: float, seed: int, canaries: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores and coins of canaries among records that were noised, and the epsilon that is proven.

    A canary that is in has the feature 1 in a place of its own and the label 1; of one that is left out the features are 0, or where
    the claim is of replaced records of norm 1 (the proven one) -1. All other records have features in places of theirs. Seen are either the noised records, where the score is the feature, or a
    logistic regression after so many steps of gradient descent on all of them, as the formula takes it to be, where it is the
    feature's weight.
    """
    included = np.random.default_rng(seed).random(canaries) < 0.5
    if method == LABELS:
        return _labels(claimed, included)
    if method in INFLUENCE:
        return _influence(method, claimed, included, seed)
    import tfdp

    formula, _, seen = method.partition("-")
    size = RECORDS_A_CANARY * canaries
    if method == PROVEN:
        perturbation, left_out = tfdp.data.InputPerturbation.proven(claimed, DELTA, 1.0), -1.0
    else:
        arguments = dict(FORMULAS[formula])
        if "sampling_rate" in arguments:
            arguments["sampling_rate"] = size**-0.5  # of the order that theorem 1 is for
        perturbation = tfdp.data.InputPerturbation.as_published(claimed, DELTA, STEPS, size, 1.0, **arguments)
        left_out = 0.0
    x, y = _records(included, size, left_out, seed)
    noised = perturbation.on_arrays(x)
    proven = perturbation.statement(DELTA, labelled=False).claims[0].epsilon
    return _scores(noised, canaries) if seen == "records" else trained(noised, y)[FEATURES:], included, proven


def _records(included: np.ndarray, size: int, left_out: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random, canaries = np.random.default_rng([seed, 1]), len(included)
    x = np.zeros((size, FEATURES + canaries), np.float32)
    x[np.arange(canaries), FEATURES + np.arange(canaries)] = np.where(included, 1.0, left_out)
    x[canaries:, :FEATURES] = random.standard_normal((size - canaries, FEATURES))
    y = (x[:, 0] > 0).astype(np.float32)
    y[:canaries] = 1.0
    return x, y


def _scores(records: np.ndarray, canaries: int) -> np.ndarray:
    """Each canary's own feature."""
    return np.diagonal(records[:canaries, FEATURES:])


def _labels(claimed: float, included: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Canaries of which the coin is the label: what is released of it is the score."""
    import tfdp

    drawn_anew = 2 / (1 + np.exp(claimed))  # half of the labels drawn anew are as they were
    perturbation = tfdp.data.InputPerturbation(0.0, randomized_response=drawn_anew, classes=2)
    labels = perturbation.on_arrays(np.zeros((len(included), 1), np.float32), included.astype("int64"))[1]
    return labels.astype(float), included, perturbation.statement(DELTA).claims[1].epsilon


def _influence(method: str, claimed: float, included: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Algorithm 2 on the logistic regression that the records without noise gave, as the paper starts it."""
    import keras

    import tfdp

    x, y = _records(included, INFLUENCE_RECORDS_A_CANARY * len(included), 0.0, seed)
    # Of norm 1 at most: the loss of one record has the Lipschitz constant 1 then, which is the noise's G.
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    penalty = keras.regularizers.L2(CONVEXITY / 2)
    dense = keras.layers.Dense(1, use_bias=False, kernel_regularizer=penalty)
    model = keras.Sequential([keras.Input(x.shape[1:]), dense])
    model.compile(optimizer="sgd", loss=keras.losses.BinaryCrossentropy(from_logits=True))
    dense.kernel.assign(trained(x, y)[:, None])
    perturbation = tfdp.data.InfluencePerturbation(model, claimed, DELTA, lipschitz=1.0)
    found = perturbation.train(x, y, INFLUENCE_STEPS, LEARNING_RATE)
    of_records = method == "influence-records"
    scores = _scores(found.x, len(included)) if of_records else dense.kernel.numpy()[FEATURES:, 0]
    return scores, included, found.claims[0].epsilon


def trained(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The weights of a logistic regression with the penalty that makes it strongly convex, from 0 on."""
    weights, rate = np.zeros(x.shape[1], np.float32), 1.0
    for _ in range(STEPS):
        errors = 1 / (1 + np.exp(-(x @ weights))) - y
        weights = weights - rate * (x.T @ errors / len(x) + CONVEXITY * weights)
    return weights
