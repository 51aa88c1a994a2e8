"""How a claim's numbers are shown."""

import json
import math

import pytest

from tfdp.accounting import Relation, Status
from tfdp.accounting.claims import FEATURES, Claim, in_short, rounded_up, section, strict_json


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [
        (0.0, "0"),
        (math.inf, "infinity"),
        (1.23401, "1.235"),
        (1.234, "1.234"),
        (99.999, "100"),
        (5.000000000000011, "5.001"),
        (1.235, "1.235"),
        (123456.0, "1.235e+05"),
        (0.00012340000001, "0.0001235"),
    ],
)
def test_epsilon_is_shown_in_four_digits_rounded_up(epsilon, shown):
    assert rounded_up(epsilon) == shown
    assert float(shown) >= epsilon


@pytest.mark.parametrize("epsilon", [5e-324, 1.2345e-322, 1.2345e-320, 1.2345e-300])
def test_what_is_shown_of_a_tiny_epsilon_is_not_less(epsilon):
    assert epsilon * (1 - 1e-9) <= float(rounded_up(epsilon)) <= 1.001 * epsilon + 1e-323


def test_no_number_comes_without_its_status():
    """Nor mu without what it leaves out: noise that has an end is mu-GDP for no mu."""
    claim = Claim(FEATURES, Relation.REPLACE_ONE, 2.0, 1e-5, 0.5, Status.PROVEN, "a proof")
    assert in_short(claim) == "PROVEN: epsilon = 2 at delta = 1e-05 (mu = 0.5 up to missing tails)"


def test_json_has_no_infinity():
    assert json.loads(strict_json({"epsilon": [math.inf, 1.0]})) == {"epsilon": ["infinity", 1.0]}


def test_lines_have_at_most_100_columns():
    lines = "\n".join(section("Title", ["word " * 60])).splitlines()
    assert lines[0] == "Title" and len(lines) == 5
    assert max(map(len, lines)) <= 100
