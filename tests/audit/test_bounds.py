"""The bound from guesses, against closed forms, the paper's numbers, exact mechanisms and simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, sparse, special, stats

from tfdp.audit import bounds
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


def most_that_any_release_allows(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """P[correct or more], the largest over all (epsilon, delta)-private maps from coins to guesses: a linear program."""
    coins = np.array(list(itertools.product([0, 1], repeat=canaries)))
    told = [
        (list(places), guess)
        for places in itertools.combinations(range(canaries), guesses)
        for guess in itertools.product([0, 1], repeat=guesses)
    ]
    states, outputs = len(coins), len(told)
    reached = np.array([[np.sum(coin[places] == guess) >= correct for places, guess in told] for coin in coins])
    pairs = np.argwhere(np.abs(coins[:, None] - coins[None]).sum(2) == 1)
    rows = np.arange(len(pairs))
    chosen = [sparse.csr_matrix((np.ones(len(pairs)), (rows, pairs[:, j])), (len(pairs), states)) for j in (0, 1)]
    one = sparse.eye(outputs)  # a slack for each pair and output, and at most delta of it for each pair
    excess = sparse.kron(chosen[0] - math.exp(epsilon) * chosen[1], one)
    slack = sparse.eye(len(pairs) * outputs)
    of_pair = sparse.kron(sparse.eye(len(pairs)), np.ones((1, outputs)))
    private = sparse.bmat([[excess, -slack], [sparse.csr_matrix((len(pairs), states * outputs)), of_pair]])
    limits = np.concatenate([np.zeros(len(pairs) * outputs), np.full(len(pairs), delta)])
    whole = sparse.kron(sparse.eye(states), np.ones((1, outputs)))
    whole = sparse.hstack([whole, sparse.csr_matrix((states, len(pairs) * outputs))])
    wanted = np.concatenate([reached.ravel() / -states, np.zeros(len(pairs) * outputs)])
    return -optimize.linprog(wanted, private, limits, whole, np.ones(states), method="highs").fun


@pytest.mark.parametrize(("canaries", "guesses"), [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3)])
@pytest.mark.parametrize("epsilon", [0.3, 2.5])
def test_no_release_at_all_is_right_more_often_than_the_bound_allows(canaries, guesses, epsilon):
    """Also where nearly every number of right guesses is reached, and the published bound is too small."""
    delta, right = 0.01, special.expit(epsilon)
    for correct in range(1, guesses + 1):
        most = most_that_any_release_allows(canaries, guesses, correct, epsilon, delta)
        assert most <= p_value(epsilon, delta, canaries=canaries, guesses=guesses, correct=correct) + 1e-9
        tail = stats.binom.sf(correct - 1, guesses, right)
        paid = canaries * delta * bounds._most_for_delta(right, guesses, correct)
        assert most == pytest.approx(min(1.0, tail + paid), abs=1e-9)


@pytest.mark.parametrize(("guesses", "epsilon"), list(itertools.product((1, 4, 30, 300), (0.1, 1.0, 4.0))))
def test_where_something_is_refuted_the_published_bound_is_larger_than_it_need_be(guesses, epsilon):
    """Else numbers of the paper's program would not be ours."""
    right, numbers = special.expit(epsilon), np.arange(1, guesses + 1)
    refuting = numbers[stats.binom.sf(numbers - 1, guesses, right) <= 0.5]
    for correct in refuting[:: max(1, len(refuting) // 8)]:
        below = stats.binom.cdf(correct - 1, guesses, right)
        below = below - stats.binom.cdf(correct - 1 - np.arange(1, correct + 1), guesses, right)
        published = 2 * np.max(below / np.arange(1, correct + 1))
        assert bounds._most_for_delta(right, guesses, int(correct)) < published


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
