"""By how much one record moves a step of fit, in every mode, with the noise known: in clips, in the space where noise is round.

The step comes after some steps on noise alone, so that scales, supports, centres and residuals are those of a run under way.
"""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny

LOT, WIDTH = 4, 24
PRUNED = {"pruning_ratio": 0.7}
MODES = {
    "noisy": (tfdp.NoisySGD, {}),
    "grid": (tfdp.NoisySGD, {"grid": True}),
    "directional": (tfdp.DirectionalDPSGD, {}),
    "compress": (tfdp.DirectionalDPSGD, PRUNED),
    "support": (tfdp.DirectionalDPSGD, {**PRUNED, "pruning": "support", "support_steps": 3}),
    "random": (
        tfdp.DirectionalDPSGD,
        {**PRUNED, "pruning": "random", "support_steps": 2, "moments": [np.logspace(-4, 4, WIDTH)[:, None]]},
    ),
    "AdaClip": (tfdp.AdaClipDPSGD, {}),
}
RNG = np.random.default_rng(7)
X = (RNG.normal(size=(LOT, WIDTH)) * np.logspace(-1.5, 1, WIDTH)).astype("f4")
X[0] = 30 * np.logspace(1, -1.5, WIDTH)  # far beyond every clip


def linear_loss(y, prediction):
    """Its gradient does not depend on the weights."""
    return keras.ops.sum(y * prediction, -1)


def model_of(mode: str) -> keras.Model:
    kind, arguments = MODES[mode]
    model = keras.Sequential([keras.layers.Input((WIDTH,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((WIDTH, 1), "f4")])
    model.compile(kind(1.0, l2_norm_clip=1.0, noise_multiplier=1.0, noise_seed=3, **arguments), linear_loss)
    return model


def take(model: keras.Model, labels: list[float], steps: int = 1) -> None:
    tiny.train(model, X, np.array(labels, "f4")[:, None], steps=steps)


def released(mode: str, before: int, first: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The noised sum of the step after so many, the scales it was made on, and the support that comes after it.

    `first` is the label of the first record: NaN takes it out. (A gradient of 0 is not out of AdaClip's sum: it is clipped
    around a centre.)
    """
    model = model_of(mode)
    take(model, LOT * [np.nan], before)
    optimizer, start = model.optimizer, model.get_weights()[0]
    state = optimizer.state_of_mechanism
    ellipsoid = optimizer.mechanism.ellipsoid(state)
    scales = np.ones(WIDTH) if ellipsoid is None else np.ravel(ellipsoid.scales[0])
    take(model, [first, 1, 1, 1])
    moved = np.float64(start - model.get_weights()[0]).ravel()
    if "residual" in state:
        moved += np.ravel(optimizer.state_of_mechanism["residual"][0] - state["residual"][0])
    return LOT * moved, scales, np.ravel(optimizer.state_of_mechanism.get("support", [0])[0])


@pytest.mark.parametrize("mode", MODES)
def test_one_record_moves_a_step_by_at_most_the_clip(mode):
    with_it, scales, _ = released(mode, 4, 1.0)
    without, same_scales, _ = released(mode, 4, np.nan)
    np.testing.assert_array_equal(scales, same_scales)
    inside = np.isfinite(scales)
    assert not with_it[~inside].any() and not without[~inside].any()
    moved = np.linalg.norm(((with_it - without) / scales)[inside])
    grown = 1e-3 if mode == "grid" else 0.0
    assert moved <= 1 + grown + 2e-5  # float32 numbers of the size of the noise, subtracted twice
    assert moved > 0.99


@pytest.mark.parametrize("mode", ["support", "random"])
def test_the_support_of_a_step_does_not_look_at_its_records(mode):
    """Before a step that is not dense, and after it, it is the same with the record as without."""
    before = 1 if mode == "support" else 2
    one, other = (released(mode, before, first) for first in (1.0, np.nan))
    assert not np.array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
    np.testing.assert_array_equal(one[2], other[2])
    assert 0 < np.isfinite(one[1]).sum() < WIDTH
