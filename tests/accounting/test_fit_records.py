"""Fit records: plain data that merges what is alike and survives JSON."""

import dataclasses
import json

import pytest

from tfdp.accounting import Budget, FitRecord, GaussianEvent, Ledger, Poisson, Shuffled, Watcher
from tfdp.accounting.fit_records import dumps, loads, with_record

NOT_TAKEN = Ledger().record(GaussianEvent(1.1), Poisson(256 / 60000, 60000), 30)
FULL = FitRecord(
    steps=470,
    weights=1_000_003,
    fits=2,
    unchecked=("a record is in one batch a pass",),
    watchers=(Watcher("EarlyStopping", "loss", "stops training"), Watcher("Custom", None, "unknown")),
    budgets=(Budget(3.0, 1e-5), Budget(0.1 + 0.2, 1e-6, "rdp", 9.8)),
    not_taken=NOT_TAKEN,
)


@pytest.mark.parametrize("records", [(), (FitRecord(1, 10),), (FULL,), (FULL, FitRecord(5, 10), FULL)])
def test_json_gives_equal_records_back(records):
    back = loads(dumps(records))
    assert back == records
    assert all(type(record) is FitRecord for record in back)


def test_the_json_is_strict():
    def refuse(token):
        raise AssertionError(token)

    assert isinstance(json.loads(dumps([FULL]), parse_constant=refuse), list)


def test_records_stay_hashable_after_json():
    assert hash(loads(dumps([FULL]))[0]) == hash(FULL)


def test_alike_fits_add_up():
    later = dataclasses.replace(FULL, steps=30, fits=1, not_taken=Ledger())
    merged = FULL.merged(later)
    assert (merged.steps, merged.fits) == (500, 3)
    assert merged.not_taken == NOT_TAKEN
    assert dataclasses.replace(merged, steps=FULL.steps, fits=FULL.fits) == FULL


def test_the_steps_not_taken_add_up_line_by_line():
    shuffled = Ledger().record(GaussianEvent(2.0), Shuffled(100, 10, 10), 7)
    merged = FULL.merged(dataclasses.replace(FULL, not_taken=Ledger.combined(NOT_TAKEN, shuffled)))
    assert [line.steps for line in merged.not_taken] == [60, 7]


@pytest.mark.parametrize(
    "change",
    [
        {"weights": 10},
        {"unchecked": ()},
        {"watchers": FULL.watchers[:1]},
        {"budgets": ()},
        {"budgets": (Budget(3.0, 1e-5), Budget(0.1 + 0.2, 1e-6, "rdp", 9.9))},
    ],
)
def test_fits_under_other_circumstances_stay_apart(change):
    other = dataclasses.replace(FULL, **change)
    assert FULL.merged(other) is None
    assert with_record((FULL,), other) == (FULL, other)


def test_a_record_joins_the_last_one_only():
    other = FitRecord(5, 10)
    assert with_record((), FULL) == (FULL,)
    assert with_record((other,), other) == (FitRecord(10, 10, fits=2),)
    assert with_record((FULL, other), FULL) == (FULL, other, FULL)


@pytest.mark.parametrize(("metric", "saw"), [("loss", True), (None, True), ("accuracy", True), ("val_loss", False)])
def test_a_validation_metric_is_not_one_of_the_training_records(metric, saw):
    assert Watcher("EarlyStopping", metric, "stops training").saw_training_records == saw
