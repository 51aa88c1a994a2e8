"""Tails and moments of a noise whose formulas are not known: integrals of its density.

The density is integrated over s = log x by Gauss-Legendre panels: singularities at 0 and heavy tails both become
exponentials there.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tfdp.noise.noise import Noise

# From e^-46 = 1e-20 to e^46 times the noise's unit, in panels so narrow that a Gaussian's tail, e^(-x^2 / 2), is
# smooth on each of those that still matter.
_REACH = 46.0
_WIDTH = 1 / 64
_POINTS = 8


@functools.lru_cache(maxsize=16)
def _cumulated(noise: Noise) -> tuple[np.ndarray, np.ndarray]:
    """log x at the panels' edges, and the logarithm of the mass above each."""
    edges = np.arange(-_REACH, _REACH + _WIDTH / 2, _WIDTH) + math.log(noise.unit)
    logs = _log_panels(noise, edges, 0.0)
    return edges, np.append(np.logaddexp.accumulate(logs[::-1])[::-1], -np.inf)


def _log_panels(noise: Noise, edges: np.ndarray, power: float) -> np.ndarray:
    """The logarithm of the integral of x^power f(x) over each panel."""
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    half = np.diff(edges)[:, None] / 2
    s = (edges[:-1, None] + half) + half * nodes
    exponents = noise.log_density(np.exp(s)) + (power + 1) * s + np.log(weights * half)
    largest = exponents.max(axis=1)
    safe = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return safe + np.log(np.exp(exponents - safe[:, None]).sum(axis=1))


def survival(noise: Noise, x: np.ndarray) -> np.ndarray:
    """The mass above each x: the panels beyond, and the part of its own."""
    x = np.asarray(x, dtype=float)
    edges, logs = _cumulated(noise)
    with np.errstate(divide="ignore"):
        s = np.log(np.abs(x)).reshape(-1)
    panel = np.clip(np.searchsorted(edges, s), 1, len(edges) - 1)
    start = np.clip(s, edges[0], edges[panel])
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    half = (edges[panel] - start)[:, None] / 2
    inner = (start[:, None] + half) + half * nodes
    part = (np.exp(noise.log_density(np.exp(inner)) + inner) * weights * half).sum(axis=1)
    above = np.minimum(np.exp(logs[panel]) + part, 0.5).reshape(x.shape)
    return np.where(x > 0, above, np.where(x < 0, 1 - above, 0.5))


def upper_quantile(noise: Noise, tail: np.ndarray) -> np.ndarray:
    """Inverse of `survival`: interpolated in the table, then Newton's method on the logarithm of the tail."""
    edges, logs = _cumulated(noise)
    tail = np.asarray(tail, dtype=float)
    with np.errstate(divide="ignore"):
        wanted = np.log(tail)
    known = np.isfinite(logs)
    s = np.interp(-wanted, -logs[known], edges[known])
    for _ in range(4):
        x = np.exp(s)
        mass = noise.survival(x)
        inside = (mass > 0) & (tail > 0)
        # d log survival / d log x = -x f(x) / survival(x), which is far from 0 unless x is near the centre.
        slope = np.exp(np.minimum(noise.log_density(x) + s, 700.0))
        step = np.log(np.where(inside, mass / np.where(inside, tail, 1.0), 1.0)) * mass / np.maximum(slope, 1e-300)
        s = s + np.where(inside, np.clip(step, -1.0, 1.0), 0.0)
    return np.where(tail >= 0.5, 0.0, np.where(tail <= 0, math.inf, np.exp(s)))


def absolute_moment(noise: Noise, power: float) -> float:
    """E|Z|^power; infinite where the tails are too heavy."""
    edges = np.arange(-_REACH, _REACH + _WIDTH / 2, _WIDTH) + math.log(noise.unit)
    logs = _log_panels(noise, edges, power)
    # A power law's panels beyond the last go on falling by the same share.
    step = logs[-1] - logs[-2] if np.isfinite(logs[-2]) else -np.inf
    if step > -1e-6:
        return math.inf
    beyond = math.exp(logs[-1] + step) / -math.expm1(step)
    return 2 * (math.exp(np.logaddexp.reduce(logs)) + beyond)
