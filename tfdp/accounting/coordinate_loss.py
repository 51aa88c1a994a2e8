"""The privacy loss of one coordinate's noise under a shift, on a grid, from above.

For a density f that is symmetric and falls with |x|, and a shift t >= 0: the pair P with density f(y), Q with density
f(y + t), and the loss L(y) = log(f(y) / f(y + t)). It need not be monotone in y.
"""

from __future__ import annotations

import functools

import numpy as np

from tfdp.accounting.loss_grids import GridLoss
from tfdp.noise import Noise

_TAIL_MASS = 1e-20
_POINTS = 5


def coordinate_loss(noise: Noise, shift: float, interval: float) -> GridLoss:
    """A loss distribution whose hockey-stick curve lies nowhere below that of the pair (P, Q), up to rounding.

    Guarantee: the line is cut into cells, each with its masses p under P and q under Q, on which the loss lies between
    two numbers a and b. A cell's share of any f-divergence is p times the mean of a convex function of e^(-L), whose
    mean on the cell is q / p: it is largest if e^(-L) takes the two extreme values only. So the cell's mass is put on
    a and b with p and q kept, and then each of the two on the two grid points around it, with p and q kept again
    ("connect the dots": Doroshenko et al. 2022, arXiv:2207.04380). What lies beyond the cells, 1e-20 on each side, has
    an infinite loss.

    The extremes on a cell are those at its ends and at 5 points inside, widened by a quarter of their distance: no proof
    that nothing lies beyond, for the noise may be any; but where L turns within a cell, it turns by far less than that.
    """
    low, high, p, q = _cells(noise, shift)
    both = (p > 0) & (q > 0)
    if not both.any():
        return certain(interval)
    infinity = 2 * _TAIL_MASS + float(p[q == 0].sum())  # Q's density below all floats
    low, high, p, q = low[both], high[both], p[both], q[both]
    # Rounding must not leave the mean outside of the extremes.
    mean = np.log(p) - np.log(q)
    low, high = np.minimum(low, mean), np.maximum(high, mean)
    up = _upper_share(low, mean, high)
    losses, masses = np.concatenate([low, high]), np.concatenate([p * (1 - up), p * up])
    return on_grid(losses, masses, interval, infinity)


def certain(interval: float) -> GridLoss:
    """Of a release that tells the record: P and Q have nothing in common that a float can hold."""
    return GridLoss(interval, 0, np.full(1, 1e-300), 1.0)


def on_grid(losses: np.ndarray, masses: np.ndarray, interval: float, infinity: float) -> GridLoss:
    """Atoms put on the multiples of `interval`, each on the two around it so that its masses under P and Q are kept."""
    below = np.floor(losses / interval).astype(np.int64)
    up = _upper_share(below * interval, losses, (below + 1) * interval)
    first = int(below.min())
    size = int(below.max()) - first + 2
    found = np.bincount(below - first, masses * (1 - up), size) + np.bincount(below - first + 1, masses * up, size)
    return GridLoss(interval, first, found, infinity)


def _upper_share(low: np.ndarray, loss: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The share w of the mass at `high` for which w e^(-high) + (1 - w) e^(-low) = e^(-loss)."""
    width = np.expm1(low - high)
    return np.clip(np.where(width < 0, np.expm1(low - loss) / np.where(width < 0, width, 1.0), 1.0), 0.0, 1.0)


def _cells(noise: Noise, shift: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper bounds of the loss on each cell, and the cell's masses under P and Q."""
    edges = _edges(noise)
    edges = np.unique(np.concatenate([edges, -shift - edges, [-shift / 2]]))  # y -> -t - y exchanges P and Q
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    half = np.diff(edges)[:, None] / 2
    y = np.hstack([edges[:-1, None], (edges[:-1, None] + half) + half * nodes, edges[1:, None]])
    under_p, under_q = noise.log_density(y), noise.log_density(y + shift)
    p = (np.exp(under_p[:, 1:-1]) * weights * half).sum(axis=1)
    q = (np.exp(under_q[:, 1:-1]) * weights * half).sum(axis=1)
    loss = under_p - under_q
    low, high = loss.min(axis=1), loss.max(axis=1)
    margin = (high - low) / 4
    return low - margin, high + margin, p, q


@functools.lru_cache(maxsize=8)
def _edges(noise: Noise) -> np.ndarray:
    """Cells' edges on both sides of 0: graded towards it, where a density may have a cusp, and in the tails."""
    unit = noise.unit
    farthest = float(noise.upper_quantile(np.array(_TAIL_MASS)))
    right = [np.geomspace(1e-9, 0.01, 50), np.arange(0.03, 15, 0.03), np.geomspace(15, max(farthest / unit, 16), 400)]
    right = unit * np.concatenate(right)
    right = np.append(right[right < farthest], farthest)
    return np.concatenate([-right[::-1], [0.0], right])
