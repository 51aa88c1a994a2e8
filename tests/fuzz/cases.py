"""What the fuzz tests of all rooms share: how many cases, arguments of any kind, and what counts as an answer.

`TFDP_LONG=1` runs 10,000 cases in all in place of a few hundred, other ones every time.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

LONG = bool(os.environ.get("TFDP_LONG"))


def cases(few: int, many: int) -> Callable:
    """So many cases of a test: in the suite, the same few every time."""
    return hypothesis.settings(
        max_examples=many if LONG else few,
        derandomize=not LONG,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


class Unfinished:
    """Something that no argument is."""


NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, 1e-320, 1e308, float("nan"), float("inf"), 10**400, 2**63, 2**31]),
    st.floats(0, 1),
    st.sampled_from([np.float32(0.5), np.float64("nan"), np.int64(3), np.bool_(True), np.array(2.0), np.uint8(0)]),
)
ANYTHING = st.one_of(
    NUMBERS,
    st.none(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(["", "1.0", "pld", "nan", "gaussian", "1e-5", "ks", "auto"]),
    st.binary(max_size=4),
    st.complex_numbers(),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.builds(Unfinished),
    st.just(Unfinished),
    st.sampled_from([np.zeros(0), np.ones(3), np.array(["a"]), np.array([None], dtype=object)]),
)

# Of which Python's own comparisons and conversions say something that names no argument.
NO_SETTINGS = [np.zeros(0), np.ones(3), np.array(["a", "b"]), np.array([None, 1], dtype=object), 10**400, -(10**400)]


@contextlib.contextmanager
def only_errors_that_name(*names: str) -> Iterator[None]:
    """A ValueError or TypeError whose message names an argument (`delta` is enough for `claimed_delta`), or none at all."""
    names = (*names, *(name.rpartition("_")[2] for name in names))
    try:
        yield
    except (ValueError, TypeError) as error:
        if not any(name in str(error) for name in names):
            raise AssertionError(f"the message names none of {names}: {type(error).__name__}: {error}") from error


def with_one_replaced(valid: dict[str, Any], values: st.SearchStrategy = ANYTHING) -> st.SearchStrategy:
    """The valid arguments with one of them, which comes first, replaced by anything."""
    return (
        st.sampled_from(sorted(valid))
        .flatmap(lambda name: st.tuples(st.just(name), values))
        .map(lambda pair: (pair[0], {**valid, pair[0]: pair[1]}))
    )
