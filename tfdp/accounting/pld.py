"""The "pld" accountant: privacy loss distributions, composed by Fourier transforms.

Guarantee: an upper bound, and a tight one (Koskela et al. 2020, arXiv:1906.03049). Losses are rounded up to a
grid of 1e-4. Where a step loses so little that this rounding would show, the grid is halved until halving it
no more matters; where epsilon is so large that the arrays would not fit, it is made coarser. Both stay upper
bounds.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp.accounting import gdp, rdp
from tfdp.accounting.codeword_loss import Encoded
from tfdp.accounting.ledger import Ledger
from tfdp.accounting.loss_grids import GridLoss, Power, composed, window
from tfdp.accounting.one_step_loss import OneStepLoss, one_step_loss, second_moment, span
from tfdp.accounting.reports import Report, Status
from tfdp.accounting.translation import SampledNoise, is_sampled_gaussian, terms

_INTERVAL = 1e-4
_MOST_POINTS = 2**22
_COARSEST_INTERVAL = 0.25
# Rounding a loss of a step up inflates its second moment r times; epsilon moves by about (r - 1) / 2.
_ALLOWED_INFLATION = 1.001
# A Fourier transform raised to the power T has an error in delta of up to about 6e-17 T on the unsafe side (measured
# against closed forms and longer floating point); a larger multiple of T is taken off delta before epsilon is read.
_ROUNDING_PER_STEP = 2.0**-53


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """`count` releases of the Poisson-sampled Gaussian; a rate of 1 is the plain one."""

    noise_multiplier: float
    sampling_rate: float
    count: int

    def span(self) -> tuple[float, float]:
        return span(self.noise_multiplier, self.sampling_rate)

    def one_step(self, interval: float) -> OneStepLoss:
        return one_step_loss(self.noise_multiplier, self.sampling_rate, interval)

    def second_moment(self, interval: float) -> float:
        return second_moment(self.noise_multiplier, self.sampling_rate, interval)

    def total_variation(self) -> float:
        return self.sampling_rate * math.erf(0.5 / self.noise_multiplier / math.sqrt(2))


Release = Gaussian | Encoded


@dataclasses.dataclass(frozen=True)
class ComposedLoss:
    """The privacy loss of a whole ledger. `exhausted`: the grid could not be made as fine as it should be."""

    remove: GridLoss
    add: GridLoss
    interval: float
    rounding: float
    exhausted: bool

    def epsilon(self, delta: float) -> float:
        left = delta - self.rounding
        epsilon = self.remove.get_epsilon_for_delta(left)
        if math.isinf(epsilon) or self.add.get_delta_for_epsilon(epsilon) <= left:
            return epsilon
        return max(epsilon, self.add.get_epsilon_for_delta(left))

    def delta(self, epsilon: float | np.ndarray) -> np.ndarray:
        """delta at an epsilon, or at several in ascending order."""
        worst = np.maximum(self.remove.get_delta_for_epsilon(epsilon), self.add.get_delta_for_epsilon(epsilon))
        return np.clip(worst + self.rounding, 0.0, 1.0)


def report(ledger: Ledger, delta: float) -> Report:
    releases = priced_releases(ledger)
    if releases is None:
        return _report(ledger, math.inf, delta, "a release without noise")
    if (mu := exact_mu(releases)) is not None:
        return _report(ledger, gdp.gdp_epsilon(mu, delta), delta, "exact, nothing was sampled")
    if _total_variation(releases) <= delta:
        return _report(ledger, 0.0, delta, "the steps' total variation distances add up to less than delta")
    if _rounding(releases) > delta / 2:
        bound = rdp.report(ledger, delta).epsilon
        return _report(ledger, bound, delta, "delta is below double precision's reach, Renyi bound in its place")
    loss = composed_loss(releases)
    if loss is None:
        bound = rdp.report(ledger, delta).epsilon
        return _report(ledger, bound, delta, "too large for a grid, Renyi bound in its place")
    epsilon = loss.epsilon(delta)
    if (loss.exhausted or math.isinf(epsilon)) and (bound := rdp.report(ledger, delta).epsilon) < epsilon:
        return _report(ledger, bound, delta, "no grid is fine enough, Renyi bound in its place")
    return _report(ledger, epsilon, delta, f"grid {loss.interval:.3g}", loss.interval)


def delta(ledger: Ledger, epsilon: float) -> float:
    releases = priced_releases(ledger)
    if releases is None:
        return 1.0
    if (mu := exact_mu(releases)) is not None:
        return gdp.gdp_delta(mu, epsilon)
    loss = composed_loss(releases)
    if loss is None:
        return min(_total_variation(releases), rdp.delta(ledger, epsilon))
    found = float(loss.delta(epsilon))
    if loss.exhausted or found < 2 * loss.rounding or found == 1:
        found = min(found, rdp.delta(ledger, epsilon))
    return min(found, _total_variation(releases))


def _report(ledger: Ledger, epsilon: float, delta: float, how: str, interval: float | None = None) -> Report:
    return Report("pld", epsilon, delta, ledger.relation, Status.PROVEN, how, interval)


def priced_releases(ledger: Ledger) -> list[Release] | None:
    """The ledger as releases, all plain Gaussian ones as a single one; None if something had no noise."""
    import dp_accounting

    sampled, plain = [], 0.0
    for term in terms(ledger):
        event = term.event
        if isinstance(event, dp_accounting.NonPrivateDpEvent):
            return None
        if isinstance(event, SampledNoise):
            sampled.append(Encoded(event.noise, event.codebook, event.sampling_rate, term.count))
        elif isinstance(event, dp_accounting.GaussianDpEvent):
            plain += term.count / event.noise_multiplier**2
        elif is_sampled_gaussian(event):
            sampled.append(Gaussian(event.event.noise_multiplier, event.sampling_probability, term.count))
        else:
            raise ValueError(
                f"the 'pld' accountant cannot price {event}: no tight loss distribution is known for it; use "
                "accountant='rdp'"
            )
    return sampled + ([Gaussian(1 / math.sqrt(plain), 1.0, 1)] if plain else [])


def exact_mu(releases: list[Release]) -> float | None:
    """The mu of a Gaussian ledger without sampling, whose loss is exactly Gaussian; None if it is not."""
    exact = all(isinstance(release, Gaussian) and release.sampling_rate == 1 for release in releases)
    return 1 / releases[0].noise_multiplier if exact else None


def _total_variation(releases: list[Release]) -> float:
    """An upper bound of delta at epsilon 0: the sum of the steps' own."""
    return sum(release.count * release.total_variation() for release in releases)


def _rounding(releases: list[Release]) -> float:
    return _ROUNDING_PER_STEP * sum(release.count for release in releases)


def composed_loss(releases: list[Release]) -> ComposedLoss | None:
    """The privacy loss distribution of all releases together; None where it is too large for a grid."""
    interval, exhausted = _fitting_interval(releases)
    if interval > _COARSEST_INTERVAL:
        return None
    first, last = window(_powers(releases, interval, "remove"))
    if (excess := (last - first + 1) / _MOST_POINTS) > 1:
        interval, exhausted = interval * 2 ** math.ceil(math.log2(excess)), True
    if interval > _COARSEST_INTERVAL:
        return None
    remove, add = (composed(_powers(releases, interval, direction)) for direction in ("remove", "add"))
    return ComposedLoss(remove, add, interval, _rounding(releases), exhausted)


def _powers(releases: list[Release], interval: float, direction: str) -> list[Power]:
    return [Power(getattr(release.one_step(interval), direction), release.count) for release in releases]


def _fitting_interval(releases: list[Release]) -> tuple[float, bool]:
    """The grid on which one step fits, and whether it had to stay coarser than the losses call for."""
    widest = max(high - low for low, high in (release.span() for release in releases))
    interval = _INTERVAL
    if widest > interval * _MOST_POINTS:
        return interval * 2 ** math.ceil(math.log2(widest / interval / _MOST_POINTS)), True

    def whole_moment(interval: float) -> float:
        return sum(release.count * release.second_moment(interval) for release in releases)

    moment = whole_moment(interval)
    while widest <= interval / 2 * _MOST_POINTS:
        finer = whole_moment(interval / 2)
        if moment <= _ALLOWED_INFLATION * finer:
            return interval, False
        interval, moment = interval / 2, finer
    return interval, True
