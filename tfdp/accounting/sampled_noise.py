"""Renyi divergences of the Poisson-sampled mechanism with arbitrary noise under codewords (Nasr et al. 2020, section 4).

What is priced. Record i contributes a vector v with |v_j| <= c_j for one codeword c, its coordinates in an order of the
record's own; to the sum over the lot is added noise with independent coordinates of one density f. Let q be the
sampling rate, P the noise shifted by v and Q the noise: products over the coordinates.

1. Given the lot of all other records, the outputs with and without the record are (1 - q) Q + q P and Q, moved by the
   same sum, and Renyi divergence neither sees that move nor grows when the lots are averaged (it is jointly
   quasi-convex). An order of coordinates, and signs, change nothing: f is symmetric and the same in each coordinate.
2. Lemma 4, whose prefactor is 1 / (a - 1). For whole a the binomial theorem, which needs nothing of P and Q, gives

       E_Q [(1 - q + q P / Q)^a] = sum over k of C(a, k) q^k (1 - q)^(a - k) E_Q [(P / Q)^k],

   and E_Q [(P / Q)^k] is the product over coordinates of M_k(v_j), for P and Q are products.
3. M_k is nondecreasing in |v_j| (`noise_checks.check_noise`, with proof) and every term is nonnegative: v = c is the
   worst that lies under the codeword c. Over several codewords the maximum is taken (lemma 5).
4. The other direction costs no more. x -> v - x exchanges P and Q, for f is symmetric. Then for every real a >= 1

       E_mix [(Q / mix)^a] <= E_Q [(mix / Q)^a],    mix = (1 - q) Q + q P

   (Mironov, Talwar and Zhang 2019, arXiv:1908.10530, theorem 5). Proof: let L = P / Q, b = 1 - q + q L at a point x
   with L > 1 and 1 / c = 1 - q + q / L at its mirror image, where Q is L times as dense. The two points together make
   the right side larger by Q(x) (h(b) - (L / c) h(c)) with h(s) = s^a - s^(1 - a). Now L / c = (b - 1) / (c - 1) and
   b >= c >= 1; h is convex for s >= 1 and h(1) = 0, so h(s) / (s - 1) grows, and the difference is not negative.

Proven are 1 to 4. Numerical is what they are applied to: the noise has the properties on a fine grid, and the moments
are integrals with a margin added (`noise_moments`), interpolated from above (`MomentTable`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from tfdp.accounting import checks
from tfdp.accounting.codebooks import Codebook
from tfdp.accounting.noise_checks import check_noise
from tfdp.accounting.noise_moments import least_shift, log_moments
from tfdp.noise import Noise

# Up to so many distinct shifts are integrated each by itself; more are interpolated, on a lattice of this step in the
# logarithm of the shift.
_MOST_EXACT = 150
_LATTICE = math.log(2) / 12
# The table begins at this share of the codewords' root mean square; what lies below adds less than 1e-9 of the whole.
_TABLE_START = 1e-3


def sampled_noise_rdp(
    noise: Noise, codeword: np.ndarray | Codebook, sampling_rate: float, orders: Sequence[int]
) -> np.ndarray:
    """Renyi divergences of one step: noise added to a Poisson lot's sum, each record's vector under a codeword.

    Guarantee: an upper bound, in both directions, for every vector that is in absolute value, and in some order of its
    coordinates, nowhere above the codeword (this module's docstring). Infinite at orders where a moment is.

    Args:
        noise: of one coordinate, in the unit of the codeword.
        codeword: one codeword, several as rows (the most expensive one counts), or a `Codebook`.
        sampling_rate: the probability of a record to be in the lot; 1 for every record in every step.
        orders: whole Renyi orders, at least 2.

    Example:
        >>> from tfdp.noise import Gaussian
        >>> sampled_noise_rdp(Gaussian(1.0), [0.6, 0.8], 1.0, [2, 8]).round(6)  # order / 2 at norm 1
        array([1., 4.])
    """
    rate = checks.sampling_rate(sampling_rate)
    wanted = [checks.count("orders", order, "write whole Renyi orders, such as range(2, 65)", 2) for order in orders]
    if not wanted:
        raise ValueError("orders is empty: write whole Renyi orders, such as range(2, 65)")
    moments = codeword_moments(noise, codeword, max(wanted))
    return np.array([_divergence(moments, rate, order).max() for order in wanted])


def _groups(codeword: np.ndarray | Codebook) -> tuple[np.ndarray, np.ndarray]:
    """Codewords as rows of ascending magnitudes, and how many weights each column stands for."""
    if isinstance(codeword, Codebook):
        return codeword.magnitudes, codeword.counts
    magnitudes = np.sort(np.abs(np.atleast_2d(np.asarray(codeword, dtype=float))), axis=-1)
    if magnitudes.ndim != 2 or not magnitudes.size or not np.isfinite(magnitudes).all():
        raise ValueError(
            "codeword must be a finite vector, or several as the rows of a matrix, in the unit of the noise; got "
            f"shape {np.shape(codeword)}"
        )
    return magnitudes, np.ones(magnitudes.shape[1])


def codeword_moments(noise: Noise, codeword: np.ndarray | Codebook, highest: int) -> np.ndarray:
    """log E_Q [(P / Q)^k] of each codeword (rows) for k = 2, 3, ... `highest`: the sums of its coordinates' log M_k."""
    check_noise(noise)
    magnitudes, counts = _groups(codeword)
    if not magnitudes.any():
        return np.zeros((len(magnitudes), highest - 1))
    # Moments do not change when noise and shift are divided by the same number: all sizes of a noise share one table.
    table = moment_table(noise.standard, noise.size, magnitudes, counts, highest)
    weights = np.array([table.weights(row, counts, noise.size) for row in magnitudes])
    infinite = np.isinf(table.log_moments)
    moments = weights @ np.where(infinite, 0.0, table.log_moments)
    reached = (weights > 0).astype(float) @ infinite > 0
    overflown = np.isnan(moments)  # squares of magnitudes are beyond all floats
    return np.where(reached | overflown, math.inf, moments)


@dataclasses.dataclass(frozen=True, eq=False)
class MomentTable:
    """log M_k at `shifts`, which begin with 0, so raised that the chord in the squared shift lies above log M_k.

    The raise: on a grid of twice the step, the chord misses the value at its middle by e. For a function with a
    continuous second derivative the chord on the grid itself misses by about e / 4; where e is positive (the function
    lies above its chords), both ends of an interval are raised by the largest e around it. A shift below the first
    positive one is priced as that one: by monotonicity that is never too low.
    """

    shifts: np.ndarray
    log_moments: np.ndarray

    def weights(self, magnitudes: np.ndarray, counts: np.ndarray, size: float) -> np.ndarray:
        """How many of a codeword's coordinates, divided by `size`, each entry stands for.

        A coordinate between two entries is shared between them, linearly in its square: so the number of coordinates and
        the sum of their squares in each interval are all that is needed. `magnitudes` ascend.
        """
        numbers = np.append(0.0, np.cumsum(counts))
        squares = np.append(0.0, np.cumsum((magnitudes.astype(float) / size) ** 2 * counts))
        ends = np.searchsorted(magnitudes, self.shifts * size, side="right")
        ends[-1] = len(magnitudes)  # the last entry is the largest magnitude or above it, but for rounding
        number, square = np.diff(numbers[ends]), np.diff(squares[ends])
        low, high = self.shifts[:-1] ** 2, self.shifts[1:] ** 2
        right = np.clip((square - number * low) / (high - low), 0.0, number)
        right[0] = number[0]
        return np.append(0.0, right) + np.append(number - right, 0.0)


def moment_table(noise: Noise, size: float, magnitudes: np.ndarray, counts: np.ndarray, highest: int) -> MomentTable:
    """The table for codewords divided by `size`: exact where they have few distinct magnitudes, else interpolated.

    Interpolated shifts lie on one lattice, so that the next size of the noise needs few more.
    """
    exact, floor = _distinct(magnitudes), least_shift(noise)
    if exact is not None:
        shifts = np.unique(np.maximum(exact / size, floor))
    else:
        row = magnitudes[int(np.argmax(magnitudes[:, -1]))].astype(float)
        typical = math.sqrt(float((row**2 * counts).sum() / counts.sum())) / size
        largest = float(magnitudes.max()) / size
        first = math.floor(max(math.log(_TABLE_START * typical), math.log(floor)) / _LATTICE)
        last = max(math.ceil(math.log(largest) / _LATTICE * (1 + 1e-12)), first + 4)
        shifts = np.exp(_LATTICE * np.arange(max(first, math.ceil(math.log(floor) / _LATTICE)), last + 2))
    values = np.array([log_moments(noise, float(shift), highest) for shift in shifts]).reshape(-1, highest - 1)
    _check_growth(noise, shifts, values)
    if exact is None:
        values = values + _chord_errors(shifts**2, values)
    return MomentTable(np.append(0.0, shifts), np.vstack([np.zeros(highest - 1), values]))


def _distinct(magnitudes: np.ndarray) -> np.ndarray | None:
    """The distinct positive magnitudes if they are few."""
    found: np.ndarray = np.zeros(0)
    for row in magnitudes:
        found = np.union1d(found, row[row > 0].astype(float))
        if found.size > _MOST_EXACT:
            return None
    return found


def _chord_errors(squares: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What each entry is raised by: the largest positive e at itself and at its two neighbours."""
    share = ((squares[1:-1] - squares[:-2]) / (squares[2:] - squares[:-2]))[:, None]
    with np.errstate(invalid="ignore"):
        errors = values[1:-1] - ((1 - share) * values[:-2] + share * values[2:])
    errors = np.pad(np.maximum(np.nan_to_num(errors, nan=math.inf), 0.0), ((2, 2), (0, 0)), mode="edge")
    return np.maximum(np.maximum(errors[:-2], errors[1:-1]), errors[2:])


def _check_growth(noise: Noise, shifts: np.ndarray, values: np.ndarray) -> None:
    """The theorem of `check_noise` must show in the numbers: were it not so, the quadrature would have failed."""
    with np.errstate(invalid="ignore"):
        falls = (values[1:] < values[:-1] * (1 - 1e-7)).any(axis=1)
    if falls.any():
        where = int(np.flatnonzero(falls)[0])
        raise ValueError(
            f"{noise!r} cannot be priced: between the shifts {shifts[where]:.4g} and {shifts[where + 1]:.4g} a moment of "
            "its likelihood ratio falls, so that a codeword would not bound what lies under it; take a noise with a smooth "
            "density that is densest at 0"
        )


def _divergence(moments: np.ndarray, rate: float, order: int) -> np.ndarray:
    """log(1 + sum over k >= 2 of C(a, k) q^k (1 - q)^(a - k) (E_Q [(P / Q)^k] - 1)) / (a - 1), of each codeword."""
    if rate == 1:
        return moments[:, order - 2] / (order - 1)
    k, factors = _log_binomials(order)
    logs = factors + k * math.log(rate) + (order - k) * math.log1p(-rate)
    used = moments[:, : order - 1]
    with np.errstate(divide="ignore", over="ignore"):
        exponents = logs + used + np.log(-np.expm1(-used))
    largest = exponents.max(axis=1, keepdims=True)
    safe = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        excess = safe[:, 0] + np.log(np.exp(exponents - safe).sum(axis=1))
    return np.where(excess < 30, np.log1p(np.exp(np.minimum(excess, 30))), np.logaddexp(0, excess)) / (order - 1)


@functools.lru_cache(maxsize=1024)
def _log_binomials(order: int) -> tuple[np.ndarray, np.ndarray]:
    from scipy import special

    k = np.arange(2, order + 1)
    return k, special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
