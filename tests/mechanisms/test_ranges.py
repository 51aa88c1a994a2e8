"""Clips and noise that float32 can hold, in every mechanism; and that there is noise at the ends of what is allowed."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.mechanisms.lots import SHAPES, as_tensors, draws_of, flat, lot_of, weights
from tfdp.accounting import Budget, Ledger, Poisson
from tfdp.mechanisms import (
    AdaClipMechanism,
    CompressedMechanism,
    DirectionalMechanism,
    EncodedMechanism,
    FullGradient,
    GaussianMechanism,
    GaussianOnGridMechanism,
    PrunedPublishedMechanism,
    PublishedMechanism,
    RandomSupportMechanism,
    SecretGenerator,
    SupportMechanism,
)
from tfdp.mechanisms.published_direction import PublishedDirection
from tfdp.mechanisms.ranges import LARGEST_CLIP, LEAST_CLIP, LEAST_STDDEV
from tfdp.noise import Cauchy, Gaussian, StudentT

PAPER = {"target_epsilon": 2.0, "delta": 1e-5, "direction": "ones"}
KINDS = {
    "gaussian": GaussianMechanism,
    "grid": GaussianOnGridMechanism,
    "directional": DirectionalMechanism,
    "compress": lambda *of: CompressedMechanism(*of, pruning_ratio=0.5),
    "support": lambda *of: SupportMechanism(*of, pruning_ratio=0.5),
    "random": lambda *of: RandomSupportMechanism(*of, pruning_ratio=0.5),
    "adaclip": AdaClipMechanism,
    "encoded": EncodedMechanism,
    "full gradient": FullGradient,
    "published": lambda *of: PublishedMechanism(*of, **PAPER),
    "pruned as published": lambda *of: PrunedPublishedMechanism(*of, pruning_ratio=0.5, **PAPER),
    "direction as published": PublishedDirection,
}


@pytest.mark.parametrize("clip", [1e-38, 1e-45, 9.9e-21, 1.1e20, 3e38, 1e300])
@pytest.mark.parametrize("kind", KINDS)
def test_a_clip_that_float32_could_lose_is_refused_by_every_mechanism(kind, clip):
    with pytest.raises(ValueError, match=r"l2_norm_clip=.* must lie between 1e-20 and 1e\+20"):
        KINDS[kind](clip, 1.0)


@pytest.mark.parametrize("clip", [LEAST_CLIP, LARGEST_CLIP])
@pytest.mark.parametrize("kind", KINDS)
def test_clips_at_the_ends_are_allowed_with_noise_and_without(kind, clip):
    for noise in (0.0, 1e-3, 1.0, None):
        assert KINDS[kind](clip, noise).l2_norm_clip == clip


@pytest.mark.parametrize(
    ("name", "value"), [("l2_norm_clip", 1e-38), ("l2_norm_clip", 1e30), ("noise_multiplier", 1e-31)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_assigned_later_is_checked_as_well_and_changes_nothing_if_refused(kind, name, value):
    mechanism = KINDS[kind](1.0, 1.0)
    with pytest.raises(ValueError, match=name):
        setattr(mechanism, name, value)
    assert (mechanism.l2_norm_clip, mechanism.noise_multiplier) == (1.0, 1.0)


@pytest.mark.parametrize(("clip", "noise"), [(1.0, 1e-31), (1e-20, 1e-11), (1.0, 1e31), (1e20, 1e11), (1.0, 5e-324)])
@pytest.mark.parametrize("kind", KINDS)
def test_noise_whose_standard_deviation_float32_could_lose_is_refused(kind, clip, noise):
    with pytest.raises(ValueError, match=r"noise_multiplier=.* does not go with"):
        KINDS[kind](clip, noise)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DirectionalMechanism(1e-20, 1e-5, s_min=1e-6),
        lambda: DirectionalMechanism(1e20, 1e5, s_max=1e6),
        lambda: AdaClipMechanism(1e-20, 1e-3, variance_min=1e-24),
        lambda: AdaClipMechanism(1e20, 1.0, variance_max=1e12),
        lambda: PublishedMechanism(1e-20, sigma_floor=1e-11, **PAPER),
        lambda: EncodedMechanism(1.0, 1.0, noise=Gaussian(1e-31)),
        lambda: EncodedMechanism(1e-20, 1.0, noise=Cauchy(1e-11)),
        lambda: EncodedMechanism(1.0, 1e-20, noise=StudentT(9, stddev=1e-11)),
    ],
)
def test_scales_and_sizes_of_noise_count(make):
    with pytest.raises(ValueError, match="does not go with"):
        make()


def test_scales_count_for_noise_that_is_assigned_later():
    mechanism = DirectionalMechanism(1e-20, s_min=1e-6)
    with pytest.raises(ValueError, match="scales of 1e-06"):
        mechanism.noise_multiplier = 1e-5
    mechanism.noise_multiplier = 1.0


class Found(Budget):
    """A budget that always finds the same noise."""

    def noise_multiplier(self, *_, **__):
        return 1e-3


def test_noise_that_a_calibration_finds_is_checked_before_it_is_kept():
    mechanism = DirectionalMechanism(1e-20, s_min=1e-6)
    mechanism.s_min = 1e-9
    with pytest.raises(ValueError, match=r"noise_multiplier=0\.001 does not go with"):
        mechanism.calibrate(Found(1.0, 1e-5), Poisson(0.1), 10, Ledger())
    assert mechanism.noise_multiplier is None


@pytest.mark.parametrize("broken", [1e-38, 1e30])
def test_a_clip_put_past_the_setting_is_found_by_the_check_before_fit(broken):
    mechanism = GaussianMechanism(1.0, 1.0)
    vars(mechanism)["l2_norm_clip"] = broken
    with pytest.raises(ValueError, match="must lie between"):
        mechanism.check_noise()


@pytest.mark.parametrize("kind", KINDS)
def test_no_clip_at_all_is_refused_when_it_is_made_and_before_fit(kind):
    for noise in (0.0, 1.0, None):
        with pytest.raises(ValueError, match="l2_norm_clip must be a positive finite number"):
            KINDS[kind](math.inf, noise)
    mechanism = KINDS[kind](1.0, 1.0)
    mechanism.l2_norm_clip = math.inf
    with pytest.raises(ValueError, match="l2_norm_clip must be a positive finite number"):
        mechanism.check_noise()


def test_without_noise_any_clip_within_the_range_is_allowed():
    mechanism = GaussianMechanism(1e20, 0.0)
    mechanism.l2_norm_clip = 1e-20
    assert mechanism.noise_multiplier == 0


RELEASING = [kind for kind in KINDS if kind not in ("pruned as published", "direction as published", "compress")]
LOT = 256.0


@pytest.mark.parametrize("clip", [LEAST_CLIP, LARGEST_CLIP])
@pytest.mark.parametrize("kind", RELEASING)
def test_a_release_at_the_ends_of_the_range_has_the_noise_it_says(kind, clip):
    """Without any record: what is released is the noise, in units of noise_multiplier * clip / lot size."""
    mechanism, generator = KINDS[kind](clip, 1.5), SecretGenerator(seed=1)
    state = as_tensors(mechanism.initial_state(weights()))
    ellipsoid = mechanism.ellipsoid(state)
    sums = [tf.zeros(shape, mechanism.sum_dtype) for shape in SHAPES]
    draws = draws_of(lambda: mechanism.release(state, sums, ellipsoid, LOT, generator)[0], 2000)
    scales = np.ones(17) if ellipsoid is None else flat(ellipsoid.scales)
    inside = np.isfinite(scales)
    noise = np.float64(draws)[:, inside] / scales[inside] / (1.5 * clip / LOT)
    spread = np.sqrt(np.mean(np.square(noise), axis=0))
    np.testing.assert_allclose(spread, 1.0, atol=0.15)
    assert np.mean(noise == 0) < 0.01


@pytest.mark.parametrize("clip", [LEAST_CLIP, LARGEST_CLIP])
@pytest.mark.parametrize("scale", [1e-38, 1e-25, 1e-19, 1.0, 1e15, 1e18])
@pytest.mark.parametrize("kind", ["gaussian", "grid", "directional", "adaclip"])
def test_an_examples_contribution_is_at_most_a_clip_at_the_ends_of_the_range(kind, scale, clip):
    mechanism = KINDS[kind](clip, 1.0)
    state = as_tensors(mechanism.initial_state(weights()))
    random = np.random.default_rng(0)
    gradients = [np.float32(scale * random.normal(size=(1, *shape))) for shape in SHAPES]
    ellipsoid = mechanism.ellipsoid(state)
    found = mechanism.bounded_sum(lot_of(gradients), tf.constant([True]), *([ellipsoid] if ellipsoid else []))[0]
    scales = np.ones(17) if ellipsoid is None else flat(ellipsoid.scales)
    assert np.linalg.norm(np.float64(flat(found)) / scales) <= clip


def test_the_least_standard_deviation_is_a_normal_float32_after_any_lot():
    assert np.finfo(np.float32).smallest_normal < LEAST_STDDEV / 1e6
    assert math.isfinite(float(np.float32(1 / LEAST_STDDEV * 10.2)))
