"""The "rdp" accountant: Renyi differential privacy of dp-accounting, with its improved conversion to epsilon.

Guarantee: an upper bound. Renyi divergences of the steps add up (Mironov 2017, arXiv:1702.07476); the
conversion is that of Canonne, Kamath and Steinke 2020 (arXiv:2004.00010, proposition 12). Releases with other noise
than Gaussian are priced by `sampled_noise`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfdp.accounting.ledger import Ledger
from tfdp.accounting.reports import Report, Status
from tfdp.accounting.sampled_noise import sampled_noise_rdp
from tfdp.accounting.translation import SampledNoise, terms

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# dp-accounting sums series and takes the logarithm of a number near 1: of rates so small that the divergence
# of a step is below this error, it would say 0.
_ROUNDING = 1e-12
# Of noises priced by their moments: the work grows with the square of the highest order. Beyond it an order is left out.
_HIGHEST_ORDER = 128


def report(ledger: Ledger, delta: float, orders: Sequence[float] | None = None) -> Report:
    """By the best of the orders, of dp-accounting's default ones if none are given."""
    from dp_accounting.rdp import compute_epsilon

    orders = default_orders() if orders is None else orders
    epsilon, order = compute_epsilon(orders, curve(ledger, orders), delta)
    return Report(
        accountant="rdp",
        epsilon=float(epsilon),
        delta=delta,
        relation=ledger.relation,
        status=Status.PROVEN,
        how=f"Renyi order {order:g}",
        order=float(order),
    )


def delta(ledger: Ledger, epsilon: float) -> float:
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

    orders = default_orders()
    divergences = curve(ledger, orders)
    if not np.isfinite(divergences).any():
        return 1.0
    return float(compute_delta(orders, divergences, epsilon)[0])


def default_orders() -> tuple[float, ...]:
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    return tuple(DEFAULT_RDP_ORDERS)


def curve(ledger: Ledger, orders: Sequence[float]) -> np.ndarray:
    """An upper bound of the ledger's Renyi divergence at each order, under `ledger.relation`."""
    total = np.zeros(len(orders))
    for term in terms(ledger):
        total += term.count * _one_step(term.event, tuple(orders))
    return total


@functools.lru_cache(maxsize=64)
def _one_step(event: DpEvent | SampledNoise, orders: tuple[float, ...]) -> np.ndarray:
    import dp_accounting

    if isinstance(event, SampledNoise):
        return _between_whole_orders(event, np.asarray(orders, dtype=float))
    from dp_accounting.rdp import RdpAccountant

    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    else:
        relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    try:
        with _orders_may_fail():
            divergence = RdpAccountant(orders, relation).compose(event).rdp
    except (dp_accounting.UnsupportedEventError, ValueError) as error:  # or a number beyond its arithmetic
        raise ValueError(f"the 'rdp' and 'moments' accountants cannot price {event}: {error}") from None
    if not isinstance(event, dp_accounting.GaussianDpEvent):  # a plain Gaussian's curve is a closed form
        slack = _ROUNDING / (np.asarray(orders) - 1)
        divergence = np.maximum(divergence, 0) * (1 + _ROUNDING) + slack
    # An order that could not be computed says nothing; infinity leaves it out.
    divergence = np.where(np.isnan(divergence), math.inf, divergence)
    divergence.setflags(write=False)
    return divergence


def _between_whole_orders(event: SampledNoise, orders: np.ndarray) -> np.ndarray:
    """The divergence at any order up to the highest, from those at whole orders.

    (a - 1) D_a = log E_Q [(P / Q)^a] is convex in a (Hoelder), and 0 at a = 1: its chords lie above it.
    """
    whole = np.arange(2, _HIGHEST_ORDER + 1)
    logs = (whole - 1) * sampled_noise_rdp(event.noise, event.codebook, event.sampling_rate, whole)
    low = np.clip(np.floor(orders).astype(int), 1, _HIGHEST_ORDER)
    share = np.clip(orders - low, 0.0, 1.0)
    logs = np.concatenate([[0.0, 0.0], logs, logs[-1:]])  # at the index of the order
    with np.errstate(invalid="ignore"):
        chords = np.where(share == 0, logs[low], (1 - share) * logs[low] + share * logs[low + 1])
    divergence = np.where(orders > _HIGHEST_ORDER, math.inf, chords / (orders - 1))
    divergence.setflags(write=False)
    return divergence


@contextlib.contextmanager
def _orders_may_fail() -> Iterator[None]:
    """dp-accounting warns of each order whose series it could not sum; the bound holds without that order."""
    logger = logging.getLogger("absl")

    def is_not_that(record: logging.LogRecord) -> bool:
        return "Excluding this order" not in str(record.msg)

    logger.addFilter(is_not_that)
    try:
        yield
    finally:
        logger.removeFilter(is_not_that)
