"""The same guesses against a whole trade-off curve: Mahloujifar, Melis and Chaudhuri 2024 (arXiv:2410.22235).

One (epsilon, delta) says little of a mechanism; its trade-off curve f says all. Let p_i be the probability that i of c guesses
are right, of m canaries. For every v

    sum over i >= v of i p_i / m  <=  1 - f(sum over i >= v - 1 of (c - i) p_i / m).

(Take a canary at random, and the event that it is guessed rightly and at least v guesses are right. Turn its coin alone: the
same release now has it guessed wrongly, with at least v - 1 right. Both events are one set of releases, seen under the two
coins, so f relates them for every canary and every outcome of the other coins; 1 - f is concave, so it relates the means.)
"""

from __future__ import annotations

from tfdp.accounting import Tradeoff, gdp_epsilon, gdp_tradeoff
from tfdp.accounting.checks import delta as checked_delta
from tfdp.audit.bounds import checked_confidence, checked_counts, largest_refuted

_HALVINGS = 50


def tradeoff_p_value(curve: Tradeoff, *, canaries: int, guesses: int, correct: int) -> float:
    """How likely so many correct guesses are, at most, if no attack on training is better than the curve.

    Formal guarantee: let the coins be fair and independent, and the guesses any function of a release whose trade-off curve,
    between one canary in and the same one left out, is nowhere below ``curve``; about as many canaries as was fixed
    beforehand. Then P[correct >= v] is at most the result for v.
    """
    counts = checked_counts(canaries, guesses, correct)
    if _allows(curve, 1.0, *counts):
        return 1.0
    low, high = 0.0, 1.0  # of a probability of 0 nothing is refuted
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _allows(curve, middle, *counts) else (low, middle)
    return high


def gaussian_mu_lower_bound(*, canaries: int, guesses: int, correct: int, confidence: float = 0.95) -> float:
    """The largest mu for which so many correct guesses refute Gaussian differential privacy.

    Formal guarantee: if training is mu-GDP, the result is above mu with probability at most 1 - confidence.
    """
    counts = checked_counts(canaries, guesses, correct)
    level = 1 - checked_confidence(confidence)
    return largest_refuted(lambda mu: not _allows(gdp_tradeoff(mu), level, *counts))


def gaussian_epsilon_lower_bound(
    *, canaries: int, guesses: int, correct: int, delta: float, confidence: float = 0.95
) -> float:
    """Epsilon at ``delta`` of the Gaussian mechanism with ``gaussian_mu_lower_bound``.

    A lower bound on the epsilon of training only if its trade-off curve is that of a Gaussian: of full batches it is, of many
    steps on sampled lots nearly. In general it says that the curve is somewhere below that Gaussian's, not where.
    """
    delta = checked_delta(delta)
    mu = gaussian_mu_lower_bound(canaries=canaries, guesses=guesses, correct=correct, confidence=confidence)
    return gdp_epsilon(mu, delta)


def _allows(curve: Tradeoff, probability: float, canaries: int, guesses: int, correct: int) -> bool:
    """Whether the inequalities leave room for so many or more correct guesses with this probability.

    They leave most if all of it lies at ``correct``, and as little as needed at each number below: one correct guess less
    adds more to the right side and less to the left one of all that are left.
    """
    right = probability * correct / canaries
    wrong = probability * (guesses - correct) / canaries
    room = guesses / canaries * (1 + 1e-12)  # all probabilities together; rounding must refute nothing
    for number in range(correct - 1, -1, -1):
        needed = curve(max(0.0, 1 - right))  # 1 - f(x) >= right first at x = f(1 - right): f is its own inverse
        if needed <= wrong:
            break
        right += number / (guesses - number) * (needed - wrong)
        wrong = needed
        if right + wrong > room:
            return False
    return right + wrong <= room
