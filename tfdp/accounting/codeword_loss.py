"""The privacy loss of one Poisson-sampled release with arbitrary noise under codewords, on a grid, from above.

The argument, beyond Nasr et al. 2020. For noise that is symmetric and falls with |x|, the whole hockey-stick curve of a
coordinate is nondecreasing in |shift| (`noise_checks.check_noise`, with proof): the pair of a larger shift dominates that
of a smaller one. Domination outlives products and sampling. Hence

1. the vector of larger shifts dominates: a codeword all vectors under it, magnitudes rounded up the magnitudes;
2. a pair whose curve is nowhere below that of any codeword dominates them all, whichever of them each record has. Each
   codeword's curve, on a grid of losses, is convex in e^epsilon and linear between the grid's points. So is what joins the
   largest values at the points, and it lies nowhere below: it is the curve of a pair again, whose masses are its second
   differences;
3. sampling is applied to that pair, once per direction.

Coordinates are priced by `coordinate_loss`, their product by Fourier transforms, each shift's transform once for all
codewords.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from tfdp.accounting.codebooks import Codebook
from tfdp.accounting.coordinate_loss import certain, coordinate_loss, on_grid
from tfdp.accounting.loss_grids import GridLoss, Power, window
from tfdp.accounting.noise_checks import check_noise
from tfdp.accounting.noise_moments import least_shift, log_moments
from tfdp.accounting.one_step_loss import OneStepLoss
from tfdp.noise import Noise

# Codewords with more distinct magnitudes are rounded up to so many.
_MOST_SHIFTS = 1000
_GROUPS = 400
_CODEWORDS_AT_ONCE = 100
# Fourier coefficients below this are left out; all of them together are far below rounding.
_LEAST_COEFFICIENT = 1e-35
# What `window` may leave on both sides.
_OUTSIDE_WINDOW = 2e-15
# Splitting a coordinate's losses between two grid points adds up to interval^2 / 4 to its variance. All of them together
# may add this share to the variance of the whole; and no grid is coarser than this share of its standard deviation.
_VARIANCE_SHARE, _COARSEST = 2e-3, 1 / 200
# Each factor of a product of transforms is off by a few units in the last place, each cell's masses too.
_TRANSFORM_ERROR, _CELL_ERROR = 8 * 2.0**-53, 1e-15


@dataclasses.dataclass(frozen=True)
class Encoded:
    """`count` releases of Poisson-sampled noise under a codebook's codewords; a rate of 1 is without sampling."""

    noise: Noise
    codebook: Codebook
    sampling_rate: float
    count: int

    def span(self) -> tuple[float, float]:
        """The losses between which the finite ones lie."""
        whole = codebook_loss(self.noise, self.codebook)
        low, high = -whole.last * whole.interval, whole.last * whole.interval
        return tuple(float(sampled_losses(np.array([loss]), self.sampling_rate)[0]) for loss in (low, high))

    def one_step(self, interval: float) -> OneStepLoss:
        return _one_step(self.noise, self.codebook, self.sampling_rate, interval)

    def second_moment(self, interval: float) -> float:
        loss = self.one_step(interval).remove
        return float(np.sum((np.arange(loss.first, loss.last + 1) * interval) ** 2 * loss.masses))

    def total_variation(self) -> float:
        return self.sampling_rate * float(codebook_loss(self.noise, self.codebook).get_delta_for_epsilon(0.0))


@functools.lru_cache(maxsize=8)
def codebook_loss(noise: Noise, codebook: Codebook) -> GridLoss:
    """Of all codewords, without sampling."""
    return codeword_loss(noise, codebook.magnitudes, codebook.counts)


def codeword_loss(noise: Noise, magnitudes: np.ndarray, counts: np.ndarray) -> GridLoss:
    """The loss of a release of which a record moves each coordinate by up to its magnitude in one of the rows.

    P is with the record, Q without it. The pair is symmetric: the mass at -l is that at l times e^(-l), and Q has the
    mass `infinity` where P has none. Only losses from 0 on are taken from the transform: its rounding errors would be
    multiplied by e^l under Q otherwise.
    """
    check_noise(noise)
    shifts, numbers = _rounded_up(np.atleast_2d(magnitudes), counts, least_shift(noise))
    if not shifts.size:
        return GridLoss(1.0, 0, np.ones(1), 0.0)
    interval = _interval(noise, shifts, numbers)
    losses = [coordinate_loss(noise, float(shift), interval) for shift in shifts]
    if any(loss.infinity >= 1 for loss in losses):
        return certain(interval)
    delta, infinity = _worst_curve(losses, numbers)
    # At -interval, by symmetry: delta(-e) = 1 - e^-e + e^-e delta(e).
    before = -math.expm1(-interval) + math.exp(-interval) * delta[1]
    steps = np.diff(np.concatenate([[before], delta, [0.0]]))
    upper = np.maximum((steps[1:] - math.exp(interval) * steps[:-1]) / math.expm1(interval), 0.0)
    lower = (upper * np.exp(-np.arange(len(upper)) * interval))[:0:-1]
    return GridLoss(interval, 1 - len(upper), np.concatenate([lower, upper]), infinity)


def _worst_curve(losses: list[GridLoss], numbers: np.ndarray) -> tuple[np.ndarray, float]:
    """The largest delta of all products at 0, 1, 2... intervals, but for the mass at an infinite loss, and a bound of that.

    Row c of `numbers` says how many coordinates have each of the losses. Rounding: a product of d spectra is off by d
    units in the last place (times 8, measured to be ample); by Parseval and Cauchy-Schwarz this moves delta by at most that
    times sqrt(sum of |spectrum|^2). It counts as an infinite loss, and so does the rounding of the d coordinates' own
    masses, and what the window leaves out.
    """
    from scipy import fft

    interval = losses[0].interval
    # The most that any codeword has of each loss: no product has larger moments E[e^(a L)], so none reaches higher. What
    # lies below the window is put above 0 by the transform, where it costs more.
    first, last = window([Power(loss, int(n)) for loss, n in zip(losses, numbers.max(axis=0), strict=True)])
    last = max(last, 1)
    # Every loss from the window's start, or from 0, to its end has a place of its own.
    needed = max(last + 1 - min(first, 0), *(len(loss.masses) for loss in losses))
    points = fft.next_fast_len(needed, real=True)
    kept, logs = _log_spectra(losses, numbers.min(axis=0), points)
    grid, delta, energy = np.arange(last + 1) * interval, np.zeros(last + 1), 0.0
    for part in np.array_split(numbers, 1 + len(numbers) // _CODEWORDS_AT_ONCE):
        spectra = np.zeros((len(part), points // 2 + 1), dtype=complex)
        spectra[:, kept] = np.exp(part @ logs.real + 1j * (part @ logs.imag))
        masses = np.maximum(fft.irfft(spectra, points)[:, : last + 1], 0.0)
        energy = max(energy, 2 * float((np.abs(spectra) ** 2).sum(axis=1).max()))
        above = _sums_beyond(masses) - np.exp(np.minimum(grid, 700)) * _sums_beyond(masses * np.exp(-grid))
        delta = np.maximum(delta, above.max(axis=0))
    total = numbers.sum(axis=1).max()
    error = total * (_TRANSFORM_ERROR * math.sqrt(energy) + _CELL_ERROR)
    beyond = -math.expm1(float(numbers.max(axis=0) @ np.log1p([-loss.infinity for loss in losses])))
    return delta, beyond + error + _OUTSIDE_WINDOW


def _log_spectra(losses: list[GridLoss], fewest: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The frequencies at which some product may have a coefficient that counts, and each loss's log transform there.

    A product has at least `fewest` of each loss, and no transform exceeds 1: once those looked at leave nothing of a
    frequency, it is given up. The widest losses leave least.
    """
    from scipy import fft

    kept, whole = np.arange(points // 2 + 1), np.zeros(points // 2 + 1)
    rows: dict[int, np.ndarray] = {}
    for i in sorted(range(len(losses)), key=lambda i: -fewest[i] * len(losses[i].masses) ** 2):
        placed = np.zeros(points)
        placed[(losses[i].first + np.arange(len(losses[i].masses))) % points] = losses[i].masses
        rows[i] = np.log(fft.rfft(placed)[kept] + _LEAST_COEFFICIENT)
        whole += fewest[i] * np.minimum(rows[i].real, 0.0)
        alive = whole > math.log(_LEAST_COEFFICIENT)
        if alive.sum() < 0.8 * len(alive):
            kept, whole = kept[alive], whole[alive]
            rows = {j: row[alive] for j, row in rows.items()}
    return kept, np.array([rows[i] for i in range(len(losses))])


def _sums_beyond(rows: np.ndarray) -> np.ndarray:
    """In each row, the sum of what comes after each entry."""
    sums = np.cumsum(rows[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([sums[:, 1:], np.zeros((len(rows), 1))], axis=1)


def _rounded_up(magnitudes: np.ndarray, counts: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Few shifts for all rows, and how many coordinates of each row each stands for: none is below its coordinates.

    Edges lie closer where there are many coordinates and large ones: spaced by 1 / sqrt(count * magnitude) they add
    least to the sum of squares.
    """
    largest = np.maximum(magnitudes.max(axis=0), floor).astype(float)
    shifts = np.unique(np.concatenate([largest, np.maximum(magnitudes[: _MOST_SHIFTS // 10], floor).ravel()]))
    if len(shifts) > _MOST_SHIFTS:
        ranks = np.argsort(largest)
        shifts = largest[ranks]
        effort = np.cumsum(np.sqrt(counts[ranks] * shifts * np.diff(shifts, prepend=0.0)))
        group = np.minimum((effort / effort[-1] * _GROUPS).astype(int), _GROUPS - 1)
        shifts = np.unique(shifts[np.flatnonzero(np.diff(group, append=_GROUPS))])
    present = [row > 0 for row in magnitudes]
    where = [np.searchsorted(shifts, row[some]) for row, some in zip(magnitudes, present, strict=True)]
    numbers = [np.bincount(at, counts[some], len(shifts)) for at, some in zip(where, present, strict=True)]
    used = np.sum(numbers, axis=0) > 0
    return shifts[used], np.array(numbers)[:, used]


def _interval(noise: Noise, shifts: np.ndarray, numbers: np.ndarray) -> float:
    """By the chi-square divergence, which is about the loss's variance, of the smallest codeword."""
    some = np.unique(np.linspace(0, len(shifts) - 1, 40).astype(int))
    known = [min(float(log_moments(noise, float(shifts[i]), 2)[0]), 1e3) / shifts[i] ** 2 for i in some]
    variances = numbers @ (np.interp(shifts, shifts[some], known) * shifts**2)
    variance = float(variances[variances > 0].min())
    return min(2 * math.sqrt(_VARIANCE_SHARE * variance / numbers.sum(axis=1).max()), _COARSEST * math.sqrt(variance))


def sampled_losses(losses: np.ndarray, rate: float) -> np.ndarray:
    """log(1 - q + q e^l): the loss of a release seen through Poisson sampling."""
    if rate == 1:
        return losses
    high = np.maximum(losses, 0.0)
    return np.where(
        losses > 30,
        high + np.log(rate + (1 - rate) * np.exp(-high)),
        np.log1p(rate * np.expm1(np.minimum(losses, 30.0))),
    )


@functools.lru_cache(maxsize=16)
def _one_step(noise: Noise, codebook: Codebook, rate: float, interval: float) -> OneStepLoss:
    return sampled_loss(codebook_loss(noise, codebook), rate, interval)


def sampled_loss(whole: GridLoss, rate: float, interval: float) -> OneStepLoss:
    """Of the pair ((1 - q) Q + q P, Q), a record removed, and of the swapped pair, a record added."""
    losses = np.arange(whole.first, whole.last + 1) * whole.interval
    # Q's mass at l is P's at -l; where P has none, Q has `infinity`, which the mixture sees at the loss log(1 - q).
    masses = (1 - rate) * whole.masses[::-1] + rate * whole.masses
    at = sampled_losses(losses, rate)
    if rate == 1:
        symmetric = on_grid(at, masses, interval, whole.infinity)
        return OneStepLoss(symmetric, symmetric)
    at, masses = np.append(at, math.log1p(-rate)), np.append(masses, (1 - rate) * whole.infinity)
    remove = on_grid(at, masses, interval, rate * whole.infinity)
    grid = np.arange(remove.first, remove.last + 1) * interval
    swapped = (np.exp(-grid) * remove.masses)[::-1]
    return OneStepLoss(remove, GridLoss(interval, -remove.last, swapped, 0.0))
