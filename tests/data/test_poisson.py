"""PoissonBatches: the distribution of lots, and what makes them secret."""

import itertools
import os
import random

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tfdp.accounting import FullBatch, Poisson
from tfdp.data import PoissonBatches
from tfdp.data.lots import PoissonLots

# Statistical tests fail by chance once in a million runs.
P_VALUE = 1e-6


def lots_of(batches, count, bucketed=False):
    """The record numbers in `count` lots of records that hold their own number."""
    return [x.numpy()[present] for (x,), present in batches.dataset(bucketed).take(count)]


def chi_square_p(observed, expected):
    """Of counts against expected counts, rare outcomes pooled from both ends."""
    pooled_observed, pooled_expected, seen, due = [], [], 0.0, 0.0
    for o, e in zip(observed, expected, strict=True):
        seen, due = seen + o, due + e
        if due >= 10:
            pooled_observed.append(seen)
            pooled_expected.append(due)
            seen = due = 0.0
    pooled_observed[-1] += seen
    pooled_expected[-1] += due
    pooled_expected = np.array(pooled_expected) * sum(pooled_observed) / sum(pooled_expected)
    return scipy.stats.chisquare(pooled_observed, pooled_expected).pvalue


@pytest.fixture(scope="module")
def membership():
    """[lot, record]: whether the record is in the lot. 20 of 200 records expected, 4,000 lots."""
    lots = lots_of(PoissonBatches(np.arange(200), batch_size=20), 4000)
    table = np.zeros((len(lots), 200), bool)
    for row, members in zip(table, lots, strict=True):
        assert len(np.unique(members)) == len(members)
        row[members] = True
    return table


def test_lot_sizes_follow_the_binomial(membership):
    observed = np.bincount(membership.sum(1), minlength=201)
    expected = len(membership) * scipy.stats.binom.pmf(np.arange(201), 200, 0.1)
    assert chi_square_p(observed, expected) > P_VALUE


def test_each_record_is_drawn_at_the_rate(membership):
    p_values = [scipy.stats.binomtest(int(k), len(membership), 0.1).pvalue for k in membership.sum(0)]
    assert min(p_values) > P_VALUE / 200


def test_inclusion_of_two_records_is_uncorrelated(membership):
    lots, records = membership.shape
    correlations = np.corrcoef(membership.T)[np.triu_indices(records, 1)]
    limit = scipy.stats.norm.isf(P_VALUE / len(correlations) / 2)
    assert np.abs(correlations).max() * np.sqrt(lots) < limit
    # All pairs together: the variance of a correlation of independent coins is 1 / (lots - 1).
    spread = np.var(correlations) * (lots - 1)
    assert abs(spread - 1) < 5 * np.sqrt(2 / len(correlations))


def test_successive_lots_are_independent(membership):
    lots, records = membership.shape
    again = (membership[1:] & membership[:-1]).sum()
    assert scipy.stats.binomtest(int(again), (lots - 1) * records, 0.01).pvalue > P_VALUE


@pytest.mark.parametrize("size, rate", [(50, 0.7), (3, 0.9), (20_000, 0.5), (10**6, 1e-6), (10**12, 3e-12)])
def test_lots_of_any_rate_are_sets_of_binomial_size(size, rate):
    """Drawn one or several at a time, of so few records that nearly all are members, and of very many."""
    lots = list(itertools.islice(PoissonLots(size, rate), 2000))
    assert all(np.all(np.diff(lot) > 0) and np.all((lot >= 0) & (lot < size)) for lot in lots)
    low, high = scipy.stats.binom.ppf([1e-9, 1 - 1e-9], size, rate).astype(int)
    values, counts = np.arange(low, high + 1), np.array([len(lot) for lot in lots])
    assert low <= counts.min() and counts.max() <= high
    expected = len(lots) * scipy.stats.binom.pmf(values, size, rate)
    assert chi_square_p(np.bincount(counts - low, minlength=len(values)), expected) > P_VALUE


@pytest.mark.parametrize("size, rate", [(60, 0.7), (20_000, 0.01), (10**12, 3e-11)])
def test_members_are_all_over_the_records(size, rate):
    """By sixths of the records: of lots that are drawn together, and of each one's place among them."""
    lots = list(itertools.islice(PoissonLots(size, rate), 960))
    for place in range(0, 32, 4):
        sixths = np.bincount(np.concatenate(lots[place::32]) // (size // 6), minlength=6)
        assert scipy.stats.chisquare(sixths[:6]).pvalue > P_VALUE


def test_at_rate_one_every_lot_holds_every_record():
    batches = PoissonBatches(np.arange(50), batch_size=50)
    assert batches.sampling == FullBatch(50)
    assert all(np.array_equal(np.sort(lot), np.arange(50)) for lot in lots_of(batches, 5))


def test_empty_lots_come_through_with_no_rows():
    batches = PoissonBatches(np.zeros((1000, 3, 2)), np.zeros(1000), batch_size=1, public_size=1_000_000)
    lots = list(batches.dataset().take(200))
    empty = [record for record, present in lots if present.shape == (0,)]
    assert len(empty) > 150
    assert all(x.shape == (0, 3, 2) and y.shape == (0,) for x, y in empty)


def test_global_seeds_do_not_move_the_lots():
    def run():
        keras.utils.set_random_seed(7)
        np.random.seed(7)
        random.seed(7)
        tf.random.set_seed(7)
        return lots_of(PoissonBatches(np.arange(1000), batch_size=100), 5)

    assert not any(np.array_equal(a, b) for a, b in zip(run(), run(), strict=True))


def test_every_iteration_draws_fresh_lots():
    dataset = PoissonBatches(np.arange(1000), batch_size=100).dataset()
    first, second = (next(iter(dataset))[0][0].numpy() for _ in range(2))
    assert not np.array_equal(first, second)


def test_a_sampling_seed_repeats_the_lots_and_is_owned_up_to():
    batches = PoissonBatches(np.arange(1000), batch_size=100, sampling_seed=3)
    assert batches.seeded and not PoissonBatches(np.arange(9), batch_size=3).seeded
    first, again = lots_of(batches, 5), lots_of(batches, 5)
    other = lots_of(PoissonBatches(np.arange(1000), batch_size=100, sampling_seed=4), 5)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_fork_draws_lots_of_its_own():
    lots = iter(PoissonLots(10_000, 0.01))
    next(lots)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, next(lots)[:20].astype(np.int64).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(reading, 8 * 20), np.int64)
    assert len(theirs) == 20 and not np.array_equal(theirs, next(lots)[:20])


def test_rows_of_a_record_stay_together():
    numbers = np.arange(300)
    x = {"a": numbers[:, None] * np.ones(4), "b": (tf.constant(numbers), numbers.astype("U"))}
    batches = PoissonBatches(x, 2 * numbers, 3 * numbers, batch_size=30)
    for (features, y, weight), present in batches.dataset().take(10):
        expected = features["b"][0].numpy()
        assert np.array_equal(features["a"], expected[:, None] * np.ones(4, np.float32))
        assert np.array_equal(features["b"][1], [str(number).encode() for number in expected])
        assert np.array_equal(y, 2 * expected) and np.array_equal(weight, 3 * expected)
        assert present.numpy().all() and len(present) == len(expected)


def test_rate_and_steps_come_from_the_number_of_records():
    batches = PoissonBatches(np.zeros((1000, 2)), batch_size=np.int64(64))
    assert batches.size == 1000 and batches.batch_size == 64 and batches.steps_per_epoch == 16
    assert batches.sampling == Poisson(64 / 1000, 1000)


def test_a_public_size_takes_the_place_of_the_number_of_records():
    batches = PoissonBatches(np.arange(983), batch_size=100, public_size=1000)
    assert batches.steps_per_epoch == 10 and batches.sampling == Poisson(0.1, 1000, public_size=True)
    rows = sum(len(lot) for lot in lots_of(batches, 500))
    assert scipy.stats.binomtest(rows, 983 * 500, 0.1).pvalue > P_VALUE
    assert PoissonBatches(np.arange(9), batch_size=10, public_size=10).sampling == FullBatch(10, public_size=True)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"batch_size": 0}, "whole number of at least 1"),
        ({"batch_size": 2.0}, "whole number of at least 1"),
        ({"batch_size": True}, "whole number of at least 1"),
        ({"batch_size": 5, "public_size": 7.5}, "public_size must be a whole number"),
    ],
)
def test_wrong_sizes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PoissonBatches(np.arange(10), **arguments)


def test_with_a_public_size_nothing_tells_the_number_of_records():
    assert PoissonBatches(np.arange(983), batch_size=990, public_size=1000).sampling_rate == 0.99
    everything = PoissonBatches(np.arange(983), batch_size=2000, public_size=1000)
    assert everything.batch_size == 1000 and everything.sampling == FullBatch(1000, public_size=True)


def test_a_batch_size_above_the_number_of_records_means_all_of_them():
    batches = PoissonBatches(np.arange(10), batch_size=32)
    assert batches.sampling == FullBatch(10) and batches.batch_size == 10 and batches.steps_per_epoch == 1
    assert all(sorted(lot) == list(range(10)) for lot in lots_of(batches, 5))


def test_shards_draw_their_own_records_at_the_rate_of_the_whole():
    batches = PoissonBatches(np.arange(1001), batch_size=100)
    shards = [batches.shard(index, 3) for index in range(3)]
    assert sum(shard.size for shard in shards) == 1001
    for index, shard in enumerate(shards):
        assert shard.sampling == batches.sampling and shard.steps_per_epoch == batches.steps_per_epoch
        assert shard.expected_rows == pytest.approx(100 / 3)
        members = np.concatenate(lots_of(shard, 300))
        assert (members % 3 == index).all()
        assert scipy.stats.binomtest(len(members), 300 * shard.size, 100 / 1001).pvalue > P_VALUE


def test_a_shard_of_a_shard_and_full_shards():
    shard = PoissonBatches(np.arange(20), batch_size=20).shard(1, 2).shard(1, 2)
    assert np.array_equal(np.sort(lots_of(shard, 1)[0]), [3, 7, 11, 15, 19])


def test_seeded_shards_differ():
    batches = PoissonBatches(np.arange(1000), batch_size=100, sampling_seed=1)
    first, second = (lots_of(batches.shard(index, 2), 1)[0] // 2 for index in range(2))
    assert not np.array_equal(first, second)


def test_a_shard_says_which_part_it_is():
    whole = PoissonBatches(np.arange(20), batch_size=5)
    assert whole.part == (0, 1)
    assert whole.shard(1, 3).part == (1, 3)


def test_fingerprints_are_of_all_records_and_of_their_order():
    x, words = np.arange(1000), np.array([f"word {number}" for number in range(1000)])
    own = PoissonBatches((x, words), batch_size=5)
    assert own.fingerprint() == own.shard(1, 2).fingerprint()
    assert own.fingerprint() == PoissonBatches((x.copy(), words.copy()), batch_size=7).fingerprint()
    for others in ((x[::-1], words), (x, words[::-1]), (x[:-1], words[:-1]), (x + 1, words)):
        assert own.fingerprint() != PoissonBatches(others, batch_size=5).fingerprint()


@pytest.mark.parametrize("index, count", [(2, 2), (-1, 2), (0, 0), (0, 11)])
def test_impossible_shards_are_refused(index, count):
    with pytest.raises(ValueError, match="shard"):
        PoissonBatches(np.arange(10), batch_size=2).shard(index, count)


def test_the_dataset_is_endless_and_leaves_the_lot_size_open():
    dataset = PoissonBatches(np.zeros((10, 3)), np.zeros(10, np.int32), batch_size=4).dataset()
    assert int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
    assert dataset.element_spec == (
        (tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((None,), tf.int32)),
        tf.TensorSpec((None,), tf.bool),
    )


def test_no_retracing_per_lot_size():
    traces = []

    @tf.function
    def count(iterator):
        traces.append(1)
        _, present = next(iterator)
        return tf.size(present)

    iterator = iter(PoissonBatches(np.zeros((1000, 3)), batch_size=100).dataset())
    assert len({int(count(iterator)) for _ in range(50)}) > 5
    assert len(traces) == 1


@pytest.mark.parametrize("rows", [1, 3, 7, 20, 50])
@pytest.mark.parametrize("shards", [1, 3])
def test_once_through_shows_every_record_once_in_parts_of_one_shape(rows, shards):
    whole = PoissonBatches(np.arange(20), batch_size=5)
    seen = []
    for index in range(shards):
        part = whole.shard(index, shards)
        for _ in range(2):  # every iteration begins anew
            parts = list(part.once_through(rows))
            assert {x.shape[0] for (x,), _ in parts} == {min(rows, part.size)}
            found = np.concatenate([x.numpy()[present] for (x,), present in parts])
            np.testing.assert_array_equal(found, np.arange(20)[index::shards])
        seen += list(found)
    assert sorted(seen) == list(range(20))


def test_once_through_needs_a_row_at_least():
    with pytest.raises(ValueError, match=r"rows must be .*whole number of at least 1"):
        PoissonBatches(np.arange(20), batch_size=5).once_through(0)
