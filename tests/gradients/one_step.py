"""One noiseless private step of a case of the zoo against per-example gradients taken one tape at a time.

The step is plain SGD at sampling rate 1. Its learning rate is a power of two so large that the weights after
the step are mostly the step: their difference has the update to float32 precision, however small the clip.
"""

from dataclasses import dataclass
from functools import lru_cache

import keras
import numpy as np

import tfdp
from tests import model_zoo
from tests.brute_force import BruteForce, batch_gradient, brute_force, expected_weights_after_one_step
from tests.zoo.cases import Case

WHOLE_TOLERANCE = 1e-4
WEIGHT_TOLERANCE = 1e-3
NEGLIGIBLE_SHARE = 1e-2  # of the whole update: below it a weight's own error is measured against the whole

ALL, NONE, SOME = "all clipped", "none clipped", "some clipped"


@dataclass(frozen=True)
class Prepared:
    """A case with its model, the weights it starts from and what brute force says about it."""

    case: Case
    model: keras.Model
    start: list[np.ndarray]
    examples: BruteForce
    batch: np.ndarray

    def clip(self, regime: str) -> float:
        norms = self.examples.norms
        norms = norms[norms > 1e-4 * norms.max()]  # an example of weight 0 can't be clipped
        return {ALL: 1e-3 * norms.min(), NONE: 1e3 * norms.max(), SOME: float(np.median(norms))}[regime]

    def learning_rate(self, clip: float) -> float:
        size = np.linalg.norm(np.concatenate([w.ravel() for w in self.start]))
        return float(2.0 ** np.ceil(np.log2(64.0 * size / np.linalg.norm(self.examples.update(clip)))))


@lru_cache(maxsize=1)  # the runs of one case follow one another
def prepared(name: str) -> Prepared:
    case = model_zoo.get(name)
    model = case.build()
    model.compile(optimizer="sgd", **case.compile)
    data = (model, case.x, case.y, case.sample_weight, case.fit.get("class_weight"))
    return Prepared(case, model, model.get_weights(), brute_force(*data), batch_gradient(*data))


def relative(difference: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(difference) / np.linalg.norm(reference))


def assert_one_step_is_the_mean_of_the_clipped_gradients(zoo: Prepared, *regimes: str) -> None:
    """Compile the case with a private optimizer; in each regime fit for one step and compare every weight."""
    optimizer = tfdp.NoisySGD(learning_rate=1.0, l2_norm_clip=1.0, noise_multiplier=0.0)
    zoo.model.compile(optimizer=optimizer, **zoo.case.compile)
    for regime in regimes:
        _assert_one_step(zoo, regime)


def _assert_one_step(zoo: Prepared, regime: str) -> None:
    case, model, clip = zoo.case, zoo.model, zoo.clip(regime)
    rate = zoo.learning_rate(clip)
    model.set_weights(zoo.start)
    before = [keras.ops.convert_to_numpy(w).astype("float64") for w in model.trainable_weights]
    expected = [
        w - b for w, b in zip(expected_weights_after_one_step(model, zoo.examples, clip, rate), before, strict=True)
    ]

    model.optimizer.mechanism.l2_norm_clip = clip
    model.optimizer.learning_rate = rate
    model.fit(
        case.x,
        case.y,
        sample_weight=case.sample_weight,
        batch_size=case.size,
        epochs=1,
        verbose=0,
        **case.fit,
    )

    change = [keras.ops.convert_to_numpy(w) - b for w, b in zip(model.trainable_weights, before, strict=True)]
    whole = np.concatenate([e.ravel() for e in expected])
    for weight, got, wanted in zip(model.trainable_weights, change, expected, strict=True):
        scale = max(np.linalg.norm(wanted), NEGLIGIBLE_SHARE * np.linalg.norm(whole))
        assert np.linalg.norm(got - wanted) <= WEIGHT_TOLERANCE * scale, (regime, weight.path)
    assert relative(np.concatenate([c.ravel() for c in change]) - whole, whole) <= WHOLE_TOLERANCE, regime
    _assert_unmoved(model.non_trainable_weights, zoo)


def _assert_unmoved(weights: list, zoo: Prepared):
    start = {id(weight): value for weight, value in zip(zoo.model.weights, zoo.start, strict=True)}
    for weight in weights:
        now = keras.ops.convert_to_numpy(weight)
        np.testing.assert_array_equal(now, start[id(weight)], err_msg=weight.path)
