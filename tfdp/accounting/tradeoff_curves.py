"""f-differential privacy: what an attacker who tells two neighbouring data sets apart must get wrong.

A trade-off curve f gives, for every false positive rate (type I error) of an attack, the smallest possible
false negative rate (type II error): Dong, Roth and Su 2019 (arXiv:1905.02383), Bu et al. 2019 section 2.
Larger is more private.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable

import numpy as np

from tfdp.accounting import checks, gdp, moments, pld, rdp
from tfdp.accounting.accountants import checked_ledger, named_accountant
from tfdp.accounting.ledger import Ledger
from tfdp.accounting.reports import Status

_CURVE_POINTS = 1001
_LARGEST_EPSILON = 700.0  # e^epsilon still is a float


class Tradeoff(abc.ABC):
    """A symmetric trade-off curve: call it with a false positive rate, or with an array of them."""

    status: Status

    def __call__(self, false_positive_rate: float | np.ndarray) -> float | np.ndarray:
        """The smallest false negative rate of any attack with this false positive rate."""
        rates = np.asarray(false_positive_rate, dtype=float)
        if not np.all((rates >= 0) & (rates <= 1)):
            raise ValueError(f"false_positive_rate must lie between 0 and 1, got {false_positive_rate!r}")
        curve = np.clip(self._curve(rates.reshape(-1)), 0.0, 1.0 - rates.reshape(-1)).reshape(rates.shape)
        return float(curve) if curve.ndim == 0 else curve

    @abc.abstractmethod
    def _curve(self, rates: np.ndarray) -> np.ndarray: ...

    def true_positive_rate(self, false_positive_rate: float | np.ndarray) -> float | np.ndarray:
        """How many members the best attack finds while accusing this share of the others: 1 - f."""
        return 1 - self(false_positive_rate)

    @property
    def minimum_error_sum(self) -> float:
        """The smallest type I + type II error of any attack: twice the rate where f(a) = a, f being
        symmetric."""
        low, high = 0.0, 0.5
        while high - low > 1e-16:
            middle = (low + high) / 2
            low, high = (middle, high) if self(middle) >= middle else (low, middle)
        return 2 * low

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate of any attack: 1 - minimum_error_sum."""
        return 1 - self.minimum_error_sum


class _GaussianTradeoff(Tradeoff):
    def __init__(self, mu: float, status: Status) -> None:
        self.mu = mu
        self.status = status

    def _curve(self, rates: np.ndarray) -> np.ndarray:
        from scipy import special

        # G_mu(a) = Phi(Phi^-1(1 - a) - mu): Bu et al. 2019, section 2.1.
        return special.ndtr(-special.ndtri(rates) - self.mu) if self.mu < math.inf else np.zeros_like(rates)


class _PairsTradeoff(Tradeoff):
    def __init__(self, epsilons: np.ndarray, deltas: np.ndarray, status: Status) -> None:
        self.epsilons = epsilons
        self.deltas = deltas
        self.status = status

    def _curve(self, rates: np.ndarray) -> np.ndarray:
        # Bu et al. 2019, eq. 1: f(a) = max(0, 1 - delta - e^epsilon a, e^-epsilon (1 - delta - a)); of
        # several pairs the largest.
        growth, kept = np.exp(self.epsilons)[:, None], (1 - self.deltas)[:, None]
        return np.maximum(kept - growth * rates, (kept - rates) / growth).max(axis=0)


def gdp_tradeoff(mu: float) -> Tradeoff:
    """The curve of Gaussian differential privacy, G_mu: telling N(0, 1) from N(mu, 1) by one draw.

    Example:
        >>> round(gdp_tradeoff(0.57).minimum_error_sum, 3)
        0.776
    """
    return _GaussianTradeoff(gdp.checked_mu(mu), Status.PROVEN)


def epsilon_delta_tradeoff(pairs: Iterable[tuple[float, float]]) -> Tradeoff:
    """The curve that a list of (epsilon, delta) guarantees of one mechanism proves together.

    Example:
        >>> round(epsilon_delta_tradeoff([(3.01, 1e-5)]).minimum_error_sum, 3)
        0.094
    """
    rows = []
    for epsilon, delta in pairs:
        epsilon = checks.non_negative("epsilon", epsilon, "write pairs such as (1.0, 1e-5)")
        delta = checks.non_negative("delta", delta, "write pairs such as (1.0, 1e-5)")
        if delta > 1:
            raise ValueError(f"delta must not exceed 1, got {delta}: write pairs such as (1.0, 1e-5)")
        rows.append(
            (
                min(epsilon, _LARGEST_EPSILON) if delta < 1 else 0.0,
                delta if epsilon <= _LARGEST_EPSILON else 1.0,
            )
        )
    if not rows:
        raise ValueError("pairs must hold at least one (epsilon, delta)")
    epsilons, deltas = np.asarray(rows).T
    return _PairsTradeoff(epsilons, deltas, Status.PROVEN)


def tradeoff(ledger: Ledger, *, accountant: str = "pld") -> Tradeoff:
    """The trade-off curve of everything the ledger lists.

    "pld", "rdp" and "moments" give the curve of all (epsilon, delta) they prove: the truth lies above it.
    "gdp" gives G_mu of the central limit theorem, which may lie above the truth.

    Example:
        >>> curve = tradeoff(Ledger.poisson(sampling_rate=256 / 60000, noise_multiplier=1.1, steps=14062))
        >>> round(curve.advantage, 2), round(curve.true_positive_rate(0.001), 3)
        (0.22, 0.006)
    """
    chosen = named_accountant(accountant)
    if checked_ledger(ledger).steps == 0:
        return _PairsTradeoff(np.zeros(1), np.zeros(1), Status.PROVEN)
    if chosen is gdp:
        mu, exact = gdp.mu_of(ledger)
        return _GaussianTradeoff(mu, Status.PROVEN if exact else Status.APPROXIMATE)
    releases = pld.priced_releases(ledger) if chosen is pld else None
    if releases and (mu := pld.exact_mu(releases)) is not None:
        return _GaussianTradeoff(mu, Status.PROVEN)
    epsilons = np.linspace(0.0, min(chosen.report(ledger, 1e-9).epsilon, _LARGEST_EPSILON), _CURVE_POINTS)
    loss = pld.composed_loss(releases) if releases else None
    if loss is not None:
        deltas = loss.delta(epsilons)
    else:
        prove = moments.delta if chosen is moments else rdp.delta
        deltas = np.array([prove(ledger, float(epsilon)) for epsilon in epsilons])
    return _PairsTradeoff(epsilons, deltas, Status.PROVEN)
