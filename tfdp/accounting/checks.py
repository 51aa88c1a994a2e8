"""The numbers a caller may write: each check returns the plain value, or says what to write in its place."""

from __future__ import annotations

import math
import numbers
import operator
import sys
from collections.abc import Iterable

_MOST = sys.float_info.max


def real(name: str, value: object, advice: str) -> float:
    """`value` as a finite float; `advice` completes the error message."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, numbers.Real) else float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a finite number, not an integer beyond all floats: {advice}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, not {value!r}: {advice}")
    return number


def non_negative(name: str, value: object, advice: str) -> float:
    number = real(name, value, advice)
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}: {advice}")
    return number + 0.0  # turns -0.0 into 0.0


def non_negative_or_infinite(name: str, value: object, advice: str) -> float:
    if isinstance(value, numbers.Real) and value == math.inf:  # an array may not be compared
        return math.inf
    return non_negative(name, value, advice)


def positive(name: str, value: object, advice: str) -> float:
    number = real(name, value, advice)
    if number <= 0:
        raise ValueError(f"{name} must be positive, got {value!r}: {advice}")
    return number


def count(name: str, value: object, advice: str, at_least: int = 0) -> int:
    """`value` as an int that a float can hold. A float is refused: silently rounding a number of steps would change the claim."""
    if isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, not {value!r}: {advice}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name} must be a whole number, not {value!r}: {advice}") from None
    if number < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {number}: {advice}")
    if number > _MOST:
        raise ValueError(f"{name} must be at most {_MOST:.2g}: {advice}")
    return number


def true_or_false(name: str, value: object, why: str = "") -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}{why and ': '}{why}")
    return value


def is_one_of(value: object, names: Iterable[str]) -> bool:
    """Whether it is one of these strings; of an array, which `in` would compare entry by entry, False."""
    return isinstance(value, str) and value in names


def delta(value: object) -> float:
    number = real("delta", value, "write a probability well below 1 / number of records, such as 1e-5")
    if not 0 < number < 1:
        raise ValueError(
            f"delta must lie strictly between 0 and 1, got {value!r}: write a probability well below "
            "1 / number of records, such as 1e-5"
        )
    return number


def sampling_rate(value: object) -> float:
    advice = "write the expected lot size divided by the number of records, such as 256 / 60000"
    number = real("sampling_rate", value, advice)
    if not 0 < number <= 1:
        raise ValueError(f"sampling_rate must be above 0 and at most 1, got {value!r}: {advice}")
    return number


def noise_multiplier(value: object) -> float:
    return non_negative(
        "noise_multiplier", value, "write the noise's standard deviation divided by the clip, such as 1.1"
    )


def target_epsilon(value: object) -> float:
    return positive("target_epsilon", value, "write the largest epsilon that may be spent, such as 3.0")
