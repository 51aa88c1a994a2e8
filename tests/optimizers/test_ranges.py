"""Clips and noise at the ends of what float32 can hold, through compile and fit."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.mechanisms import GaussianMechanism
from tfdp.mechanisms.ranges import LARGEST_CLIP, LEAST_CLIP

NAMED = [
    tfdp.NoisySGD,
    tfdp.NoisyAdam,
    tfdp.NoisyAdagrad,
    tfdp.DirectionalDPSGD,
    tfdp.DirectionalDPAdam,
    tfdp.AdaClipDPSGD,
    tfdp.AdaClipDPAdam,
    tfdp.EncodedDPSGD,
    tfdp.EncodedDPAdam,
]


def wide(optimizer) -> keras.Model:
    """400 weights of 0: all that they are after a step of SGD is what was released."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(400, use_bias=False, kernel_initializer="zeros")])
    model.compile(optimizer=optimizer, loss="mse")
    return model


@pytest.mark.parametrize("clip", [LEAST_CLIP, LARGEST_CLIP / 1e10])
@pytest.mark.parametrize("optimizer", [tfdp.NoisySGD, tfdp.DirectionalDPSGD, tfdp.AdaClipDPSGD])
def test_weights_move_by_noise_of_the_size_it_says_at_the_ends_of_the_range(optimizer, clip):
    model = wide(optimizer(1.0, l2_norm_clip=clip, noise_multiplier=3.0))
    x, y = np.zeros((8, 3), "f4"), np.zeros((8, 400), "f4")
    model.fit(x, y, batch_size=8, verbose=0)
    moved = np.float64(model.get_weights()[0])
    assert np.all(moved != 0)
    assert np.std(moved) == pytest.approx(3.0 * clip / 8, rel=0.1)
    assert tfdp.privacy_statement(model, delta=1e-5).epsilon < 5


@pytest.mark.parametrize("clip", [1e-38, 1e-30, 1e30])
@pytest.mark.parametrize("optimizer", NAMED)
def test_every_optimizer_refuses_a_clip_that_float32_could_lose(optimizer, clip):
    with pytest.raises(ValueError, match=r"l2_norm_clip=.* must lie between"):
        optimizer(1e-3, l2_norm_clip=clip, noise_multiplier=1.0)


@pytest.mark.parametrize("settings", [{"noise_multiplier": 1e-31}, {"l2_norm_clip": 1e-38}, {"l2_norm_clip": 1e30}])
@pytest.mark.parametrize("before", [False, True], ids=["before fit", "between fits"])
def test_a_setting_that_is_assigned_is_refused_and_training_goes_on_as_before(settings, before):
    model = tiny.private(tiny.noisy())
    if before:
        tiny.train(model)
    for name, value in settings.items():
        with tiny.nothing_moves(model), pytest.raises(ValueError, match=name):
            setattr(model.optimizer.mechanism, name, value)
    tiny.train(model)
    assert model.optimizer.mechanism.l2_norm_clip == tiny.CLIP


@pytest.mark.parametrize("before", [False, True], ids=["before fit", "between fits"])
def test_a_clip_that_a_class_of_its_own_leaves_unchecked_is_refused_by_fit_before_anything_moves(before):
    class Unchecked(GaussianMechanism):
        l2_norm_clip = 1.0

    model = tiny.private(tfdp.PrivateOptimizer("sgd", Unchecked(1.0, 1.0)))
    if before:
        tiny.train(model)
    model.optimizer.mechanism.l2_norm_clip = 1e-38
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="must lie between"):
        tiny.train(model)


def test_no_noise_and_the_largest_clip_are_ordinary_training():
    model = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=1e20, noise_multiplier=0.0))
    before = model.get_weights()
    tiny.train(model)
    tiny.assert_weights(model, tiny.after_sgd(before, clip=np.inf))
    assert tfdp.privacy_statement(model, delta=1e-5).epsilon is None


def test_noise_that_a_target_finds_at_the_least_clip_is_noise():
    model = wide(tfdp.NoisySGD(1.0, l2_norm_clip=LEAST_CLIP, target_epsilon=1.0, delta=1e-5))
    model.fit(np.zeros((8, 3), "f4"), np.zeros((8, 400), "f4"), batch_size=8, verbose=0)
    moved = np.float64(model.get_weights()[0])
    assert np.std(moved) == pytest.approx(model.optimizer.mechanism.noise_multiplier * LEAST_CLIP / 8, rel=0.1)
