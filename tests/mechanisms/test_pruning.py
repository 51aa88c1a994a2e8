"""Pruned gradients in the two forms that hold."""

import numpy as np
import pytest
import tensorflow as tf

from tests.mechanisms.lots import SHAPES, SIZE, as_tensors, draws_of, flat, lot_of, shaped, weights
from tfdp.mechanisms import (
    CompressedMechanism,
    DirectionalMechanism,
    GaussianMechanism,
    RandomSupportMechanism,
    SecretGenerator,
    SupportMechanism,
)
from tfdp.mechanisms.pruning import kept, largest

CLIP, SIGMA, LOT = 0.7, 1.3, 20.0
KINDS = {
    "compress": lambda **arguments: CompressedMechanism(CLIP, SIGMA, pruning_ratio=0.7, **arguments),
    "support": lambda **arguments: SupportMechanism(CLIP, SIGMA, pruning_ratio=0.7, support_steps=3, **arguments),
    "random": lambda **arguments: RandomSupportMechanism(CLIP, SIGMA, pruning_ratio=0.7, support_steps=3, **arguments),
}
SPHERE = {"s_min": 1.0, "s_max": 1.0}


def start(mechanism):
    return as_tensors(mechanism.initial_state(weights()))


def sums_of(number, seed=0):
    return shaped(np.random.default_rng((seed, number)).normal(size=SIZE))


def walk(mechanism, steps, seed=0, *, traced=False):
    """(gradient, state after, ellipsoid) of each step. Traced, steps are fast and rounded in their own way."""
    state, generator, found = start(mechanism), SecretGenerator(seed=seed), []

    def step(state, sums):
        ellipsoid = mechanism.ellipsoid(state)
        gradient, moved = mechanism.release(state, sums, ellipsoid, LOT, generator)
        return gradient, {**state, **moved}, ellipsoid

    step = tf.function(step, autograph=False) if traced else step
    for number in range(steps):
        gradient, state, ellipsoid = step(state, sums_of(number))
        found.append((flat(gradient), state, ellipsoid))
    return found


@pytest.mark.parametrize("ratio, left", [(0.9, 2), (0.5, 9), (0.01, 17), (0.999, 1)])
def test_the_largest_of_all_weights_together_are_kept(ratio, left):
    values = np.random.default_rng(0).normal(size=SIZE)
    masks = flat(largest(shaped(values), ratio))
    expected = np.zeros(SIZE)
    expected[np.argsort(-np.abs(values))[:left]] = 1
    np.testing.assert_array_equal(masks, expected)


def test_of_equal_values_all_are_kept():
    assert flat(largest(shaped(np.ones(SIZE)), 0.9)).all()
    np.testing.assert_array_equal(flat(kept(largest(shaped(np.zeros(SIZE)), 0.9), shaped(np.zeros(SIZE)))), 0)


def test_what_is_no_number_is_not_kept():
    values = np.arange(1.0, SIZE + 1)
    values[[3, 16]] = np.nan
    masks = flat(largest(shaped(values), 0.9))
    np.testing.assert_array_equal(np.flatnonzero(masks), [14, 15])


def test_compressed_steps_are_those_of_error_feedback_on_the_dense_releases():
    """Karimireddy et al. 2019, algorithm 2, written out in numpy."""
    dense, generator = DirectionalMechanism(CLIP, SIGMA), SecretGenerator(seed=0)
    state, residual = start(dense), np.zeros(SIZE)
    for number, (gradient, after, _) in enumerate(walk(KINDS["compress"](), 6)):
        released, moved = dense.release(state, sums_of(number), dense.ellipsoid(state), LOT, generator)
        state = {**state, **moved}
        corrected = (flat(released).astype("f4") + residual.astype("f4")).astype("f8")
        top = np.argsort(-np.abs(corrected))[:5]
        expected = np.zeros(SIZE)
        expected[top] = corrected[top]
        residual = corrected - expected
        np.testing.assert_allclose(gradient, expected, rtol=1e-6)
        np.testing.assert_allclose(flat(after["residual"]), residual, rtol=1e-6, atol=1e-9)
        for name, values in state.items():  # means and scales see the dense release
            np.testing.assert_array_equal(flat(values), flat(after[name]))


def test_compressed_steps_cost_what_dense_steps_cost():
    for kind in KINDS.values():
        assert kind().event() == GaussianMechanism(CLIP, SIGMA).event()


@pytest.mark.parametrize("bounds", [{}, SPHERE])
def test_a_support_is_of_the_largest_coordinates_of_the_dense_releases(bounds):
    mechanism = KINDS["support"](**bounds)
    mean, support, steps = np.zeros(SIZE), np.ones(SIZE), walk(KINDS["support"](**bounds), 8)
    for number, (gradient, after, ellipsoid) in enumerate(steps):
        if number % 3 == 0:
            assert np.all(gradient != 0)
            assert np.all(np.isfinite(flat(ellipsoid.scales)))
            mean = mechanism.decay * mean + (1 - mechanism.decay) * gradient
            support = np.zeros(SIZE)
            support[np.argsort(-np.abs(mean))[:5]] = 1
        else:
            np.testing.assert_array_equal(gradient != 0, support > 0)
            np.testing.assert_array_equal(np.isfinite(flat(ellipsoid.scales)), support > 0)
        np.testing.assert_array_equal(flat(after["support"]), support)


def test_random_supports_are_drawn_anew_and_nothing_moves_outside_of_them():
    supports = []
    for number, (gradient, after, ellipsoid) in enumerate(walk(KINDS["random"](), 30)):
        inside = np.isfinite(flat(ellipsoid.scales))
        np.testing.assert_array_equal(gradient != 0, inside)
        assert inside.sum() == 5
        np.testing.assert_array_equal(flat(ellipsoid.scales)[inside], 1)  # a sphere in them
        np.testing.assert_array_equal(np.array_equal(flat(after["support"]) > 0, inside), number % 3 != 2)
        supports.append(inside)
    assert np.all(np.any(supports, axis=0))


def test_random_supports_say_nothing_of_what_was_released():
    one, other = (walk(KINDS["random"](), 7, seed) for seed in (0, 1))
    for (gradient, after, _), (gradient_2, after_2, _) in zip(one, other, strict=True):
        assert not np.array_equal(gradient, gradient_2)
        for name, values in after.items():
            np.testing.assert_array_equal(flat(values), flat(after_2[name]))


def test_coordinates_are_on_a_random_support_equally_often():
    """Hypergeometric: 5 of 17 at a time, 600 times. A binomial's standard deviation bounds that of each count."""
    mechanism = RandomSupportMechanism(CLIP, SIGMA, pruning_ratio=0.7, support_steps=1)
    times = sum(np.isfinite(flat(ellipsoid.scales)) for _, _, ellipsoid in walk(mechanism, 600, traced=True))
    assert np.all(np.abs(times - 600 * 5 / 17) <= 5 * np.sqrt(600 * 5 / 17 * 12 / 17))


def test_scales_on_a_random_support_are_of_public_moments():
    public = [4.0, np.full(5, 32.0)]
    mechanism = KINDS["random"](moments=public)
    scales = flat(mechanism.scales(start(mechanism)))
    np.testing.assert_allclose(scales[12:] / scales[:12].mean(), 2.0, rtol=1e-5)  # (32 / 4)^(1/3)


def test_scales_on_a_random_support_cannot_be_learnt():
    with pytest.raises(ValueError, match="a random support has none"):
        KINDS["random"](direction="noisy_gradient")


def test_between_dense_steps_nothing_is_learnt():
    steps = walk(KINDS["support"](), 6)
    for name in ("mean", "square", "noise", "releases", "dense", "support"):
        learnt = [flat(after[name]) for _, after, _ in steps]
        for one, other in ((0, 1), (1, 2), (3, 4), (4, 5)):
            np.testing.assert_array_equal(learnt[one], learnt[other])
        assert name == "support" or not np.array_equal(learnt[2], learnt[3])


def test_dense_steps_are_those_of_directional_noise():
    dense, generator = DirectionalMechanism(CLIP, SIGMA), SecretGenerator(seed=0)
    state = start(dense)
    released, moved = dense.release(state, sums_of(0), dense.ellipsoid(state), LOT, generator)
    ((gradient, after, _),) = walk(KINDS["support"](), 1)
    np.testing.assert_array_equal(gradient, flat(released))
    for name, values in moved.items():
        np.testing.assert_array_equal(flat(after[name]), flat(values))


@pytest.mark.parametrize("kind", ["support", "random"])
def test_sums_on_the_support_differ_by_at_most_the_clip(kind):
    """500 random lots, records, scales and supports: what is released, divided by its scales."""
    mechanism, random = KINDS[kind](), np.random.default_rng(0)
    mechanism.noise_multiplier, generator, reached = 0.0, SecretGenerator(seed=0), 0
    state = start(mechanism)

    @tf.function(autograph=False)
    def released(gradients, present, ellipsoid):
        sums, _ = mechanism.bounded_sum(lot_of(gradients), present, ellipsoid)
        return mechanism.release(state, sums, ellipsoid, LOT, generator)[0]

    for _ in range(500):
        scales = np.where(random.random(SIZE) < 0.3, 10.0 ** random.uniform(-1, 1, SIZE), np.inf)
        ellipsoid = mechanism.ellipsoid(state)._replace(scales=shaped(scales))
        sizes = (10.0 ** random.uniform(-3, 3, 6)).astype("f4")
        gradients = [tf.constant([s * random.normal(size=shape) for s in sizes], tf.float32) for shape in SHAPES]
        present, found = np.ones(6, bool), []
        for change in (None, random.integers(6)):
            if change is not None:
                present[change] = False
            found.append(LOT * flat(released(gradients, tf.constant(present), ellipsoid)))
        outside = np.isinf(scales)
        assert not found[0][outside].any()
        moved = np.linalg.norm(((found[0] - found[1]) / scales)[~outside])
        assert moved <= CLIP * (1 + 1e-5)
        reached += moved > 0.99 * CLIP
    assert reached > 250


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_record_that_is_not_finite_outside_of_the_support_has_no_influence(bad):
    mechanism = KINDS["support"]()
    scales = np.where(np.arange(SIZE) < 5, 1.0, np.inf)
    ellipsoid = mechanism.ellipsoid(start(mechanism))._replace(scales=shaped(scales))
    gradients = [np.ones((2, *shape), "f4") for shape in SHAPES]
    gradients[1][0, 2] = bad
    sums, count = mechanism.bounded_sum(lot_of(gradients), tf.ones([2], tf.bool), ellipsoid)
    np.testing.assert_allclose(flat(sums)[:5], CLIP / np.sqrt(5), rtol=1e-4)
    assert count == 1


def test_noise_of_a_support_has_the_covariance_it_says():
    mechanism = KINDS["support"]()
    *_, (_, state, _) = walk(mechanism, 4)
    ellipsoid, generator = mechanism.ellipsoid(state), SecretGenerator(seed=1)
    zeros = [tf.zeros(shape) for shape in SHAPES]

    draws = draws_of(lambda: mechanism.release(state, zeros, ellipsoid, LOT, generator)[0], 4000)
    scales = flat(ellipsoid.scales)
    inside = np.isfinite(scales)
    assert inside.sum() == 5
    assert not draws[:, ~inside].any()
    normal = draws[:, inside] / (SIGMA * CLIP * scales[inside] / LOT)
    covariance = normal.T @ normal / len(draws)
    assert np.all(np.abs(covariance - np.eye(5)) <= 5 * np.sqrt((1 + np.eye(5)) / len(draws)))


@pytest.mark.parametrize("kind", KINDS)
def test_settings_survive_a_round_trip(kind):
    one = KINDS[kind](s_max=4.0, direction=[np.float32(2.0), np.linspace(1, 9, 5)])
    again = type(one).from_config(one.get_config())
    assert (again.pruning_ratio, again.s_max) == (0.7, 4.0)
    assert getattr(again, "support_steps", 3) == 3
    np.testing.assert_array_equal(again.direction[1], one.direction[1])


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, np.nan, "half", True])
@pytest.mark.parametrize("kind", [CompressedMechanism, SupportMechanism])
def test_ratios_that_prune_nothing_or_everything_are_refused(kind, ratio):
    with pytest.raises(ValueError, match="pruning_ratio must be"):
        kind(CLIP, SIGMA, pruning_ratio=ratio)


@pytest.mark.parametrize("steps", [1, 0, -3, 2.5, True, "ten"])
def test_a_support_is_kept_for_at_least_a_step(steps):
    with pytest.raises(ValueError, match="support_steps must be a whole number of at least 2"):
        SupportMechanism(CLIP, SIGMA, pruning_ratio=0.5, support_steps=steps)
