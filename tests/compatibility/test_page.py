"""The page on Keras's features says what happens."""

import os

import pytest

from tests.compatibility.cases import CASES, REFUSED
from tests.compatibility.page import PAGE, row, rows_on_the_page, text

ROWS = rows_on_the_page()


def tried() -> list[str]:
    """All features that are refused, and every third of the others that are quick; with TFDP_LONG=1 all."""
    if os.environ.get("TFDP_LONG") == "1":
        return list(CASES)
    refused = [feature for feature in CASES if f"| {REFUSED} |" in ROWS.get(feature, "")]
    others = [feature for feature, case in CASES.items() if feature not in refused and not case.slow]
    return [*refused, *others[::3]]


@pytest.mark.parametrize("feature", tried())
def test_a_row_says_what_happens(feature):
    assert row(CASES[feature]) == ROWS[feature]


def test_the_page_has_a_row_for_each_feature():
    assert set(ROWS) == set(CASES)
    assert PAGE.read_text() == text(ROWS)
