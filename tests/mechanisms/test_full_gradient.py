"""What one record moves the full gradient by, and the noise it gets."""

import numpy as np
import pytest
import tensorflow as tf

from tests.mechanisms.lots import SHAPES, draws_of, flat, traced_sums, weights
from tests.mechanisms.test_directional import CLIP, SIGMA
from tfdp.accounting import Budget, FullBatch, GaussianEvent, Ledger, epsilon
from tfdp.mechanisms import DirectionalMechanism, FullGradient, SecretGenerator

SIZE = 50


def mechanism(**arguments):
    settings = {"direction": "full_gradient", "direction_noise_multiplier": 5.0} | arguments
    return DirectionalMechanism(CLIP, SIGMA, **settings)


def test_sums_of_neighbouring_data_sets_differ_by_at_most_the_clip():
    """500 random data sets in two physical batches; a record's content is replaced by nothing."""
    full, random, reached = FullGradient(CLIP, 5.0), np.random.default_rng(0), 0
    sums = traced_sums(full.bounded_sum)
    for _ in range(500):
        sizes = 10.0 ** random.uniform(-3, 3, 6)
        records = [[(size * random.normal(size=(3, *shape))).astype("f4") for shape in SHAPES] for size in sizes[:2]]
        present = np.ones((2, 3), bool)

        def total(records, present):
            return sum(sums(g, p) for g, p in zip(records, present, strict=True))

        whole = total(records, present)
        present[random.integers(2), random.integers(3)] = False
        moved = np.linalg.norm(whole - total(records, present))
        assert moved <= CLIP * (1 + 1e-6)
        reached += moved > 0.99 * CLIP
    assert reached > 150


def test_noise_is_isotropic_and_as_large_as_it_says_and_added_before_rounding():
    full, generator = FullGradient(CLIP, 5.0), SecretGenerator(seed=1)
    sums = [tf.fill(shape, tf.constant(1e9, tf.float64)) for shape in SHAPES]
    draws = draws_of(lambda: full.privatise(sums, SIZE, generator), 3000) - 1e9 / SIZE
    normal = draws / (5.0 * CLIP / SIZE)
    covariance = normal.T @ normal / len(draws)
    assert np.all(np.abs(covariance - np.eye(17)) <= 5 * np.sqrt((1 + np.eye(17)) / len(draws)))
    assert np.all(np.abs(normal.mean(0)) <= 5 / np.sqrt(len(draws)))


def test_its_share_of_a_target_is_what_it_costs_by_itself():
    full = FullGradient(CLIP, share=1 / 8)
    spent = Ledger.poisson(sampling_rate=0.1, noise_multiplier=3.0, steps=10)
    full.calibrate(Budget(2.0, 1e-5), FullBatch(SIZE), 7, spent)
    alone = epsilon(Ledger().record(GaussianEvent(full.noise_multiplier), FullBatch(SIZE), 7), delta=1e-5)
    assert 0.99 * 0.25 < alone <= 0.25


def test_scales_follow_the_full_gradient_that_was_released():
    """s = (m / w)^(1/3) up to a factor, against numpy."""
    own, random = mechanism(s_min=1e-3, s_max=1e3), np.random.default_rng(0)
    state = own.initial_state(weights())
    released = [10.0 ** random.uniform(0, 2, shape).astype("f4") for shape in SHAPES]
    for _ in range(20):
        state = {**state, **own.next_state(state, [tf.constant(g) for g in released], own.ellipsoid(state), 20.0)}
    full = [-(10.0 ** random.uniform(0, 2, shape)).astype("f4") for shape in SHAPES]
    state = {**state, **own.with_full_gradient(state, [tf.constant(g) for g in full], SIZE)}
    found = flat(own.scales(state))
    expected = np.cbrt(flat(released) ** 2 / np.abs(flat(full)))
    np.testing.assert_allclose(found / found[0], expected / expected[0], rtol=2e-3)


def test_where_noise_is_all_that_the_full_gradient_shows_it_counts_as_that_noise():
    own = mechanism(s_min=1e-3, s_max=1e3)
    state = own.initial_state(weights())
    state = {**state, **own.with_full_gradient(state, [tf.zeros(shape) for shape in SHAPES], SIZE)}
    least = flat(own._importances(state, [], tf.constant(1e-30)))
    np.testing.assert_allclose(least, 5.0 * CLIP / SIZE, rtol=1e-6)


def test_one_that_is_not_finite_leaves_the_one_before():
    own = mechanism()
    state = own.initial_state(weights())
    kept = [tf.ones(shape) for shape in SHAPES]
    state = {**state, **own.with_full_gradient(state, kept, SIZE)}
    bad = [tf.fill(SHAPES[0], np.inf), tf.ones(SHAPES[1])]
    np.testing.assert_array_equal(flat(own.with_full_gradient(state, bad, SIZE)["full_gradient"]), 1.0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"direction_noise_multiplier": None}, "With noise_multiplier= give its noise as well"),
        ({"direction_noise_multiplier": -1.0}, "direction_noise_multiplier must be"),
        ({"direction_budget": 0.0}, "direction_budget must be a positive"),
        ({"direction_budget": 1.0}, "between 0 and 1"),
        ({"direction_steps": 0}, "direction_steps must be a whole number"),
        ({"direction_steps": 2.5}, "direction_steps must be a whole number"),
        ({"direction_steps": True}, "direction_steps must be a whole number"),
        ({"s_min": 1.0, "s_max": 1.0}, "s_min=s_max=1 makes nothing"),
        ({"direction": "ones"}, "direction_noise_multiplier= goes with"),
        ({"direction": "ones", "direction_noise_multiplier": None, "direction_steps": 3}, "direction_steps= goes with"),
        (
            {"direction": "ones", "direction_noise_multiplier": None, "direction_budget": 0.5},
            "direction_budget= goes with",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        mechanism(**arguments)


def test_its_noise_is_not_given_where_it_is_found():
    with pytest.raises(ValueError, match="neither of the two"):
        DirectionalMechanism(CLIP, None, "full_gradient", direction_noise_multiplier=5.0)


def test_settings_round_trip():
    own = mechanism(direction_steps=7, direction_budget=0.25)
    again = DirectionalMechanism.from_config(own.get_config())
    assert again.get_config() == own.get_config()
    assert (again.full_gradient.noise_multiplier, again.full_gradient.every) == (5.0, 7)
    assert "direction_steps" not in DirectionalMechanism(CLIP, SIGMA).get_config()
