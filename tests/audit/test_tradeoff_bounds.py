"""One-run auditing of trade-off curves, against linear programming, exact mechanisms and simulation."""

import math

import numpy as np
import pytest
from scipy import optimize, special, stats

from tfdp.accounting import epsilon_delta_tradeoff, gdp_epsilon, gdp_tradeoff
from tfdp.audit.bounds import epsilon_lower_bound
from tfdp.audit.tradeoff_bounds import gaussian_epsilon_lower_bound, gaussian_mu_lower_bound, tradeoff_p_value


def largest_probability(epsilon: float, delta: float, canaries: int, guesses: int, correct: int) -> float:
    """Of so many right guesses: a linear program in the probabilities p_i of i right ones.

    For every v: a = sum over i >= v of i p_i / m and b = sum over i >= v - 1 of (c - i) p_i / m satisfy a <= delta + e^epsilon b
    and 1 - b <= delta + e^epsilon (1 - a), the two lines of 1 - f(b).
    """
    numbers = np.arange(guesses + 1)
    growth = math.exp(epsilon)
    rows, limits = [], []
    for v in range(1, guesses + 1):
        a = np.where(numbers >= v, numbers, 0) / canaries
        b = np.where(numbers >= v - 1, guesses - numbers, 0) / canaries
        rows += [a - growth * b, growth * a - b]
        limits += [delta, delta + growth - 1]
    found = optimize.linprog(
        -(numbers >= correct).astype(float), rows, limits, np.ones((1, guesses + 1)), [1.0], method="highs"
    )
    return -found.fun


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 1e-3), (2.0, 0.02)])
@pytest.mark.parametrize(("canaries", "guesses"), [(12, 12), (20, 10)])
def test_the_recursion_finds_the_largest_probability_that_the_inequalities_allow(epsilon, delta, canaries, guesses):
    curve = epsilon_delta_tradeoff([(epsilon, delta)])
    for correct in range(guesses // 2, guesses + 1):
        expected = largest_probability(epsilon, delta, canaries, guesses, correct)
        found = tradeoff_p_value(curve, canaries=canaries, guesses=guesses, correct=correct)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_randomised_response_is_right_no_more_often_than_its_curve_allows():
    curve, canaries = epsilon_delta_tradeoff([(1.0, 0.0)]), 60
    for correct in range(30, 61, 3):
        exact = stats.binom.sf(correct - 1, canaries, special.expit(1.0))
        assert exact <= tradeoff_p_value(curve, canaries=canaries, guesses=canaries, correct=correct) * (1 + 1e-9)


def attacked_gaussians(mu: float, canaries: int, guesses: int, audits: int) -> np.ndarray:
    """How many guesses are right, if each canary's coin moves a Gaussian of its own by mu."""
    random = np.random.default_rng(7)
    coins = random.random((audits, canaries)) < 0.5
    order = np.argsort(mu * coins + random.standard_normal(coins.shape), axis=1)
    coins = np.take_along_axis(coins, order, axis=1)
    return (~coins[:, : guesses // 2]).sum(1) + coins[:, -(guesses // 2) :].sum(1)


def test_the_bound_on_mu_holds_with_its_confidence():
    mu, canaries, guesses = 1.0, 200, 60
    correct = attacked_gaussians(mu, canaries, guesses, 4000)
    bounds = {
        v: gaussian_mu_lower_bound(canaries=canaries, guesses=guesses, correct=v, confidence=0.9)
        for v in set(correct.tolist())
    }
    wrong = np.mean([bounds[v] > mu for v in correct.tolist()])
    assert wrong <= 0.1 + 3 * math.sqrt(0.09 / 4000)
    assert np.median([bounds[v] for v in correct.tolist()]) > 0.5 * mu


@pytest.mark.parametrize("mu", [0.92, 2.0])  # epsilon about 4 and 10 at a delta of 1e-5
def test_the_whole_curve_says_more_of_a_gaussian_than_one_epsilon(mu):
    correct = int(np.median(attacked_gaussians(mu, 1000, 100, 50)))
    counts = {"canaries": 1000, "guesses": 100, "correct": correct, "delta": 1e-5}
    assert 1.3 * epsilon_lower_bound(**counts) < gaussian_epsilon_lower_bound(**counts) < gdp_epsilon(mu, 1e-5)


def test_the_p_value_is_the_level_at_which_mu_is_refuted():
    counts = {"canaries": 300, "guesses": 60, "correct": 50}
    mu = gaussian_mu_lower_bound(**counts, confidence=0.99)
    assert tradeoff_p_value(gdp_tradeoff(mu), **counts) <= 0.01 + 1e-9
    assert tradeoff_p_value(gdp_tradeoff(mu + 1e-4), **counts) > 0.01


def test_nothing_follows_from_guesses_that_chance_makes():
    assert gaussian_mu_lower_bound(canaries=100, guesses=100, correct=50) == 0.0
    assert gaussian_mu_lower_bound(canaries=100, guesses=0, correct=0) == 0.0
    assert tradeoff_p_value(gdp_tradeoff(1.0), canaries=10, guesses=0, correct=0) == 1.0


def test_bad_values():
    with pytest.raises(ValueError, match="at most once"):
        gaussian_mu_lower_bound(canaries=10, guesses=5, correct=6)
    with pytest.raises(ValueError, match="delta must"):
        gaussian_epsilon_lower_bound(canaries=10, guesses=5, correct=5, delta=0.0)
