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
    within 1e-7 (relative) of an amount that costs too much. 0 is returned where not even `least` fits.

    One evaluation may take a second, so the search first follows the cost, then interpolates, and bisects
    only where interpolation creeps.
    """
    low, low_cost = 0.0, 0.0
    high, high_cost = math.inf, math.inf
    x, creeping, shortest = min(max(guess, least), most), 0, 1.001
    while True:
        x = math.floor(x) if whole else x
        width = high - low
        if (cost_of_x := cost(x)) <= budget:
            low, low_cost = x, cost_of_x
        else:
            high, high_cost = x, cost_of_x
        if low >= most or high <= least or _settled(low, low_cost, high, budget, whole, close_enough):
            return low
        if low == 0 or math.isinf(high):
            # Costs grow about as fast as x or its square root, so this lands beyond the budget, and not far.
            ratio = budget / cost_of_x if cost_of_x > 0 else math.inf
            reach = min(max(min(max(ratio, 1 / ratio), 4.0) ** 2 if ratio > 0 else math.inf, shortest), 16.0)
            shortest **= 2
            x = max(x / reach, least) if low == 0 else min(x * reach, most)
            continue
        creeping = creeping + 1 if high - low > width / 2 else 0
        if creeping > 2 or not 0 < low_cost < high_cost < math.inf:
            x, creeping = math.sqrt(low * high), 0
        else:
            share = math.log(budget / low_cost) / math.log(high_cost / low_cost)
            x = low * (high / low) ** share
        if whole:
            x = min(max(math.floor(x), low + 1), high - 1)
        elif not low < x < high:
            x = math.sqrt(low * high)


def _settled(low: float, low_cost: float, high: float, budget: float, whole: bool, close_enough: float) -> bool:
    if whole:
        return high - low <= 1
    return low_cost >= (1 - close_enough) * budget or (low > 0 and high <= low * (1 + 1e-7))
