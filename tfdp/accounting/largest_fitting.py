"""The search under all calibration: the largest amount whose cost stays within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable


def largest_fitting(
    cost: Callable[[float], float],
    budget: float,
    guess: float,
    *,
    least: float,
    most: float,
    whole: bool = False,
    close_enough: float = 0.0,
) -> float:
    """The largest x between `least` and `most` with cost(x) <= budget, for a cost that grows with x.

    Guarantee: cost(x) <= budget was evaluated for the x returned. With `whole`, cost(x + 1) > budget was
    evaluated too (unless x is `most`); otherwise x either costs at least (1 - close_enough) * budget, or lies
    within 1e-9 (relative) of an amount that costs too much. 0 is returned where not even `least` fits.
    """
    low, low_cost = 0.0, 0.0
    high, high_cost = math.inf, math.inf
    x, factor, turn = min(max(guess, least), most), 1.05, 0
    while True:
        x = math.floor(x) if whole else x
        if (cost_of_x := cost(x)) <= budget:
            low, low_cost = x, cost_of_x
        else:
            high, high_cost = x, cost_of_x
        if low >= most or high <= least or _settled(low, low_cost, high, budget, whole, close_enough):
            return low
        turn += 1
        if math.isinf(high):
            x, factor = min(low * factor, most), factor**2
        elif low == 0:
            x, factor = max(high / factor, least), factor**2
        elif turn % 3 == 0 or not (0 < low_cost < high_cost < math.inf):
            x = math.sqrt(low * high)  # interpolation alone may creep
        else:
            share = math.log(budget / low_cost) / math.log(high_cost / low_cost)
            x = low * (high / low) ** share
        if whole:
            x = min(max(math.floor(x), low + 1), high - 1)
        elif not low < x < high:
            x = math.sqrt(low * high) if low else high / factor


def _settled(
    low: float, low_cost: float, high: float, budget: float, whole: bool, close_enough: float
) -> bool:
    if whole:
        return high - low <= 1
    return low_cost >= (1 - close_enough) * budget or (low > 0 and high <= low * (1 + 1e-9))
