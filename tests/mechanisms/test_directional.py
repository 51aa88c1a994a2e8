"""The scales of directional noise, and what clip and noise make of them."""

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

from tests.mechanisms.lots import SHAPES, SIZE, as_tensors, draws_of, flat, lot_of, shaped, traced_sums, weights
from tfdp.gradients import Ellipsoid
from tfdp.mechanisms import DirectionalMechanism, GaussianMechanism, SecretGenerator

CLIP, SIGMA, LOT = 0.7, 1.3, 20.0


def after(mechanism, releases):
    """The mechanism's state once it has released these."""
    state = as_tensors(mechanism.initial_state(weights()))
    for released in releases:
        released = [tf.constant(g) for g in released]
        state = {**state, **mechanism.next_state(state, released, mechanism.ellipsoid(state), LOT)}
    return state


def some_releases(steps=30, seed=0):
    """Coordinates of very different size, far above the noise."""
    random = np.random.default_rng(seed)
    sizes = [10.0 ** random.uniform(0, 2, shape) for shape in SHAPES]
    return [[(size * random.normal(1, 0.3, size.shape)).astype("f4") for size in sizes] for _ in range(steps)]


def test_before_the_first_release_noise_is_isotropic():
    mechanism = DirectionalMechanism(CLIP, SIGMA)
    for scale in mechanism.scales(mechanism.initial_state(weights())):
        np.testing.assert_array_equal(scale, np.ones(scale.shape))


@pytest.mark.parametrize("of_a_function", [False, True])
def test_public_moments_shape_the_noise_from_the_first_step_on(of_a_function):
    """(m / w)^(1/3), scaled so that the sum of m / s^2 is that of m."""
    given = [np.random.default_rng(1).lognormal(0, 3, shape).astype("f4") for shape in SHAPES]
    of_shape = dict(zip(SHAPES, given, strict=True))
    moments = (lambda weight: of_shape[tuple(weight.shape)]) if of_a_function else given
    mechanism = DirectionalMechanism(CLIP, SIGMA, "ones", moments=moments, s_min=1e-6, s_max=1e6)
    m = flat(given).astype("f8")
    expected = np.cbrt(m) * np.sqrt(np.sum(m / np.cbrt(m) ** 2) / np.sum(m))
    np.testing.assert_allclose(
        flat(mechanism.scales(as_tensors(mechanism.initial_state(weights())))), expected, rtol=1e-4
    )
    np.testing.assert_allclose(flat(mechanism.scales(after(mechanism, some_releases(3)))), expected, rtol=1e-4)


def test_public_moments_go_with_importances_from_releases():
    releases, m = some_releases(), [np.full(shape, 4.0, "f4") for shape in SHAPES]
    mechanism = DirectionalMechanism(CLIP, SIGMA, moments=m, s_min=1e-6, s_max=1e6)
    np.testing.assert_array_equal(flat(mechanism.scales(as_tensors(mechanism.initial_state(weights())))), 1.0)
    decay = 0.99 ** np.arange(len(releases))[::-1]
    w = np.abs((decay[:, None] * [flat(released) for released in releases]).sum(0))
    found = flat(mechanism.scales(after(mechanism, releases)))
    np.testing.assert_allclose(found / found[0], np.cbrt(w[0] / w), rtol=1e-2)


def test_the_bounds_are_wider_where_moments_are_known():
    learnt, known = DirectionalMechanism(CLIP, SIGMA), DirectionalMechanism(CLIP, SIGMA, moments=lambda weight: 1.0)
    assert (learnt.s_min, learnt.s_max, known.s_min, known.s_max) == (0.1, 10, 1e-3, 1e3)
    assert DirectionalMechanism(CLIP, SIGMA, moments=lambda weight: 1.0, s_max=5.0).s_max == 5


@pytest.mark.parametrize("moments", ["ones", 3.0, [1.0], [np.ones(3), 1.0], [-1.0, 1.0], [np.nan, 1.0], ["a", 1.0]])
def test_moments_that_say_nothing_are_refused(moments):
    with pytest.raises(ValueError, match="moments"):
        DirectionalMechanism(CLIP, SIGMA, moments=moments).initial_state(weights())


@pytest.mark.parametrize("direction", ["noisy_gradient", "ones", [np.float32(2.0), np.linspace(1, 9, 5)]])
def test_scales_are_the_least_weighted_noise_at_a_given_size_of_the_clipped_gradients(direction):
    """minimise sum w s subject to sum m / s^2 = sum m, against scipy."""
    mechanism = DirectionalMechanism(CLIP, SIGMA, direction, s_min=1e-6, s_max=1e6)
    releases = some_releases()
    found = flat(mechanism.scales(after(mechanism, releases)))
    decay = 0.99 ** np.arange(len(releases))[::-1]
    values = np.array([flat(released) for released in releases])
    m = (decay[:, None] * values**2).sum(0) / decay.sum()  # the noise is a thousandth of them
    w = {
        "noisy_gradient": lambda: np.abs((decay[:, None] * values).sum(0) / decay.sum()),
        "ones": lambda: np.ones(len(m)),
    }.get(direction if isinstance(direction, str) else "", lambda: np.r_[np.full(12, 2.0), np.linspace(1, 9, 5)])()
    best = scipy.optimize.minimize(
        lambda log_s: np.log(np.sum(w * np.exp(log_s))),
        np.zeros(len(m)),
        constraints={"type": "eq", "fun": lambda log_s: np.log(np.sum(m * np.exp(-2 * log_s)) / m.sum())},
        options={"maxiter": 2000, "ftol": 1e-12},
    )
    assert best.success
    np.testing.assert_allclose(found, np.exp(best.x), rtol=2e-3)
    np.testing.assert_allclose(np.sum(m / found**2), m.sum(), rtol=2e-3)


def test_scales_stay_within_their_bounds():
    mechanism = DirectionalMechanism(CLIP, SIGMA, s_min=0.5, s_max=2.0)
    found = flat(mechanism.scales(after(mechanism, some_releases())))
    assert found.min() == 0.5
    assert found.max() <= 2.0


def test_where_noise_is_all_there_is_it_is_nearly_isotropic():
    mechanism, random = DirectionalMechanism(CLIP, SIGMA), np.random.default_rng(0)
    state = as_tensors(mechanism.initial_state(weights()))

    @tf.function(autograph=False)
    def next_state(state, normals):
        scales = mechanism.scales(state)
        noise = [SIGMA * CLIP / LOT * s * z for s, z in zip(scales, normals, strict=True)]
        return {**state, **mechanism.next_state(state, noise, Ellipsoid(scales), LOT)}

    for _ in range(300):
        state = next_state(state, shaped(random.normal(size=SIZE)))
    found = flat(mechanism.scales(state))
    assert found.min() > 0.6
    assert found.max() < 1.6


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_state_that_is_not_finite_leaves_an_isotropic_mechanism(bad):
    mechanism = DirectionalMechanism(CLIP, SIGMA)
    state = after(mechanism, some_releases(3))
    state["square"][0] = tf.fill(SHAPES[0], bad)
    found = flat(mechanism.scales(state))
    assert np.all((found >= mechanism.s_min) & (found <= mechanism.s_max))


def test_scaled_sums_of_neighbouring_lots_differ_by_at_most_the_clip():
    """1,000 random lots, records and scales."""
    mechanism, random = DirectionalMechanism(CLIP, SIGMA), np.random.default_rng(0)
    sums, reached = traced_sums(mechanism.bounded_sum), 0
    for _ in range(1000):
        scales = [(10.0 ** random.uniform(-1, 1, shape)).astype("f4") for shape in SHAPES]
        sizes = 10.0 ** random.uniform(-3, 3, 6)
        lot = [(size * random.normal(size=(6, *shape))).astype("f4") for size, shape in zip(sizes, SHAPES)]  # noqa: B905
        present = np.ones(6, bool)
        whole = sums(lot, present, scales)
        present[random.integers(6)] = False
        moved = np.linalg.norm((whole - sums(lot, present, scales)) / flat(scales))
        assert moved <= CLIP * (1 + 1e-6)
        reached += moved > 0.99 * CLIP
    assert reached > 500


def test_the_noise_has_the_standard_deviations_it_says():
    mechanism = DirectionalMechanism(CLIP, SIGMA)
    generator, random = SecretGenerator(seed=1), np.random.default_rng(0)
    scales = [tf.constant((10.0 ** random.uniform(-1, 1, shape)).astype("f4")) for shape in SHAPES]
    zeros = [tf.zeros(shape) for shape in SHAPES]
    draws = draws_of(lambda: mechanism.privatise(zeros, LOT, generator, Ellipsoid(scales)), 4000)
    stddevs = SIGMA * CLIP * flat(scales) / LOT
    normal = draws / stddevs
    covariance = normal.T @ normal / len(draws)
    errors = np.sqrt((1 + np.eye(17)) / len(draws))
    assert np.all(np.abs(covariance - np.eye(17)) <= 5 * errors)


def test_with_scales_of_one_it_is_the_mechanism_of_noisy_sgd():
    mechanism, random = DirectionalMechanism(CLIP, SIGMA, s_min=1, s_max=1), np.random.default_rng(0)
    gradients = [random.normal(size=(6, *shape)).astype("f4") for shape in SHAPES]
    assert mechanism.initial_state(weights()) == {}
    assert mechanism.ellipsoid({}) is None
    assert mechanism.event() == GaussianMechanism(CLIP, SIGMA).event()
    present = tf.ones([6], tf.bool)
    for one, other in zip(
        mechanism.bounded_sum(lot_of(gradients), present)[0],
        GaussianMechanism(CLIP, SIGMA).bounded_sum(lot_of(gradients), present)[0],
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"direction": "full"}, "'full_gradient', 'ones'"),
        ({"direction": 3}, "a function of a weight"),
        ({"s_min": 0.0}, "s_min must be a positive"),
        ({"s_min": 2.0}, "must lie between"),
        ({"s_max": 0.5}, "must lie between"),
        ({"s_max": 1e300}, "between 1e-06 and 1e"),
        ({"s_min": "0.1"}, "s_min must be a positive"),
        ({"decay": 1.0}, "decay must be at most 0.99999"),
        ({"decay": 1 - 1e-9}, "decay must be at most 0.99999"),
        ({"direction": [["a"]]}, "arrays of numbers"),
        ({"decay": "fast"}, "decay must be a positive"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        DirectionalMechanism(CLIP, SIGMA, **arguments)


@pytest.mark.parametrize(
    "direction, message",
    [
        ([np.ones(3)], "1 arrays, but the model has 2"),
        ([1.0, -1.0], "positive finite"),
        ([1.0, np.nan], "positive finite"),
        ([None, 1.0], "positive finite"),
        ([1e-30, 1e30], r"differ by a factor of 1e\+30 at most, not 1e\+60"),
        ([], "0 arrays, but the model has 2"),
        ([1.0, np.ones(4)], r"can't be spread over the weight's \(5,\)"),
        (lambda weight: 0.0, "positive finite"),
    ],
)
@pytest.mark.parametrize("bounds", [{}, {"s_min": 1.0, "s_max": 1.0}])
def test_directions_that_do_not_fit_the_model(direction, message, bounds):
    with pytest.raises(ValueError, match=message):
        DirectionalMechanism(CLIP, SIGMA, direction, **bounds).initial_state(weights())


@pytest.mark.parametrize("unit", [1e-9, 1e6])
def test_only_ratios_of_a_direction_count(unit):
    found = []
    for factor in (1.0, unit):
        direction = [np.float32(2 * factor), np.linspace(1, 9, 5) * factor]
        mechanism = DirectionalMechanism(CLIP, SIGMA, direction)
        found.append(flat(mechanism.scales(after(mechanism, some_releases()))))
    np.testing.assert_allclose(*found, rtol=1e-5)
