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
from tfdp.accounting.translation import terms


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
    et al."""
    from scipy import special

    mu = checked_mu(mu)
    epsilon = checks.non_negative("epsilon", epsilon, "write the privacy loss to be exceeded, such as 1.0")
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    log_first = special.log_ndtr(-epsilon / mu + mu / 2)
    if math.isinf(log_first):
        return 0.0
    log_second = epsilon + special.log_ndtr(-epsilon / mu - mu / 2)
    # Phi(a) (1 - second / first) keeps its precision where the two terms nearly cancel.
    return float(math.exp(log_first) * -math.expm1(min(0.0, log_second - log_first)))


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
    low, high = 0.0, mu**2 / 2 + mu
    if math.isinf(high):
        return math.inf
    while gdp_delta(mu, high) > delta:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
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
    """The noise multiplier with gdp_mu = mu: eq. 8 of Bu et al., sigma = 1 / sqrt(log(1 + mu^2 / (p^2
    T)))."""
    if sampling_rate == 1:
        return math.sqrt(steps) / mu
    return 1 / math.sqrt(math.log1p((mu / sampling_rate) ** 2 / steps))


def checked_mu(mu: float) -> float:
    if mu == math.inf:
        return mu
    return checks.non_negative("mu", mu, "write the parameter of Gaussian differential privacy, such as 1.0")


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
        elif isinstance(term.event, dp_accounting.PoissonSampledDpEvent):
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
