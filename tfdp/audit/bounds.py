"""From guesses about canaries to a lower bound on epsilon: Steinke, Nasr and Jagielski 2023 (arXiv:2305.08846).

Each of m canaries was put into the training set, or left out, by a fair coin of its own. Somebody who sees only what was
released guesses some of the coins. If the release is (epsilon, delta)-differentially private, guesses can't be right too often;
if they are, it isn't.
"""

from __future__ import annotations

import numpy as np

from tfdp.accounting import checks

_PRECISION = 1e-6


def p_value(epsilon: float, delta: float, *, canaries: int, guesses: int, correct: int) -> float:
    """How likely so many correct guesses are, at most, if training is (epsilon, delta)-differentially private.

    Formal guarantee: let the coins be fair and independent, and the guesses any function of an (epsilon, delta)-differentially
    private release, about as many canaries as was fixed beforehand. With W ~ Binomial(guesses, 1 / (1 + e^-epsilon)) and v
    correct ones,

        P[correct >= v] <= P[W >= v] + 2 m delta max over i of P[v > W >= v - i] / i

    (Steinke et al. 2023, corollary 5.4, in the form that the program of their appendix D has), or, where that is more, m delta times
    ``_most_for_delta``. It is more only for a v that W reaches more often than not, which refutes nothing: for some of these
    the published bound is too small (two canaries, epsilon 1, v = 1; tests/audit/test_bounds.py).

    Args:
        canaries: m, of all coins, those that nothing was guessed about included.
        guesses: how many of them were guessed.
        correct: how many guesses were right.
    """
    epsilon = checks.non_negative("epsilon", epsilon, "write the privacy that is to be refuted, such as 1.0")
    delta = _delta(delta)
    return _p_value(epsilon, delta, *checked_counts(canaries, guesses, correct))


def _p_value(epsilon: float, delta: float, canaries: int, guesses: int, correct: int) -> float:
    from scipy import special, stats

    right = special.expit(epsilon)
    tail = float(stats.binom.sf(correct - 1, guesses, right))
    if delta == 0 or tail >= 1:
        return min(1.0, tail)
    below = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))
    published = 2 * float(np.max(below / np.arange(1, correct + 1)))
    return min(1.0, tail + canaries * delta * max(published, _most_for_delta(right, guesses, correct)))


def _most_for_delta(right: float, guesses: int, correct: int) -> float:
    """h = P[W >= v] P[W < v] / (v P[W = v]): no (epsilon, delta)-private release is right v times or more with a probability above
    P[W >= v] + m delta h, and some are with exactly that, while it is below 1.

    Proof. Let r be the guesses, B_k the binomial coefficients of r, and B_k y_k the probability that k guesses are right. Turn a coin that
    is guessed rightly: the same release has k - 1 right ones then. Of k right guesses k coins do so, of k - 1 right ones r - k + 1
    coins back. Summed over releases with k right ones and averaged over the m coins, and as k B_k = (r - k + 1) B_(k-1) = r (r - 1 over
    k - 1), privacy says

        sum over k >= 1 of (r - 1 over k - 1) max(0, y_k - e^epsilon y_(k-1))  <=  m delta / r.

    Let w_k = e^(-epsilon k) (1 + e^epsilon)^r a_k, with a_k = P[W < v] P[W >= k] for k >= v and P[W >= v] P[W < k] for k <= v. Then

        sum over k >= v of B_k y_k - P[W >= v]  =  sum over k of w_k (y_k - e^epsilon y_(k-1))  <=  m delta max of a_k / (k P[W = k]),

    and that is largest at k = v, because binomials are log-concave.
    """
    from scipy import stats

    reached, missed = stats.binom.logsf(correct - 1, guesses, right), stats.binom.logcdf(correct - 1, guesses, right)
    return float(np.exp(reached + missed - stats.binom.logpmf(correct, guesses, right)) / correct)


def epsilon_lower_bound(*, canaries: int, guesses: int, correct: int, delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon that so many correct guesses refute at this delta.

    Formal guarantee: if training is (epsilon, delta)-differentially private, the result is above epsilon with probability at most
    1 - confidence. (It is above epsilon only if ``p_value`` refutes some epsilon' >= epsilon. Of all numbers of correct
    guesses that refute one, let v be the smallest, at epsilon'. Training is (epsilon', delta)-private too, so v or more are
    correct with probability at most 1 - confidence.)

    | case                                       | result |
    |--------------------------------------------|--------|
    | no guess, or half of them right            | 0      |
    | 2 m delta so large that nothing is refuted | 0      |

    Example:
        >>> round(epsilon_lower_bound(canaries=1000, guesses=100, correct=75, delta=1e-4), 3)
        0.673
    """
    counts = checked_counts(canaries, guesses, correct)
    delta, level = _delta(delta), 1 - checked_confidence(confidence)
    return largest_refuted(lambda epsilon: _p_value(epsilon, delta, *counts) <= level)


def largest_refuted(refuted, precision: float = _PRECISION) -> float:
    """The largest parameter that is refuted, rounded down; 0 if 0 is not."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    while high - low > precision:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def checked_counts(canaries: int, guesses: int, correct: int) -> tuple[int, int, int]:
    canaries = checks.count("canaries", canaries, "write how many coins were flipped", at_least=1)
    guesses = checks.count("guesses", guesses, "write how many canaries were guessed")
    correct = checks.count("correct", correct, "write how many guesses were right")
    if not correct <= guesses <= canaries:
        raise ValueError(
            f"correct ({correct}) must not exceed guesses ({guesses}), nor guesses canaries ({canaries}): each canary is guessed "
            "at most once."
        )
    return canaries, guesses, correct


def checked_confidence(confidence: float) -> float:
    advice = "write a probability such as 0.95"
    number = checks.real("confidence", confidence, advice)
    if not 0 < number < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}: {advice}")
    return number


def _delta(delta: float) -> float:
    advice = "write the delta that epsilon is meant at, such as 1e-5"
    number = checks.non_negative("delta", delta, advice)
    if number >= 1:
        raise ValueError(f"delta must be below 1, got {delta!r}: {advice}")
    return number
