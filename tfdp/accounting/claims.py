"""A claim of privacy as plain data, and how its numbers are shown: never without its status.

A training run makes claims (`tfdp.report`), and so does data that was perturbed before any training (`tfdp.data`).
"""

from __future__ import annotations

import dataclasses
import decimal
import json
import math
import textwrap
from collections.abc import Iterable

from tfdp.accounting.reports import Status
from tfdp.accounting.samplings import Relation

MEMBERSHIP = "a record's membership in the training of the model"
FEATURES = "the features of a record in the released data"
LABEL = "the label of a record in the released data"
RECORD = "a whole record in the released data"
_WIDTH = 100


@dataclasses.dataclass(frozen=True)
class Claim:
    """What is protected, how well, and how sure that is.

    Attributes:
        protects: what an attacker can't tell well.
        neighbours: the relation between the two data sets that can't be told apart; None if the claim is not of this kind.
        epsilon: infinite if there is no bound.
        delta: None if the claim holds at any.
        mu: of Gaussian differential privacy, up to the noise's missing tails: noise that has an end is mu-GDP for no mu.
        status: how sure the claim is.
        how: by which method it was found.
        reasons: why the status is not better, and what to do about it; or on whose word it stands.
    """

    protects: str
    neighbours: Relation | None
    epsilon: float
    delta: float | None
    mu: float | None
    status: Status
    how: str
    reasons: tuple[str, ...] = ()


def in_short(claim: Claim) -> str:
    """The numbers of a claim, with its status."""
    delta = "" if claim.delta is None else f" at delta = {claim.delta:.3g}"
    mu = "" if claim.mu is None else f" (mu = {rounded_up(claim.mu)} up to missing tails)"
    return f"{str(claim.status).upper()}: epsilon = {rounded_up(claim.epsilon)}{delta}{mu}"


def rounded_up(epsilon: float, digits: int = 4) -> str:
    """So many digits, rounded up: read again, it is never less."""
    if epsilon == 0 or math.isinf(epsilon):
        return "infinity" if epsilon else "0"
    context = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING)
    return f"{float(context.create_decimal(repr(float(epsilon)))):.{digits}g}"


def section(title: str, items: Iterable[str]) -> list[str]:
    """A part of a statement in lines of at most 100 columns."""
    return [title, *map(_wrapped, items)]


def _wrapped(item: str) -> str:
    together = item.replace(" %", "\u00a0%")
    filled = textwrap.fill(together, _WIDTH, initial_indent="  - ", subsequent_indent="    ", break_long_words=False)
    return filled.replace("\u00a0", " ")


def strict_json(content: object) -> str:
    """JSON that every reader takes: infinities are the string "infinity"."""
    return json.dumps(_strict(content), indent=1, allow_nan=False)


def _strict(value: object) -> object:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return "infinity" if value == math.inf else value
