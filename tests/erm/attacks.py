"""What an attack on two neighbouring sets achieves, with statistical certainty."""

import math

import numpy as np
import scipy.stats

CONFIDENCE = 1e-4


def epsilon_reached(losses_on_first: np.ndarray, losses_on_second: np.ndarray, delta: float) -> float:
    """A lower bound on epsilon at `delta`, wrong with probability below CONFIDENCE.

    `losses` are any scores of an attacker, larger where the first set is more likely. Half of the runs choose the threshold, the other
    half are judged by it: (true positive rate - delta) / false positive rate, with Clopper and Pearson's limits.
    """
    choose, judge = slice(None, len(losses_on_first) // 2), slice(len(losses_on_first) // 2, None)
    thresholds = np.quantile(losses_on_first[choose], np.linspace(0.01, 0.99, 99))
    chosen = max(thresholds, key=lambda t: _bound(losses_on_first[choose] >= t, losses_on_second[choose] >= t, delta))
    return _bound(losses_on_first[judge] >= chosen, losses_on_second[judge] >= chosen, delta)


def _bound(accused_members: np.ndarray, accused_others: np.ndarray, delta: float) -> float:
    found, runs = int(accused_members.sum()), len(accused_members)
    false, others = int(accused_others.sum()), len(accused_others)
    least_true = scipy.stats.beta.ppf(CONFIDENCE / 2, found, runs - found + 1) if found else 0.0
    most_false = scipy.stats.beta.ppf(1 - CONFIDENCE / 2, false + 1, others - false) if false < others else 1.0
    return math.log((least_true - delta) / most_false) if least_true > delta else -math.inf
