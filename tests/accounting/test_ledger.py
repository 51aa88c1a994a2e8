"""The ledger: what it holds, how lines merge, which neighbours it speaks of."""

import dataclasses

import pytest

from tfdp.accounting import (
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    Line,
    NotPrivateEvent,
    Poisson,
    Relation,
    Shuffled,
)

EVENT = GaussianEvent(1.1)
LOTS = Poisson(0.01, 1000)


def test_recording_leaves_the_old_ledger_as_it_was():
    empty = Ledger()
    one = empty.record(EVENT, LOTS, 3)
    one.record(EVENT, LOTS, 4)
    assert (empty.steps, one.steps) == (0, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.lines = ()


def test_equal_releases_share_a_line_and_any_difference_starts_a_new_one():
    ledger = Ledger().record(EVENT, LOTS, 3).record(GaussianEvent(2.0), LOTS, 1)
    ledger = ledger.record(GaussianEvent(1.1), Poisson(0.01, 1000), 4).record(EVENT, Poisson(0.02, 1000), 2)
    ledger = ledger.record(EVENT, Poisson(0.01, 1001), 5)
    assert [line.steps for line in ledger] == [7, 1, 2, 5]
    assert ledger.steps == 15


def test_numbers_of_other_types_make_equal_events():
    np = pytest.importorskip("numpy")
    assert GaussianEvent(np.float64(1)) == GaussianEvent(1) == GaussianEvent(1.0)
    assert Poisson(1, np.int64(10)) == Poisson(1.0, 10)


def test_poisson_is_the_plain_case():
    ledger = Ledger.poisson(sampling_rate=0.1, noise_multiplier=2.0, steps=5)
    assert list(ledger) == [Line(GaussianEvent(2.0), Poisson(0.1), 5)]


def test_combined_adds_up_all_ledgers():
    one = Ledger().record(EVENT, LOTS, 3)
    two = Ledger().record(EVENT, LOTS, 4).record(NotPrivateEvent("fit"), FullBatch(1000), 1)
    assert [line.steps for line in Ledger.combined(one, two, one)] == [10, 1]
    assert Ledger.combined() == Ledger()


def test_a_partial_pass_counts_whole():
    sampling = Shuffled(100, 10, 10)
    assert [Line(EVENT, sampling, steps).passes for steps in (0, 1, 10, 11, 25)] == [0, 1, 1, 2, 3]
    assert Line(EVENT, sampling, 11, passes=5).passes == 5
    # Two runs of a pass and a bit each began four passes, although 22 steps fit into three.
    assert next(iter(Ledger().record(EVENT, sampling, 11).record(EVENT, sampling, 11))).passes == 4


def test_each_sampling_knows_its_neighbours():
    assert Poisson(0.1, 10).relation == FullBatch(10).relation == Relation.ZERO_OUT
    assert Poisson(0.1, 10, public_size=True).relation == Relation.ADD_OR_REMOVE
    assert FullBatch(10, public_size=True).relation == Relation.ADD_OR_REMOVE
    assert Shuffled(10, 5, 2).relation == Relation.ZERO_OUT
    assert FixedSize(10, 5).relation == Relation.REPLACE_ONE


def test_a_mixed_ledger_falls_back_to_the_relation_all_lines_imply():
    public, fixed = Poisson(0.1, 10, public_size=True), FixedSize(10, 5)
    assert Ledger().record(EVENT, public, 1).relation == Relation.ADD_OR_REMOVE
    assert Ledger().record(EVENT, fixed, 1).relation == Relation.REPLACE_ONE
    assert Ledger().record(EVENT, public, 1).record(EVENT, fixed, 1).relation == Relation.ZERO_OUT
    assert Ledger().record(EVENT, public, 1).record(EVENT, LOTS, 1).relation == Relation.ZERO_OUT
    assert Ledger().record(EVENT, public, 1).record(EVENT, LOTS, 0).relation == Relation.ADD_OR_REMOVE


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianEvent(-1.0), "negative.*write the noise"),
        (lambda: GaussianEvent(float("nan")), "finite number"),
        (lambda: GaussianEvent(float("inf")), "finite number"),
        (lambda: GaussianEvent(True), "finite number"),
        (lambda: GaussianEvent("1.1"), "finite number"),
        (lambda: GaussianEvent(10**400), "finite number"),
        (lambda: NotPrivateEvent(""), "say what was released"),
        (lambda: Poisson(0.0, 10), "lot size divided by"),
        (lambda: Poisson(1.5, 10), "lot size divided by"),
        (lambda: Poisson(0.1, 0), "at least 1"),
        (lambda: Poisson(0.1, 10, public_size=10), "the number itself goes into `size`"),
        (lambda: Shuffled(10, 11, 1), "at most the number of records"),
        (lambda: Shuffled(10, 2, 11), "batches_per_pass 11"),
        (lambda: FixedSize(10, 11), "without replacement"),
        (lambda: FixedSize(10.0, 5), "whole number"),
        (lambda: Line(EVENT, LOTS, -1), "at least 0"),
        (lambda: Line(EVENT, LOTS, 1.0), "whole number"),
        (lambda: Line(EVENT, LOTS, 1, passes=1), "Shuffled sampling only"),
        (lambda: Line(EVENT, Shuffled(100, 10, 10), 11, passes=1), "touch at least 2 passes"),
        (lambda: Line(1.1, LOTS, 1), "GaussianEvent"),
        (lambda: Line(EVENT, 0.01, 1), "Poisson"),
        (lambda: Ledger([(EVENT, LOTS, 1)]), "Line"),
        (lambda: Ledger.combined(Ledger(), None), "takes ledgers"),
    ],
)
def test_a_bad_argument_is_an_error_that_says_what_to_write(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_covering_ledger_holds_of_every_kind_as_many_steps_as_the_one_with_the_most():
    poisson, shuffled = Poisson(0.1, 100), Shuffled(100, 10, 10)
    run = Ledger().record(GaussianEvent(1.0), poisson, 30).record(GaussianEvent(1.0), shuffled, 12, 3)
    checkpoint = Ledger().record(GaussianEvent(1.0), shuffled, 20, 2).record(GaussianEvent(2.0), poisson, 5)
    covering = Ledger.covering(run, checkpoint)
    assert {(line.event.noise_multiplier, type(line.sampling)): (line.steps, line.passes) for line in covering} == {
        (1.0, Poisson): (30, None),
        (1.0, Shuffled): (20, 3),
        (2.0, Poisson): (5, None),
    }
    assert Ledger.covering(run, run) == run
    assert Ledger.covering() == Ledger()
