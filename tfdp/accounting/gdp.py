"""The "gdp" accountant: Gaussian differential privacy by the central limit theorem (Bu et al. 2019,
arXiv:1911.11607).

Guarantee: none for sampled lots. The limit is reached as the steps grow while sampling_rate * sqrt(steps)
stays fixed; at finitely many steps its epsilon can lie *below* the true one, and often does. Only for steps
that use every record is the composition exactly Gaussian, and the result proven.
"""

from __future__ import annotations

import math

from tfdp.accounting import checks
from tfdp.accounting.ledger import Ledger
from tfdp.accounting.reports import Report, Status
from tfdp.accounting.translation import is_sampled_gaussian, terms

_BEYOND_FLOATS = 40.0  # a normal density so far out is less than the smallest float
_SUBNORMAL_ROUNDING = (
    2e-323  # four times the smallest float: products below all normal ones are rounded to multiples of that
)
_SMALL = 0.01  # half a mu, up to which the difference of two ratios is a sum


def gdp_mu(*, sampling_rate: float, noise_multiplier: float, steps: int) -> float:
    """mu of `steps` Gaussian releases: eq. 5 of Bu et al., p sqrt(T (exp(1 / sigma^2) - 1)).

    At a sampling rate of 1 nothing is sampled, and the exact value sqrt(T) / sigma is returned.

    Example:
        >>> round(gdp_mu(sampling_rate=256 / 60000, noise_multiplier=1.1, steps=14062), 2)
        0.57
    """
    rate = checks.sampling_rate(sampling_rate)
    sigma = checks.noise_multiplier(noise_multiplier)
    steps = checks.count("steps", steps, "write how many steps are taken")
    return math.sqrt(steps) * _one_step_mu(rate, sigma) if steps else 0.0


def _one_step_mu(rate: float, sigma: float) -> float:
    if sigma * sigma == 0:
        return math.inf
    if rate == 1:
        return 1 / sigma
    try:
        return rate * math.sqrt(math.expm1(1 / (sigma * sigma)))
    except OverflowError:
        return math.inf


def gdp_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon; mu) = Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2), eq. 6 of Bu
    et al., rounded up.

    Formal guarantee: never below the exact value, and above it by at most 3e-12 of it up to mu = 1. What is
    below 1e-300 may come out as 0.

    With a = epsilon / mu, h = mu / 2 and Mills' ratio R(t) = Phi(-t) / phi(t) it is phi(a - h) (R(a - h) - R(a + h)),
    because e^epsilon phi(a + h) = phi(a - h).
    """
    from scipy import special

    mu = checked_mu(mu)
    epsilon = checks.non_negative("epsilon", epsilon, "write the privacy loss to be exceeded, such as 1.0")
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    a, h = epsilon / mu, mu / 2
    if a - h >= _BEYOND_FLOATS:
        return 0.0
    density = math.exp(-(max(a - h, -_BEYOND_FLOATS) ** 2) / 2) / math.sqrt(2 * math.pi)
    if h <= _SMALL:
        found = density * _difference_of_ratios(a, h)
    elif a < h:
        found = float(special.ndtr(h - a)) - density * _mills_ratio(a + h)
    else:
        found = density * (_mills_ratio(a - h) - _mills_ratio(a + h))
    rounding = 1e-12 + 1e-15 * min(abs(a - h), _BEYOND_FLOATS) * (a + h)
    return min(1.0, found * (1 + rounding) + _SUBNORMAL_ROUNDING)


def _mills_ratio(t: float) -> float:
    from scipy import special

    return math.sqrt(math.pi / 2) * float(special.erfcx(t / math.sqrt(2)))


def _difference_of_ratios(a: float, h: float) -> float:
    """R(a - h) - R(a + h) for a small h: never less, but for rounding, and nothing cancels.

    R(t) is the integral of e^(-t u - u^2 / 2) over u > 0, and so the difference is 2 sum_k h^(2k+1) / (2k+1)! M_(2k+1), with the
    moments M_n, the integral of u^n e^(-a u - u^2 / 2). By parts M_(n+1) = n M_(n-1) - a M_n, so that M_(n+2) <= (n+1) M_n:
    what follows the third term is at most M_1 (h^7 / 7!! + h^9 / 9!! + ...), and here below M_1 h^7 / 100.
    """
    zeroth = _mills_ratio(a)
    first = _first_moment(a, zeroth)
    second = zeroth - a * first
    third = 2 * first - a * second
    fifth = 4 * third - a * (3 * second - a * third)
    square = h * h
    return 2 * h * (first + square * (third / 6 + square * (fifth / 120 + square * first / 100)))


def _first_moment(a: float, ratio: float) -> float:
    """1 - a R(a); from a = 2 on by the continued fraction R(a) = 1 / (a + 1 / (a + 2 / (a + 3 / ...))), where it would cancel."""
    if a < 2:
        return 1 - a * ratio
    rest = 0.0
    for number in range(150, 0, -1):
        rest = number / (a + rest)
    return rest / (a + rest)


def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon with gdp_delta(mu, epsilon) <= delta (rounded up in the last digits).

    Example:
        >>> round(gdp_epsilon(1.0, 1e-5), 3)
        4.377
    """
    mu = checked_mu(mu)
    delta = checks.delta(delta)
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    low, high = 0.0, mu * (mu / 2) + mu
    if math.isinf(high):
        return math.inf
    while gdp_delta(mu, high) > delta:
        low, high = high, 2 * high
        if math.isinf(high):
            return math.inf
    while (middle := low + (high - low) / 2) not in (low, high):
        low, high = (middle, high) if gdp_delta(mu, middle) > delta else (low, middle)
    return high


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu with gdp_delta(mu, epsilon) <= delta: eq. 7 of Bu et al., solved for mu."""
    low, high = 0.0, 1.0
    while gdp_delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if gdp_delta(middle, epsilon) <= delta else (low, middle)
    return low


def noise_for_mu(mu: float, sampling_rate: float, steps: int) -> float:
    """The noise multiplier with gdp_mu = mu: eq. 8 of Bu et al., sigma = 1 / sqrt(log(1 + mu^2 / (p^2 T)))."""
    if sampling_rate == 1:
        return math.sqrt(steps) / mu
    exponent = 2 * (math.log(mu) - math.log(sampling_rate)) - math.log(steps)
    return 1 / math.sqrt(
        max(exponent, 0.0) + math.log1p(math.exp(-abs(exponent)))
    )  # log(1 + e^exponent), without overflow


def checked_mu(mu: float) -> float:
    advice = "write the parameter of Gaussian differential privacy, such as 1.0"
    return checks.non_negative_or_infinite("mu", mu, advice)


def mu_of(ledger: Ledger) -> tuple[float, bool]:
    """mu of a whole ledger (the squares of its lines' mu add up), and whether it is exact.

    Bu et al. 2019, appendix B, theorem 7: the limit holds for steps of different kinds, the square of mu
    being the sum of the steps' chi-square divergences.
    """
    import dp_accounting

    mu, exact = 0.0, True
    for term in terms(ledger):
        if isinstance(term.event, dp_accounting.NonPrivateDpEvent):
            return math.inf, True
        if isinstance(term.event, dp_accounting.GaussianDpEvent):
            one = _one_step_mu(1.0, term.event.noise_multiplier)
        elif is_sampled_gaussian(term.event):
            one = _one_step_mu(term.event.sampling_probability, term.event.event.noise_multiplier)
            exact = False
        else:
            raise ValueError(
                f"the 'gdp' accountant cannot price {term.event}: the central limit theorem of Bu et al. is for Gaussian "
                "noise on Poisson lots and full batches; use accountant='rdp'"
            )
        mu = math.hypot(mu, math.sqrt(term.count) * one)
    return mu, exact


def report(ledger: Ledger, delta: float) -> Report:
    mu, exact = mu_of(ledger)
    return Report(
        accountant="gdp",
        epsilon=gdp_epsilon(mu, delta),
        delta=delta,
        relation=ledger.relation,
        status=Status.PROVEN if exact else Status.APPROXIMATE,
        how="exact, nothing was sampled" if exact else "central limit theorem, can lie below the true epsilon",
        mu=mu,
    )


def delta(ledger: Ledger, epsilon: float) -> float:
    return gdp_delta(mu_of(ledger)[0], epsilon)
