"""The bound from guesses, against closed forms, the paper's numbers, exact mechanisms and simulation."""

import math

import numpy as np
import pytest
from scipy import special, stats

from tfdp.audit.bounds import epsilon_lower_bound, p_value


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct", "delta", "published"),
    [(100, 100, 75, 1e-4, 0.699), (1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],
)
def test_the_papers_numbers(canaries, guesses, correct, delta, published):
    """Steinke et al. 2023, appendix D and section 7, at a confidence of 95 %; the last one is cut off, not rounded."""
    found = epsilon_lower_bound(canaries=canaries, guesses=guesses, correct=correct, delta=delta)
    assert found == pytest.approx(published, abs=1e-3)


@pytest.mark.parametrize("guesses", [1, 10, 100, 1000])
def test_guesses_that_are_all_right(guesses):
    """By hand: q^r = 0.05 with q = 1 / (1 + e^-epsilon)."""
    right = 0.05 ** (1 / guesses)
    found = epsilon_lower_bound(canaries=1000, guesses=guesses, correct=guesses, delta=0.0)
    assert found == pytest.approx(max(0.0, math.log(right / (1 - right))), abs=2e-6)


@pytest.mark.parametrize(("guesses", "correct"), [(20, 16), (100, 75), (500, 400)])
def test_at_delta_0_it_is_the_exact_bound_on_a_probability(guesses, correct):
    """Of Clopper and Pearson 1934, for the probability of a right guess."""
    share = stats.binomtest(correct, guesses, alternative="greater").proportion_ci(0.99, method="exact").low
    found = epsilon_lower_bound(canaries=guesses, guesses=guesses, correct=correct, delta=0.0, confidence=0.99)
    assert found == pytest.approx(special.logit(share), abs=2e-6)


def leaky_tail(canaries: int, epsilon: float, delta: float, group: np.ndarray, correct: int) -> np.ndarray:
    """P[correct or more] of a mechanism that is (epsilon, delta)-private and guesses all: randomised response, which with
    probability m delta / group shows the coins of so many canaries, drawn at random, as they are. Each one is shown with
    probability delta."""
    right = special.expit(epsilon)
    shown = canaries * delta / group
    rest = stats.binom.sf(correct - group - 1, canaries - group, right)
    return (1 - shown) * stats.binom.sf(correct - 1, canaries, right) + shown * rest


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_no_leaky_mechanism_is_right_more_often_than_the_bound_allows(epsilon, delta):
    canaries, groups = 200, np.arange(1, 201)
    for correct in range(100, canaries + 1, 5):
        exact = leaky_tail(canaries, epsilon, delta, groups, correct)
        assert max(exact) <= p_value(epsilon, delta, canaries=canaries, guesses=canaries, correct=correct) * (1 + 1e-12)


def test_what_the_bound_pays_for_delta_is_what_mechanisms_use_to_a_factor():
    """A leak of i canaries makes i (1 - q) more guesses right, as the others were right already; the bound allows for i, twice."""
    canaries, epsilon, delta = 200, 1.0, 1e-4
    right = special.expit(epsilon)
    for correct in range(int(canaries * right) + 15, 200, 5):
        without = stats.binom.sf(correct - 1, canaries, right)
        paid = p_value(epsilon, delta, canaries=canaries, guesses=canaries, correct=correct) - without
        used = max(leaky_tail(canaries, epsilon, delta, np.arange(1, 201), correct)) - without
        assert used <= paid <= 2.2 * used / (1 - right)


def test_the_bound_holds_with_its_confidence_and_hardly_more():
    """Randomised response of known epsilon: the bound is above it in at most 10 % of all audits, and nearly in so many."""
    epsilon, canaries, audits = 1.5, 300, 20_000
    correct = np.random.default_rng(1).binomial(canaries, special.expit(epsilon), audits)
    bounds = {
        v: epsilon_lower_bound(canaries=canaries, guesses=canaries, correct=v, delta=0.0, confidence=0.9)
        for v in set(correct.tolist())
    }
    wrong = np.mean([bounds[v] > epsilon for v in correct.tolist()])
    assert 0.07 < wrong <= 0.1 + 3 * math.sqrt(0.09 / audits)


def test_more_right_guesses_give_a_larger_bound_and_more_delta_a_smaller_one():
    by_correct = [epsilon_lower_bound(canaries=400, guesses=100, correct=v, delta=1e-5) for v in range(101)]
    assert all(np.diff(by_correct) >= 0)
    by_delta = [epsilon_lower_bound(canaries=400, guesses=100, correct=90, delta=d) for d in (0, 1e-6, 1e-4, 1e-2)]
    assert all(np.diff(by_delta) < 0)


def test_nothing_follows_from_guesses_that_chance_makes():
    for counts in ((100, 0, 0), (100, 100, 50), (100, 10, 3)):
        named = dict(zip(("canaries", "guesses", "correct"), counts, strict=True))
        assert epsilon_lower_bound(**named, delta=1e-5) == 0.0
    assert epsilon_lower_bound(canaries=1000, guesses=100, correct=100, delta=0.5) == 0.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"canaries": 0}, "canaries must be at least 1"),
        ({"guesses": 101}, "at most once"),
        ({"correct": 61}, "at most once"),
        ({"correct": 50.0}, "correct must be a whole number"),
        ({"delta": 1.0}, "delta must be below 1"),
        ({"delta": -1e-5}, "delta must not be negative"),
        ({"confidence": 1.0}, "confidence must lie strictly"),
        ({"confidence": "95 %"}, "confidence must be a finite number"),
    ],
)
def test_bad_values(changed, message):
    with pytest.raises(ValueError, match=message):
        epsilon_lower_bound(**{"canaries": 100, "guesses": 60, "correct": 50, "delta": 1e-5} | changed)
