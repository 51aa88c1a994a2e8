"""The information-theoretic bounds of Xiang et al. 2021, section 5 (Directional noise, arXiv-free; see
docs/accounting.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfdp.accounting import checks


def mutual_information_bound(epsilon: float) -> float:
    """epsilon (e^epsilon - 1) / 2 nats: theorem 2 of Xiang et al. 2021.

    What a release says about its input, if the mechanism is *purely* epsilon-differentially private (delta 0)
    for every two inputs. Gaussian noise has no pure epsilon, so beside a Gaussian run the number is "as
    published", not proven.
    """
    epsilon = checks.non_negative("epsilon", epsilon, "write the epsilon of a mechanism whose delta is 0")
    try:
        return epsilon * math.expm1(epsilon) / 2
    except OverflowError:
        return math.inf


def distortion_rate(weights: Sequence[float], entropies: Sequence[float], rate: float) -> float:
    """D*(R): no release that says at most `rate` nats about g distorts it less (theorem 3 of Xiang et al.
    2021).

    The distortion is E ||w o (g~ - g)||^2; the components of g are independent, component i has differential
    entropy h_i = entropies[i] (nats) and weight w_i. Reverse water-filling, eqs. 15.

    Example: two Gaussian components of variance 1 share 2 nats, and each keeps e^-2 of it.
        >>> h = 0.5 * math.log(2 * math.pi * math.e)
        >>> round(distortion_rate([1.0, 1.0], [h, h], 2.0) / 2, 6) == round(math.exp(-2), 6)
        True
    """
    return float(np.sum(distortion_components(weights, entropies, rate)))


def distortion_components(weights: Sequence[float], entropies: Sequence[float], rate: float) -> np.ndarray:
    """D_i of eq. 15b: the water level where a component has more than that, all it has (eq. 15a)
    otherwise."""
    rate = checks.non_negative("rate", rate, "write the information that may be released, in nats")
    log_powers = _log_powers(weights, entropies)
    alive = np.sort(log_powers[np.isfinite(log_powers)])[::-1]
    if not alive.size:
        return np.zeros(len(log_powers))
    # With the k largest components above the water, eq. 15c reads R = sum over them of (log beta_i - log
    # lambda) / 2.
    counts = np.arange(1, alive.size + 1)
    levels = (np.cumsum(alive) - 2 * rate) / counts
    # The right k is the last one whose level lies below its own smallest component.
    k = int(np.flatnonzero(levels <= alive)[-1])
    return np.exp(np.minimum(log_powers, levels[k]))


def rate_distortion(weights: Sequence[float], entropies: Sequence[float], distortion: float) -> float:
    """R*(D), the inverse of `distortion_rate`: the least information, in nats, that leaves `distortion` (eqs.
    16)."""
    distortion = checks.non_negative("distortion", distortion, "write the distortion that may remain")
    log_powers = _log_powers(weights, entropies)
    powers = np.sort(np.exp(log_powers[np.isfinite(log_powers)]))
    if distortion >= np.sum(powers):
        return 0.0
    if distortion == 0:
        return math.inf
    # With the k smallest components under the water, the others share what is left of the distortion equally.
    below = np.concatenate([[0.0], np.cumsum(powers)[:-1]])
    levels = (distortion - below) / np.arange(powers.size, 0, -1)
    k = int(np.flatnonzero(levels <= powers)[0])
    return float(np.sum(np.log(powers[k:] / levels[k])) / 2)


def _log_powers(weights: Sequence[float], entropies: Sequence[float]) -> np.ndarray:
    """log beta_i, with beta_i = w_i^2 e^(2 h_i) / (2 pi e) (eq. 15a): minus infinity for a weight of 0."""
    weights = np.asarray(weights, dtype=float)
    entropies = np.asarray(entropies, dtype=float)
    if weights.ndim != 1 or weights.shape != entropies.shape or not weights.size:
        raise ValueError(
            f"weights and entropies must be two lists of the same length, got shapes {weights.shape} and "
            f"{entropies.shape}: write one weight and one differential entropy (nats) for each component"
        )
    if not (np.all(np.isfinite(weights)) and np.all(np.isfinite(entropies))):
        raise ValueError("weights and entropies must be finite: leave out a component that carries nothing")
    with np.errstate(divide="ignore"):
        return 2 * np.log(np.abs(weights)) + 2 * entropies - math.log(2 * math.pi * math.e)
