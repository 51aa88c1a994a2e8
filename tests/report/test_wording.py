"""The statement as people read it."""

import re

import pytest

from tests.report import runs
from tfdp.accounting import FixedSize, FullBatch, Ledger, Poisson, epsilon_delta_tradeoff, tradeoff
from tfdp.report.wording import in_short

SINGLE = runs.ledger(1.1, steps=14062)


def flat(made) -> str:
    return " ".join(str(made).split())


def everything():
    """A run with all that can be said of one."""
    watchers = (runs.LOSS_STOP, runs.VAL_STOP, runs.UNKNOWN)
    fit = runs.fit(
        200, watchers=watchers, budgets=(runs.filter_budget(),), fits=2, unchecked=("It holds 60000 records.",)
    )
    return runs.statement(runs.ledger(1.1, 0.9), fit, delta=1e-5, counts_not_finite=True)


@pytest.mark.parametrize(
    ("made", "most"), [(everything(), 67), (runs.statement(SINGLE), 50), (runs.statement(runs.not_private()), 20)]
)
def test_it_fits_a_page(made, most):
    lines = str(made).splitlines()
    assert max(map(len, lines)) <= 100
    assert not [line for line in lines if line != line.rstrip()]
    assert len(lines) <= most


@pytest.mark.parametrize("made", [everything(), runs.statement(SINGLE, delta=1e-5), runs.statement(Ledger())])
def test_no_epsilon_is_printed_without_its_status(made):
    for text in (flat(made), repr(made)):
        numbers = re.findall(r"(.{0,14})epsilon = ", text)
        assert numbers
        assert all(re.search(r"(PROVEN|APPROXIMATE|AS PUBLISHED|NONE|Report this): $", before) for before in numbers)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (runs.statement(SINGLE, delta=1e-5), r"Report this: epsilon = ([\d.]+) at delta = 1e-05 \(proven\)\."),
        (runs.statement(Ledger()), r"Report this: epsilon = (0) \(proven\)\."),
        (everything(), "Nothing is proven: the first claim below is APPROXIMATE"),
        (runs.statement(runs.not_private()), "Nothing is proven: the first claim below is NONE"),
    ],
)
def test_the_number_to_report_comes_first_and_is_not_below_the_proven_one(made, says):
    found = re.match(f"Privacy statement\n=+\n\n{says}", str(made))
    assert found and (made.epsilon is None) == says.startswith("Nothing")
    assert made.epsilon is None or made.epsilon <= float(found.group(1)) <= 1.01 * made.epsilon


def test_an_epsilon_is_never_rounded_down():
    made = runs.statement(SINGLE, delta=1e-5)
    for claim in made.claims:
        printed = float(re.search(r"epsilon = ([\d.e+-]+)", in_short(claim)).group(1))
        assert claim.epsilon <= printed * (1 + 1e-8) <= claim.epsilon * 1.002


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (runs.LOTS, "lots drawn by Poisson sampling, each of 60,000 records with probability 0.427 %"),
        (
            Poisson(0.01, 60000, public_size=True),
            "each of 60,000 records (a public, rounded number) with probability 1 %",
        ),
        (FullBatch(60000), "each used every one of 60,000 records"),
        (
            runs.DECLARED,
            "passes over batches of 256 of 60,000 records, each record at most once a pass (as declared, or as read from the pipeline); 1 pass",
        ),
        (FixedSize(60000, 256), "lots of exactly 256 of 60,000 records"),
    ],
)
def test_what_was_released_is_said_in_words(sampling, words):
    text = flat(runs.statement(runs.ledger(1.1, sampling=sampling), delta=1e-6))
    assert "100 steps: sums of clipped gradients with Gaussian noise of 1.1 times the clip;" in text
    assert words in text


def test_a_reason_is_printed_once_and_referred_to():
    text = flat(everything())
    assert text.count("Settings changed between fits") == text.count("computed from training records") == 1
    assert text.count("See the claims above for what else it depends on.") == 3


def test_what_was_not_checked_is_said():
    assert "Assumed, not checked: It holds 60000 records." in flat(everything())


def test_the_reason_of_a_line_that_is_not_private_is_printed():
    text = flat(runs.statement(Ledger.combined(SINGLE, runs.not_private("noise_seed was given: known"))))
    assert text.count("noise_seed was given: known") == 2  # what was released, and why there is no claim
    assert "Everything: no privacy is claimed" in text


def test_a_delta_that_publishing_records_would_satisfy_is_warned_of():
    assert "WARNING" in str(runs.statement(SINGLE, delta=1 / 60000))
    assert "WARNING" not in str(runs.statement(SINGLE))
    assert "delta = 1e-05 is 0.6 times 1 / (number of records), 60,000 records." in flat(runs.statement(SINGLE))


def test_the_meaning_of_a_proven_run_is_its_tradeoff_curve():
    text, curve = flat(runs.statement(SINGLE, delta=1e-5)), tradeoff(SINGLE)
    for share in (curve.true_positive_rate(0.001), curve.true_positive_rate(0.01), curve.advantage):
        percents = [float(number) for number in re.findall(r"([\d.]+) %", text)]
        assert any(100 * share <= number <= 100 * share * 1.002 for number in percents)


def test_the_meaning_of_a_filter_is_that_of_its_epsilon_and_delta():
    made = runs.statement(runs.ledger(1.1, 0.9), runs.fit(200, budgets=(runs.filter_budget(),)))
    advantage = epsilon_delta_tradeoff([(made.epsilon, 1e-5)]).advantage
    printed = float(re.search(r"accusations are at most ([\d.]+) %", flat(made)).group(1))
    assert 100 * advantage <= printed <= 100 * advantage * 1.002


def test_without_a_proven_claim_no_number_is_given_a_meaning():
    assert "No number is given here" in flat(runs.statement(runs.ledger(1.1, 0.9), delta=1e-5))


def test_callbacks_are_listed_by_name():
    text = flat(everything())
    assert "MyCallback, a callback that tfdp can't see into" in text
    assert "EarlyStopping: it stops training by val_loss, a metric of validation records" in text
