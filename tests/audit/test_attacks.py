"""Scores of the attacks, against densities and simulation."""

import numpy as np
import pytest
from scipy import stats

from tfdp.audit.attacks import log_likelihood_ratio, sampled_log_ratio
from tfdp.audit.run import correct_guesses


@pytest.mark.parametrize(("shift", "rate"), [(0.5, 0.1), (2.0, 0.9), (30.0, 0.01)])
def test_the_ratio_is_that_of_the_densities(shift, rate):
    moves = np.linspace(-4, 6, 41)
    present = (1 - rate) * stats.norm.pdf(moves) + rate * stats.norm.pdf(moves, shift)
    expected = np.log(present / stats.norm.pdf(moves))
    np.testing.assert_allclose(sampled_log_ratio(moves, shift, rate), expected, rtol=1e-9, atol=1e-12)


def simulated(canaries, steps, noise_multiplier, rate, seed, unit=1e-3, offset=0.2):
    """Coins and moves of weights, in a unit that the attack is not told."""
    random = np.random.default_rng(seed)
    included = random.random(canaries) < 0.5
    in_lot = included & (random.random((steps, canaries)) < rate)
    return included, unit * (offset + in_lot + noise_multiplier * random.standard_normal((steps, canaries)))


def test_neither_the_unit_nor_the_origin_of_the_moves_counts():
    _, moves = simulated(50, 10, 1.0, 0.25, seed=1)
    expected = log_likelihood_ratio(moves, 1.0, 0.25)
    np.testing.assert_allclose(log_likelihood_ratio(7 * moves + 3, 1.0, 0.25), expected, rtol=1e-6)


def test_it_finds_more_than_the_sum_of_the_moves_where_lots_are_small():
    found = []
    for seed in range(40):
        included, moves = simulated(1000, 40, 0.7, 0.1, seed)
        scores = log_likelihood_ratio(moves, 0.7, 0.1), moves.sum(axis=0)
        found.append([correct_guesses(score, included, 100) for score in scores])
    ratio, total = np.median(found, axis=0)
    assert ratio >= total + 5
