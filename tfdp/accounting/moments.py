"""The "moments" accountant: the baseline of the papers of 2016 to 2020 (Abadi et al. 2016, arXiv:1607.00133).

Guarantee: an upper bound, looser than "rdp": few orders, and the classic conversion
epsilon = min over orders a of rdp(a) + log(1 / delta) / (a - 1). It is there to reproduce published numbers.
"""

from __future__ import annotations

import math

import numpy as np

from tfdp.accounting import rdp
from tfdp.accounting.ledger import Ledger
from tfdp.accounting.reports import Report, Status

# 1.1 to 10.9 by 0.1 and 12 to 63: the orders of TensorFlow Privacy's tutorials of that time.
ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(12, 64))


def report(ledger: Ledger, delta: float) -> Report:
    divergences = rdp.curve(ledger, ORDERS)
    epsilons = divergences - math.log(delta) / (np.asarray(ORDERS) - 1)
    best = int(np.argmin(epsilons))
    return Report(
        accountant="moments",
        epsilon=float(epsilons[best]),
        delta=delta,
        relation=ledger.relation,
        status=Status.PROVEN,
        how=f"moments order {ORDERS[best]:g}, classic conversion",
        order=float(ORDERS[best]),
    )


def delta(ledger: Ledger, epsilon: float) -> float:
    divergences = rdp.curve(ledger, ORDERS)
    exponents = (np.asarray(ORDERS) - 1) * (divergences - epsilon)
    return float(min(1.0, math.exp(min(0.0, np.min(exponents)))))
