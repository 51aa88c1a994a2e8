"""The page on Keras's features says what happens."""

import pytest

from tests.compatibility.cases import CASES
from tests.compatibility.page import PAGE, row, rows_on_the_page, text

ROWS = rows_on_the_page()


@pytest.mark.parametrize("feature", CASES)
def test_a_row_says_what_happens(feature):
    assert row(CASES[feature]) == ROWS[feature]


def test_the_page_has_these_rows_in_this_order():
    assert PAGE.read_text() == text(ROWS)
