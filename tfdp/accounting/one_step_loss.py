"""The privacy loss distribution of one step of the Poisson-sampled Gaussian, on a grid, rounded up.

dp-accounting's own construction computes delta(epsilon) as a difference of two numbers near 1. That leaves an
error of 1e-16 however small the true value is; on the fine grids that small sampling rates need, the error
takes over (rate 1e-7, noise 1, 10^6 steps, interval 1.2e-8: it returns epsilon 0). Here delta is written so
that it keeps its relative precision.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from tfdp.accounting.loss_grids import GridLoss

# Beyond this many standard deviations lies a mass of e^-50 = 2e-22, as in dp-accounting.
_TAIL = 9.7408


class OneStepLoss(NamedTuple):
    """Loss distributions for a record removed and a record added; the same object where they are equal."""

    remove: GridLoss
    add: GridLoss


def span(noise_multiplier: float, sampling_rate: float) -> tuple[float, float]:
    """The losses between which all but e^-50 of the mass lies."""
    reach = _TAIL / noise_multiplier
    half = 0.5 / noise_multiplier**2
    return tuple(_sampled(loss, sampling_rate) for loss in (-reach - half, reach + half))


def _sampled(loss: float, sampling_rate: float) -> float:
    """log(1 - q + q e^loss): the loss of a Gaussian release, seen through Poisson sampling."""
    if loss < 700:
        return math.log1p(sampling_rate * math.expm1(loss)) if sampling_rate < 1 else loss
    return loss + math.log(sampling_rate)  # the term 1 - q is lost in rounding


@functools.lru_cache(maxsize=16)
def one_step_loss(noise_multiplier: float, sampling_rate: float, interval: float) -> OneStepLoss:
    """An upper bound, on the multiples of `interval`, of the privacy loss of one release.

    Guarantee: for every epsilon, the delta of the result is at least that of the mechanism (up to rounding),
    under addition and under removal: the "connect the dots" discretisation (Doroshenko et al. 2022,
    arXiv:2207.04380, algorithm 1) of the pair P = (1 - q) N(0, s^2) + q N(1, s^2), Q = N(0, s^2), which
    dominates all neighbours.
    """
    low, high = span(noise_multiplier, sampling_rate)
    first, last = min(math.floor(low / interval), -1), max(math.ceil(high / interval), 1)
    losses = np.arange(first, last + 1) * interval
    delta, dual = _hockey_sticks(losses, noise_multiplier, sampling_rate)

    # Algorithm 1 gives the mass at a grid point as a second difference that vanishes for delta = 1 and for
    # delta = e^epsilon. So at negative losses delta - (1 - e^epsilon), the small one there, may stand for
    # delta.
    def masses(curve: np.ndarray) -> np.ndarray:
        steps = np.diff(curve)
        return (steps[1:] - math.exp(interval) * steps[:-1]) / math.expm1(interval)

    probabilities = np.empty_like(losses)
    probabilities[0] = (dual[1] - dual[0]) / math.expm1(interval) - dual[0]
    probabilities[1:-first] = masses(dual[: 1 - first])
    probabilities[-first:-1] = masses(delta[-first - 1 :])
    probabilities[-1] = (delta[-1] - delta[-2]) / math.expm1(-interval)
    # Rounding may leave a tiny negative mass; raising it to 0 only ever adds to delta.
    probabilities = np.maximum(probabilities, 0.0)
    remove = GridLoss(interval, first, probabilities, float(delta[-1]))
    if sampling_rate == 1:
        return OneStepLoss(remove, remove)
    # Swapping the pair (P, Q) turns a loss l of mass p into -l of mass p e^-l, and keeps the order of
    # domination.
    swapped = (np.exp(-losses) * probabilities)[::-1]
    add = GridLoss(interval, -last, swapped, float(dual[0] * math.exp(-losses[0])))
    return OneStepLoss(remove, add)


@functools.lru_cache(maxsize=1024)
def second_moment(noise_multiplier: float, sampling_rate: float, interval: float) -> float:
    """Of the finite losses of one release, a record removed: it grows as the grid gets coarser."""
    loss = one_step_loss(noise_multiplier, sampling_rate, interval).remove
    losses = np.arange(loss.first, loss.last + 1) * interval
    return float(np.dot(losses**2, loss.masses))


def _hockey_sticks(losses: np.ndarray, noise_multiplier: float, sampling_rate: float) -> tuple[np.ndarray, np.ndarray]:
    """delta(epsilon) of the pair (P, Q), and delta(epsilon) - (1 - e^epsilon), each to its own relative
    precision.

    With e = e^epsilon - 1 and the point x where the loss is epsilon,
    x / s = s log(1 + e / q) + 1 / (2 s):
        delta(epsilon)                   = q Phi((1 - x) / s) - (e + q) Phi(-x / s)
        delta(epsilon) - (1 - e^epsilon) = (e + q) Phi(x / s) - q Phi((x - 1) / s)
    Losses never fall below log(1 - q), so there delta = 1 - e^epsilon.
    """
    from scipy import special

    growth = np.expm1(np.minimum(losses, 700.0))
    reached = growth > -sampling_rate
    # log(1 + e / q); where e^epsilon would overflow, 1 - q is far below its rounding error.
    unsampled = np.where(
        losses < 700,
        np.log1p(np.where(reached, growth, 0.0) / sampling_rate),
        losses - math.log(sampling_rate),
    )
    if sampling_rate == 1:
        unsampled = losses
    point = noise_multiplier * unsampled + 0.5 / noise_multiplier
    shifted = point - 1 / noise_multiplier
    delta = sampling_rate * (special.ndtr(-shifted) - np.exp(unsampled + special.log_ndtr(-point)))
    dual = sampling_rate * (np.exp(np.minimum(unsampled, 0)) * special.ndtr(point) - special.ndtr(shifted))
    delta = np.where(reached, delta, -growth)
    dual = np.where(reached, dual, 0.0)
    # delta falls with epsilon; a rounding error that makes it rise is taken out upwards.
    delta = np.maximum.accumulate(np.clip(delta, 0.0, 1.0)[::-1])[::-1]
    return delta, np.maximum(dual, 0.0)
