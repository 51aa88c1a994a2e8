"""Fit records: plain data that merges what is alike and survives JSON."""

import dataclasses
import json

import pytest

from tfdp.accounting import (
    Budget,
    FitRecord,
    FullBatch,
    GaussianEvent,
    Ledger,
    Poisson,
    Schedule,
    Shuffled,
    Watcher,
)
from tfdp.accounting.fit_records import dumps, loads, on_schedule, with_record

PLANNED = Ledger().record(GaussianEvent(1.1), Poisson(256 / 60000, 60000), 500)
FULL = FitRecord(
    steps=470,
    weights=1_000_003,
    fits=2,
    unchecked=("a record is in one batch a pass",),
    watchers=(Watcher("EarlyStopping", "loss", "stops training"), Watcher("Custom", None, "unknown")),
    budgets=(Budget(3.0, 1e-5), Budget(0.1 + 0.2, 1e-6, "rdp", 9.8)),
    planned=PLANNED,
    schedule=Schedule(GaussianEvent(20.0), FullBatch(60000), 235),
    scheduled=2,
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
    later = dataclasses.replace(FULL, steps=30, fits=1, planned=Ledger(), scheduled=1)
    merged = FULL.merged(later)
    assert (merged.steps, merged.fits, merged.scheduled) == (500, 3, 3)
    assert merged.planned == PLANNED
    assert dataclasses.replace(merged, steps=FULL.steps, fits=FULL.fits, scheduled=FULL.scheduled) == FULL


def test_of_a_schedule_steps_and_releases_are_counted_apart():
    other = dataclasses.replace(FULL, schedule=dataclasses.replace(FULL.schedule, every=100))
    assert on_schedule((FULL, other, FitRecord(7, 10), FULL), FULL.schedule) == (2 * 468, 4)
    assert on_schedule((FitRecord(7, 10),), FULL.schedule) == (0, 0)


def test_records_that_were_written_before_there_were_schedules_are_read():
    (old,) = json.loads(dumps([dataclasses.replace(FULL, schedule=None, scheduled=0)]))
    del old["schedule"], old["scheduled"]
    assert loads(json.dumps([old])) == (dataclasses.replace(FULL, schedule=None, scheduled=0),)


def test_of_two_plans_the_longer_one_counts_line_by_line():
    shuffled = Ledger().record(GaussianEvent(2.0), Shuffled(100, 10, 10), 7)
    shorter = Ledger().record(GaussianEvent(1.1), Poisson(256 / 60000, 60000), 400)
    merged = FULL.merged(dataclasses.replace(FULL, planned=Ledger.combined(shorter, shuffled)))
    assert [line.steps for line in merged.planned] == [500, 7]


@pytest.mark.parametrize(
    "change",
    [
        {"weights": 10},
        {"unchecked": ()},
        {"watchers": FULL.watchers[:1]},
        {"budgets": ()},
        {"schedule": None, "scheduled": 0},
        {"schedule": Schedule(GaussianEvent(20.0), FullBatch(60000), 234)},
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


@pytest.mark.parametrize("validation", [True, False])
def test_a_metric_is_of_the_training_records_unless_it_is_of_the_validation_records(validation):
    """Whatever its name: a training metric may be called val_accuracy."""
    watcher = Watcher("EarlyStopping", "val_accuracy", "stops training", validation)
    assert watcher.saw_training_records != validation
