"""Pruned gradients with error feedback, as they are published."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.mechanisms.lots import SHAPES, SIZE, as_tensors, draws_of, flat, lot_of, shaped, weights
from tfdp.mechanisms import PrunedPublishedMechanism, SecretGenerator

CLIP, LOT, NOISE = 0.7, 6.0, 8.0
TARGET = {"target_epsilon": 1.0, "delta": 1e-5}


def pruned(direction="ones", **arguments):
    return PrunedPublishedMechanism(CLIP, NOISE, **TARGET, pruning_ratio=0.7, direction=direction, **arguments)


def start(mechanism):
    return as_tensors(mechanism.initial_state(weights()))


def test_steps_are_the_papers_written_out():
    """Noiseless: the residual goes to every example before its clip, the mean is pruned, the rest is the next residual."""
    mechanism, residual = pruned(), np.zeros(SIZE)
    mechanism.noise_multiplier = 1e-12
    state, generator = start(mechanism), SecretGenerator(seed=0)
    for number in range(5):
        flat_gradients = np.random.default_rng(number).normal(0, 0.3, (6, SIZE)).astype("f4")
        both = flat_gradients[:, :12].reshape(6, *SHAPES[0]), flat_gradients[:, 12:]
        present = np.arange(6) != 2
        ellipsoid = mechanism.ellipsoid(state)
        sums, _ = mechanism.bounded_sum(lot_of(both), tf.constant(present), ellipsoid)
        gradient, moved = mechanism.release(state, sums, ellipsoid, LOT, generator)

        corrected = flat_gradients[present] + residual
        norms = np.linalg.norm(corrected, axis=1, keepdims=True)
        mean = (corrected * np.minimum(1, CLIP / norms)).sum(0) / LOT
        expected = np.zeros(SIZE)
        top = np.argsort(-np.abs(mean))[:5]
        expected[top] = mean[top]
        residual = mean - expected
        np.testing.assert_allclose(flat(gradient), expected, atol=1e-5)
        np.testing.assert_allclose(flat(moved["residual"]), residual, atol=1e-5)
        state = {**state, **moved}


@pytest.mark.parametrize("direction", ["ones", "arrays"])
def test_noise_goes_to_what_is_kept_alone(direction):
    w = np.random.default_rng(0).lognormal(size=SIZE) if direction == "arrays" else np.ones(SIZE)
    mechanism = pruned([part.numpy() for part in shaped(w)] if direction == "arrays" else "ones")
    state, generator = start(mechanism), SecretGenerator(seed=1)
    values = np.random.default_rng(1).normal(size=SIZE).astype("f4")

    def step():
        return mechanism.release(state, shaped(values), mechanism.ellipsoid(state), LOT, generator)

    draws = draws_of(lambda: step()[0], 4000)
    top = np.zeros(SIZE, bool)
    top[np.argsort(-np.abs(values))[:5]] = True
    assert not draws[:, ~top].any()
    noise = (draws * LOT - values)[:, top]
    u = w[top] / np.linalg.norm(w[top])
    sigma = CLIP * NOISE * np.cbrt(u) * math.sqrt(np.sum(u ** (4 / 3)))
    covariance = (noise / sigma).T @ (noise / sigma) / len(draws)
    assert np.all(np.abs(covariance - np.eye(5)) <= 5 * np.sqrt((1 + np.eye(5)) / len(draws)))
    _, moved = step()
    np.testing.assert_allclose(flat(moved["residual"]), np.where(top, 0, values / LOT), rtol=1e-6)


def test_nothing_is_proven_of_it():
    mechanism = pruned()
    event = mechanism.event(start(mechanism))
    assert event.noise_multiplier is None
    assert (event.claimed_epsilon, event.claimed_delta) == (1.0, 1e-5)
    assert mechanism.realised_worst_case_mu() == math.inf
    assert mechanism.unsaved == ("residual",)


def test_a_floor_would_bound_nothing():
    with pytest.raises(ValueError, match="sigma_floor= bounds nothing"):
        pruned(sigma_floor=1.0)


def test_its_settings_survive_a_round_trip():
    again = PrunedPublishedMechanism.from_config(pruned().get_config())
    assert (again.pruning_ratio, again.target_epsilon, again.noise_multiplier) == (0.7, 1.0, NOISE)
