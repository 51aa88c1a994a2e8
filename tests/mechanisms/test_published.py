"""Algorithm 1 of Xiang et al. 2021, as it is published."""

import math

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

from tests.mechanisms.lots import SHAPES, SIZE, as_tensors, draws_of, flat, lot_of, shaped, weights
from tfdp.accounting import Budget, Ledger, Poisson, PublishedEvent, Shuffled
from tfdp.mechanisms import GaussianMechanism, PublishedMechanism, SecretGenerator
from tfdp.mechanisms.published import published_scales

CLIP, LOT, TAU = 0.7, 20.0, 0.0156
NOISE = 1 / math.sqrt(TAU)
TARGET = {"target_epsilon": 1.0, "delta": 1e-5}


def importances(seed=0):
    return np.random.default_rng(seed).lognormal(size=SIZE)


def mechanism(direction="ones", noise_multiplier=NOISE, **arguments):
    return PublishedMechanism(CLIP, noise_multiplier, **TARGET, direction=direction, **arguments)


def given(seed=0, **arguments):
    """A mechanism with such importances, and its state."""
    one = mechanism([part.numpy() for part in shaped(importances(seed))], **arguments)
    return one, as_tensors(one.initial_state(weights()))


def sigma_of(one, state):
    return CLIP * one.noise_multiplier * flat(one.ellipsoid(state).scales)


@pytest.mark.parametrize("seed", range(3))
def test_sigma_solves_the_papers_problem_at_its_delta(seed):
    """minimise sum |w| sigma subject to sum Delta^2 / sigma^2 <= tau (8), Delta of equation 13, against scipy."""
    w = np.random.default_rng(seed).lognormal(size=6) * [1, -1, 1, -1, 1, 1]
    delta = CLIP * w / np.linalg.norm(w)
    (found,) = published_scales([tf.constant(w)], CLIP, TAU)
    np.testing.assert_allclose(np.sum(delta**2 / found.numpy() ** 2), TAU, rtol=1e-12)
    best = scipy.optimize.minimize(
        lambda log_s: np.log(np.sum(np.abs(w) * np.exp(log_s))),
        np.zeros(6),
        constraints={"type": "eq", "fun": lambda log_s: np.log(np.sum(delta**2 * np.exp(-2 * log_s)) / TAU)},
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert best.success
    np.testing.assert_allclose(found, np.exp(best.x), rtol=1e-4)


def test_sigma_is_that_of_equations_11_to_13_written_out():
    w = importances()
    delta = CLIP * w / np.linalg.norm(w)
    c1 = 2 ** (1 / 3) + 2 ** (-2 / 3)
    multiplier = (3 * TAU / (c1 * np.sum((delta * w) ** (2 / 3)))) ** -1.5
    expected = (2 * multiplier * delta**2 / w) ** (1 / 3)
    np.testing.assert_allclose(flat(published_scales(shaped(w), CLIP, TAU)), expected, rtol=1e-5)
    one, state = given()
    np.testing.assert_allclose(sigma_of(one, state), expected, rtol=1e-5)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_only_ratios_of_importances_count(unit):
    w = importances()
    both = [flat(published_scales(shaped(factor * w), CLIP, TAU)) for factor in (1.0, unit)]
    np.testing.assert_allclose(*both, rtol=1e-5)


def test_the_worst_difference_of_the_ball_is_along_the_least_noise():
    """The realised mu, against a search over the ball."""
    one, state = given()
    sigma = sigma_of(one, state)

    def loss(difference):
        difference = CLIP * difference / np.linalg.norm(difference)
        return -np.sum(difference**2 / sigma**2)

    starts = np.random.default_rng(1).normal(size=(30, SIZE))
    found = math.sqrt(-min(scipy.optimize.minimize(loss, start, options={"gtol": 1e-12}).fun for start in starts))
    assert found == pytest.approx(one.realised_worst_case_mu(state), rel=1e-3)
    assert found <= one.realised_worst_case_mu(state)
    assert found > math.sqrt(TAU)  # the constraint that was meant to hold


def test_with_w_of_ones_all_coordinates_have_the_noise_of_tau():
    one = mechanism()
    assert one.initial_state(weights()) == {}
    assert one.ellipsoid({}) is None
    assert one.realised_worst_case_mu() == pytest.approx(math.sqrt(TAU), rel=1e-12)
    np.testing.assert_allclose(
        flat(published_scales(shaped(np.ones(SIZE)), CLIP, TAU)), CLIP / math.sqrt(TAU), rtol=1e-6
    )


def test_noise_has_the_covariance_it_says():
    one, state = given()
    generator = SecretGenerator(seed=1)
    zeros = [tf.zeros(shape) for shape in SHAPES]

    draws = draws_of(lambda: one.release(state, zeros, one.ellipsoid(state), LOT, generator)[0], 4000)
    w = importances()
    delta = CLIP * w / np.linalg.norm(w)
    shape = np.cbrt(delta**2 / w)
    sigma = shape * math.sqrt(np.sum((delta / shape) ** 2) / TAU)
    normal = draws * LOT / sigma
    covariance = normal.T @ normal / len(draws)
    assert np.all(np.abs(covariance - np.eye(SIZE)) <= 5 * np.sqrt((1 + np.eye(SIZE)) / len(draws)))


def test_examples_are_clipped_to_a_ball_whatever_shape_the_noise_has():
    one, state = given()
    gradients = [np.random.default_rng(0).normal(size=(6, *shape)).astype("f4") for shape in SHAPES]
    present = tf.ones([6], tf.bool)
    found, _ = one.bounded_sum(lot_of(gradients), present, one.ellipsoid(state))
    expected, _ = GaussianMechanism(CLIP, 1.0).bounded_sum(lot_of(gradients), present)
    np.testing.assert_array_equal(flat(found), flat(expected))


def test_the_event_holds_the_least_noise_that_was_known_beforehand():
    one, state = given()
    event = one.event(state)
    assert (event.claimed_epsilon, event.claimed_delta) == (1.0, 1e-5)
    least = sigma_of(one, state).min() / CLIP
    assert (1 - 1e-4) * least <= event.noise_multiplier <= least
    assert mechanism().event().noise_multiplier == 1 / math.sqrt(TAU)


def test_no_coordinate_gets_less_noise_than_the_floor():
    floor = 7.5
    one, state = given(sigma_floor=floor)
    free, _ = given()
    sigma, without = sigma_of(one, state), sigma_of(free, state)
    np.testing.assert_allclose(sigma, np.maximum(without, CLIP * floor), rtol=1e-5)
    assert without.min() < CLIP * floor < without.max()
    assert floor * (1 - 1e-4) <= one.event(state).noise_multiplier <= floor * (1 + 1e-6)


def test_a_floor_lifts_the_noise_of_w_of_ones():
    for floor, found in ((2.0, 8.005), (9.0, 9.0)):
        one = mechanism(noise_multiplier=None, sigma_floor=floor)
        one.calibrate(Budget(1.0, 1e-5), Poisson(512 / 55000, 55000), 60 * 55000 // 512, Ledger())
        assert one.noise_multiplier == pytest.approx(found, abs=1e-3)
        assert one.event().noise_multiplier == one.noise_multiplier


def test_the_noise_of_mnist_is_that_of_the_papers_formula():
    one = mechanism(noise_multiplier=None)
    one.calibrate(Budget(1.0, 1e-5), Poisson(512 / 55000, 55000), 60 * 55000 // 512, Ledger())
    assert 1 / one.noise_multiplier**2 == pytest.approx(0.01561, abs=5e-6)


def test_it_needs_lots_of_independent_members():
    with pytest.raises(ValueError, match="not Shuffled sampling"):
        mechanism(noise_multiplier=None).calibrate(Budget(1.0, 1e-5), Shuffled(100, 10, 10), 10, Ledger())


def test_without_noise_there_is_no_event():
    with pytest.raises(ValueError, match="fit finds it"):
        mechanism(noise_multiplier=None).event()


@pytest.mark.parametrize("other", [{"target_epsilon": 2.0}, {"delta": 1e-6}, {"accountant": "rdp"}, {"delta": None}])
def test_its_target_is_the_optimizers(other):
    with pytest.raises(ValueError, match="target_epsilon=1 and delta=1e-05"):
        mechanism().check_target(**{**TARGET, "accountant": "pld", **other})
    mechanism().check_target(**TARGET, accountant="pld")


def test_its_settings_survive_a_round_trip():
    one, state = given(sigma_floor=0.5)
    again = PublishedMechanism.from_config(one.get_config())
    with pytest.raises(ValueError, match="as long as the model has weights"):
        again.event(state)
    again.initial_state(weights())
    assert again.event(state) == one.event(state)
    assert isinstance(again.event(state), PublishedEvent)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"direction": "noisy_gradient"}, "'full_gradient', 'ones', a list of arrays"),
        ({"sigma_floor": 0.0}, "sigma_floor must be a positive"),
        ({"sigma_floor": "1"}, "sigma_floor must be a positive"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        mechanism(**arguments)
