"""The accountants by name, and the two questions one asks of them."""

from __future__ import annotations

import math
from types import ModuleType

from tfdp.accounting import checks, gdp, moments, pld, rdp
from tfdp.accounting.ledger import Ledger
from tfdp.accounting.reports import Report, Status

# Each has `report(ledger, delta) -> Report` and `delta(ledger, epsilon) -> float`.
_ACCOUNTANTS: dict[str, ModuleType] = {"pld": pld, "rdp": rdp, "moments": moments, "gdp": gdp}


def report(ledger: Ledger, *, delta: float, accountant: str = "pld") -> Report:
    """What the ledger costs at `delta`, with its status, its neighbouring relation and the method's details.

    "pld" (tight), "rdp" and "moments" (the papers' baseline) prove upper bounds; "gdp" is a central limit
    approximation that can lie below the truth. A ledger without steps costs 0, a release without noise
    infinity.

    Raises ValueError for a ledger the accountant cannot price, saying why and what to use in its place.
    """
    delta = checks.delta(delta)
    named = named_accountant(accountant)
    if checked_ledger(ledger).steps == 0:
        return Report(accountant, 0.0, delta, ledger.relation, Status.PROVEN, "nothing was released")
    return named.report(ledger, delta)


def epsilon(ledger: Ledger, *, delta: float, accountant: str = "pld") -> float:
    """The epsilon of `report`.

    Example:
        >>> ledger = Ledger.poisson(sampling_rate=256 / 60000, noise_multiplier=1.1, steps=14062)
        >>> round(epsilon(ledger, delta=1e-5), 3)
        2.382
    """
    return report(ledger, delta=delta, accountant=accountant).epsilon


def delta(ledger: Ledger, *, epsilon: float, accountant: str = "pld") -> float:
    """The delta at which the ledger is (epsilon, delta)-differentially private."""
    advice = "write the privacy loss to be exceeded, such as 1.0"
    epsilon = checks.non_negative_or_infinite("epsilon", epsilon, advice)
    if math.isinf(epsilon):
        return 0.0
    named = named_accountant(accountant)
    return named.delta(ledger, epsilon) if checked_ledger(ledger).steps else 0.0


def named_accountant(accountant: str) -> ModuleType:
    if not checks.is_one_of(accountant, _ACCOUNTANTS):
        names = ", ".join(repr(name) for name in _ACCOUNTANTS)
        raise ValueError(f"accountant must be one of {names}, not {accountant!r}")
    return _ACCOUNTANTS[accountant]


def checked_ledger(ledger: Ledger) -> Ledger:
    if not isinstance(ledger, Ledger):
        raise ValueError(
            f"ledger must be a Ledger, not {type(ledger).__name__}. A trained model's is model.optimizer.ledger; for planned "
            "settings write Ledger.poisson(sampling_rate=..., noise_multiplier=..., steps=...)."
        )
    return ledger
