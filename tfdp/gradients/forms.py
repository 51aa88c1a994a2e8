"""One way of computing per-example gradients in place of the engine's own choice, to compare them and to find mistakes.

The engine takes the cheapest way that is exact. All of them are exact, so a run must not depend on which was taken::

    with forced(GRAM):
        model.fit(x, y)  # of a model that was just compiled
"""

import contextlib
import contextvars
from collections.abc import Iterator

GRAM = "gram"  # norms from inner products of places, where a rule has places
MATERIALISED = "materialised"  # norms from gradients that are built
UNIVERSAL = "universal"  # no rule of a layer family: every layer is run again, one example at a time

_forced: contextvars.ContextVar[str | None] = contextvars.ContextVar("forced", default=None)
_without_allowances: contextvars.ContextVar[bool] = contextvars.ContextVar("without_allowances", default=False)


@contextlib.contextmanager
def forced(form: str) -> Iterator[None]:
    """Every plan that is made inside, and every step that is traced inside, takes this form.

    A step that was traced before keeps the form that it was traced with. Where a weight's gradient has but one form (a
    bias, the scale of a normalisation, the sum of a look-up and a product), that one is taken. What it costs is not asked:
    ``MATERIALISED`` builds every example's gradient of a whole table.
    """
    if form not in (GRAM, MATERIALISED, UNIVERSAL):
        raise ValueError(f"There is no form {form!r}: force {GRAM!r}, {MATERIALISED!r} or {UNIVERSAL!r}.")
    token = _forced.set(form)
    try:
        yield
    finally:
        _forced.reset(token)


@contextlib.contextmanager
def without_allowances() -> Iterator[None]:
    """Norms that are traced inside don't allow for rounding: to be compared with what they are norms of, never to clip by."""
    token = _without_allowances.set(True)
    try:
        yield
    finally:
        _without_allowances.reset(token)


def allowed(share: float) -> float:
    """What a norm allows for rounding, a share of the sum of its terms' sizes; nothing where that was left out."""
    return 0.0 if _without_allowances.get() else share


def form_of_norms() -> str | None:
    """The form that norms must take; None where the cheaper one is chosen."""
    return None if only_universal() else _forced.get()


def only_universal() -> bool:
    """Whether layers are denied the rule of their family."""
    return _forced.get() == UNIVERSAL
