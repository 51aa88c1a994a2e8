"""Labels that are randomised, alone and together with Gaussian noise on the features (Warner 1965; Duchi et al. 2013).

A label of k public ones is kept with probability 1 - p and is otherwise drawn uniformly from all k (so it may come out as it
was). A record whose features are released with Gaussian noise and whose label is released in this way is one release of both:
its price is exact here, and below the sum of both prices.
"""

from __future__ import annotations

import math

from tfdp.accounting import checks, gdp


def label_epsilon(probability: float, classes: int) -> float:
    """ln(1 + k (1 - p) / p), at a delta of 0: the likeliest outcome has 1 - p + p / k, any other p / k.

    | p | result                       |
    |---|------------------------------|
    | 0 | infinity: labels as they are |
    | 1 | 0: labels say nothing        |

    Example:
        >>> round(label_epsilon(0.5, 2), 4)
        1.0986
    """
    p, k = _checked(probability, classes)
    return math.log1p(k * (1 - p) / p) if p else math.inf


def record_delta(mu: float, probability: float, classes: int, epsilon: float) -> float:
    """delta at `epsilon` of a record's features (mu-Gaussian differential privacy) and label together, if another record takes
    its place.

    Formal guarantee: no pair of records has a larger delta, and a pair whose labels differ and whose features are as far apart
    as they can be has this one. The label comes out as the first record's, the second's, or another; the loss that this
    says is l, -l or 0 (l = `label_epsilon`), and the features may lose the rest of epsilon:

        delta = (1 - p + p / k) d(epsilon - l) + (p / k) d(epsilon + l) + (k - 2) (p / k) d(epsilon),

    d(e) = Phi(-e / mu + mu / 2) - e^e Phi(-e / mu - mu / 2), for e of any sign.
    """
    mu = gdp.checked_mu(mu)
    epsilon = checks.non_negative("epsilon", epsilon, "write the privacy loss to be exceeded, such as 1.0")
    p, k = _checked(probability, classes)
    if p == 0:
        return 1.0
    loss, other = label_epsilon(p, k), p / k
    return (
        (1 - p + other) * _signed_delta(mu, epsilon - loss)
        + other * gdp.gdp_delta(mu, epsilon + loss)
        + (k - 2) * other * gdp.gdp_delta(mu, epsilon)
    )


def record_epsilon(mu: float, probability: float, classes: int, delta: float) -> float:
    """The smallest epsilon with `record_delta` <= delta; infinity where labels stay as they are.

    Example:
        >>> round(record_epsilon(0.0, 0.5, 2, 1e-5), 4)
        1.0986
    """
    delta = checks.delta(delta)
    loss, features = label_epsilon(probability, classes), gdp.gdp_epsilon(mu, delta)
    high = loss + features  # the sum of both prices
    if math.isinf(high) or record_delta(mu, probability, classes, 0.0) <= delta:
        return high if math.isinf(high) else 0.0
    low = 0.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if record_delta(mu, probability, classes, middle) > delta else (low, middle)
    return high


def record_mu(epsilon: float, delta: float, probability: float, classes: int) -> float:
    """The largest mu of the features with which features and label together keep to (epsilon, delta)."""
    epsilon, delta = checks.target_epsilon(epsilon), checks.delta(delta)
    if record_delta(0.0, probability, classes, epsilon) > delta:
        raise ValueError(
            f"epsilon {epsilon:g} at delta {delta:g} is less than the labels alone cost, {label_epsilon(probability, classes):.4g} "
            f"with {classes} classes: write a larger epsilon, or randomise labels with a larger probability (randomized_response=)"
        )
    low, high = 0.0, gdp.mu_for(epsilon, delta)
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if record_delta(middle, probability, classes, epsilon) <= delta else (low, middle)
    return low


def _signed_delta(mu: float, epsilon: float) -> float:
    """`gdp_delta` at a negative epsilon too: both directions of the Gaussian pair have the same curve."""
    if epsilon >= 0:
        return gdp.gdp_delta(mu, epsilon)
    return -math.expm1(epsilon) + math.exp(epsilon) * gdp.gdp_delta(mu, -epsilon)


def _checked(probability: float, classes: int) -> tuple[float, int]:
    p = checks.real("probability", probability, "write the share of labels to draw anew, such as 0.2")
    if not 0 <= p <= 1:
        raise ValueError(
            f"probability must lie between 0 and 1, got {probability!r}: write the share of labels to draw anew, such as 0.2"
        )
    return p, checks.count("classes", classes, "write how many labels there are, known to everyone", at_least=2)
