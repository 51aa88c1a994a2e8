"""Moments of one coordinate's likelihood ratio under a shift, by quadrature, never below the truth.

For a density f and a shift t, M_k(t) is the mean of (f(x - t) / f(x))^k under f. Everything the Renyi accountant of
arbitrary noise needs is log M_k(t) at whole k >= 2.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tfdp.noise import Noise

# Gauss-Kronrod with 7 and 15 points (Piessens et al. 1983, QUADPACK): positive abscissae, weights of both rules.
_ABSCISSAE = np.array(
    [0.991455371120812639, 0.949107912342758525, 0.864864423359769073, 0.741531185599394440,
     0.586087235467691130, 0.405845151377397167, 0.207784955007898468, 0.0]
)  # fmt: skip
_KRONROD = np.array(
    [0.022935322010529225, 0.063092092629978553, 0.104790010322250184, 0.140653259715525919,
     0.169004726639267903, 0.190350578064785410, 0.204432940075298892, 0.209482141084727828]
)  # fmt: skip
_GAUSS = np.array([0, 0.129484966168869693, 0, 0.279705391489276668, 0, 0.381830050505118945, 0, 0.417959183673469388])
_NODES = np.concatenate([-_ABSCISSAE, _ABSCISSAE[-2::-1]])
_KRONROD_WEIGHTS = np.concatenate([_KRONROD, _KRONROD[-2::-1]])
_DIFFERENCE_WEIGHTS = _KRONROD_WEIGHTS - np.concatenate([_GAUSS, _GAUSS[-2::-1]])

# Panels, in units of half the noise's interquartile range: from 2^-30 next to a singularity to 1e8 in the tails.
_NEAREST, _FARTHEST = 2.0**-30, 1e8
_BULK = 20.0
_LARGEST_EXPONENT = 600.0
_AS_GOOD_AS_INFINITE = 1e9
# The most that an order times a shift may be, in units: 100,000 panels. A shift that order 2 is too high for costs hundreds in epsilon.
_FARTHEST_PEAK = 1350.0
# Log densities are off by some 1e-15, their differences over a shift of t units by 1e-15 / t of themselves, and no
# shift below _LEAST_SHIFT units is ever integrated. What is returned is raised by this share.
_ROUNDING = 2e-9
_LEAST_SHIFT = 1e-6


def least_shift(noise: Noise) -> float:
    """The smallest shift whose moments are computed: a smaller one is priced as this."""
    return _LEAST_SHIFT * noise.unit


@functools.lru_cache(maxsize=4096)
def log_moments(noise: Noise, shift: float, highest: int) -> np.ndarray:
    """log M_k(t) at the shift t for k = 2, 3, ... `highest`, from above; infinite where it diverges, or would take too long.

    Since f and f(. - t) both integrate to 1,

        M_k(t) - 1 = integral of f(x) (L^k - 1 - k (L - 1)) dx,    L = f(x - t) / f(x),

    whose integrand is nowhere negative (Bernoulli) and keeps its relative precision for the smallest shifts. Each panel
    is integrated by Gauss-Kronrod. To the result is added the whole difference between the two rules on every panel,
    which overstates the error of the better one, and a geometric series for what lies beyond the last panels.
    """
    units = shift / noise.unit
    computed = int(min(highest, _FARTHEST_PEAK / units))
    if computed < highest:
        below = log_moments(noise, shift, computed) if computed >= 2 else np.empty(0)
        moments = np.append(below, np.full(highest - 1 - len(below), math.inf))
        moments.setflags(write=False)
        return moments
    edges = noise.unit * _edges(units, highest)
    half = np.diff(edges)[:, None] / 2
    x = (edges[:-1, None] + half) + half * _NODES
    with np.errstate(invalid="ignore"):
        base = noise.log_density(x)
        ratio = noise.log_density(x - shift) - base
    lost = np.isnan(ratio)  # both densities are below all floats
    base, ratio = np.where(lost, -np.inf, base), np.where(lost, 0.0, ratio)
    growth = np.expm1(np.minimum(ratio, _LARGEST_EXPONENT))
    density = np.exp(base)
    moments = np.array([_log_moment(base, density, ratio, growth, half, k) for k in range(2, highest + 1)])
    moments.setflags(write=False)
    return moments


def _log_moment(
    base: np.ndarray, density: np.ndarray, ratio: np.ndarray, growth: np.ndarray, half: np.ndarray, order: int
) -> float:
    """log M_k of one shift from the log density and the density, the log ratio u and e^u - 1 at the nodes."""
    power = order * ratio
    with np.errstate(invalid="ignore"):
        exponent = base + power
    highest = float(exponent.max())
    if not highest < _AS_GOOD_AS_INFINITE:  # NaN where only the unshifted density is below all floats
        return math.inf
    largest = max(0.0, highest - _LARGEST_EXPONENT)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.exp(base - largest) if largest else density
        values = scaled * (np.expm1(np.minimum(power, _LARGEST_EXPONENT)) - order * growth)
    # Where e^(k u) dwarfs the other terms (u > 0), it alone is an upper bound.
    dwarfed = power >= _LARGEST_EXPONENT
    values[dwarfed] = np.exp(exponent[dwarfed] - largest)
    panels = np.maximum(values @ _KRONROD_WEIGHTS, 0.0) * half[:, 0]
    errors = np.abs(values @ _DIFFERENCE_WEIGHTS) * half[:, 0]
    beyond = _beyond(panels[1], panels[0]) + _beyond(panels[-2], panels[-1])
    total = (panels.sum() + errors.sum() + beyond) * (1 + _ROUNDING)
    if not math.isfinite(total):
        return math.inf
    return float(np.logaddexp(0.0, largest + math.log(total))) if largest else math.log1p(total)


def _beyond(last_but_one: float, last: float) -> float:
    """A bound of what the panels beyond the last would add, each wider than the one before it by the same factor.

    Tails are powers or lighter, so each panel adds at most the same share of the one before it. Where that share is near
    1 the moment diverges, or is as good as divergent.
    """
    if last == 0:
        return 0.0
    share = last / last_but_one if last_but_one > 0 else math.inf
    return last * share / (1 - share) if share < 0.9 else math.inf


@functools.lru_cache(maxsize=4096)
def _edges(shift: float, order: int) -> np.ndarray:
    """The panels' edges for one shift, in units: fine next to the singularities of f(x) and f(x - t), at 0 and at t.

    L^k may peak where log(f) has been shifted k times, k t from the centre, more narrowly the larger k t is.
    """
    width = 1 / math.sqrt(1 + order * shift)
    graded = np.append(0.0, np.geomspace(_NEAREST, width, 1 + math.ceil(math.log2(width / _NEAREST))))
    left = _outwards(graded, width, _BULK)
    right = _outwards(graded, width, _BULK + order * shift)
    inner = right[right < shift / 2 * (1 - 1e-9)]
    return np.concatenate([-left[:0:-1], inner, [shift / 2], shift - inner[::-1], shift + right[1:]])


def _outwards(graded: np.ndarray, width: float, bulk: float) -> np.ndarray:
    uniform = np.arange(graded[-1] + width, bulk, width)
    last = uniform[-1] if uniform.size else graded[-1]
    far = np.geomspace(
        last, _FARTHEST * max(1.0, last / _BULK), 2 + math.ceil(math.log(_FARTHEST / _BULK) / math.log(1.5))
    )
    return np.concatenate([graded, uniform, far[1:]])
