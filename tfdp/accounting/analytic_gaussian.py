"""The Gaussian mechanism alone: one release of a vector plus normal noise, priced exactly (Balle and Wang 2018,
arXiv:1805.06530, "the analytic Gaussian mechanism").

A vector that moves by at most `sensitivity` in l2 norm between neighbours, released with noise of standard deviation
`stddev` in each coordinate, is mu-Gaussian differentially private with mu = sensitivity / stddev, and no less. Its exact
(epsilon, delta) is eq. 6 of Bu et al. 2019 (`gdp_delta`), which is theorem 8 of Balle and Wang. The classic
stddev = sensitivity sqrt(2 ln(1.25 / delta)) / epsilon asks for more noise, and holds for epsilon < 1 only.
"""

from __future__ import annotations

import math

from tfdp.accounting import checks, gdp


def gaussian_mu(stddev: float, sensitivity: float = 1.0) -> float:
    """mu = sensitivity / stddev; infinity without noise, 0 where nothing moves."""
    stddev = checks.non_negative("stddev", stddev, "write the noise's standard deviation, such as 2.0")
    sensitivity = _sensitivity(sensitivity)
    if sensitivity == 0:
        return 0.0
    return sensitivity / stddev if stddev else math.inf


def gaussian_epsilon(stddev: float, delta: float, sensitivity: float = 1.0) -> float:
    """The smallest epsilon at `delta` of one release.

    Example:
        >>> round(gaussian_epsilon(1.0, 1e-5), 3)
        4.377
    """
    return gdp.gdp_epsilon(gaussian_mu(stddev, sensitivity), delta)


def gaussian_stddev(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The smallest noise with which one release is (epsilon, delta)-differentially private: algorithm 1 of Balle and Wang.

    Guarantee: `gaussian_epsilon` of the result is at most `epsilon`; of noise smaller by a millionth of a millionth it is
    above.

    With a sensitivity of 0 nothing moves, and the result is 0.

    Example:
        >>> round(gaussian_stddev(1.0, 1e-5), 3)
        3.731
    """
    epsilon, delta = checks.target_epsilon(epsilon), checks.delta(delta)
    sensitivity = _sensitivity(sensitivity)
    if sensitivity == 0:
        return 0.0
    stddev = sensitivity / gdp.mu_for(epsilon, delta)
    more = 1e-15
    while gaussian_epsilon(stddev, delta, sensitivity) > epsilon:  # in the last digits
        stddev *= 1 + more
        more *= 2
    return stddev


def _sensitivity(value: float) -> float:
    advice = (
        "write how far neighbours move the released vector in l2 norm, such as 2.0 for a replaced record clipped to 1.0"
    )
    return checks.non_negative("sensitivity", value, advice)
