"""Lots padded to a few sizes."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tfdp.data import PoissonBatches
from tfdp.data.lots import Buckets


@pytest.mark.parametrize("size, lot", [(10**6, 256), (1000, 256), (60_000, 512), (10**7, 4096), (300, 299)])
def test_less_than_a_tenth_of_the_rows_is_padding_and_three_sizes_nearly_always_do(size, lot):
    buckets = Buckets(size, lot / size)
    members = np.arange(size + 1) if size <= 10**4 else np.arange(lot + 20 * int(lot**0.5))
    probability = scipy.stats.binom.pmf(members, size, lot / size)
    rows = np.array([buckets.rows(int(k)) for k in members])
    padding = (probability * (rows - members)).sum() / (probability * rows).sum()
    assert padding < 0.1
    usual = np.unique(rows)[:3]
    assert probability[np.isin(rows, usual)].sum() > 1 - 1e-4


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("size, rate", [(10**6, 256e-6), (1000, 1e-3), (50, 1.0), (40, 0.5)])
def test_no_lot_is_ever_cut(size, rate, fine):
    buckets = Buckets(size, rate, fine)
    for members in range(min(size, 3000) + 1):
        assert max(1, members) <= buckets.rows(members) <= size
    assert buckets.rows(size) == size


@pytest.mark.parametrize(
    "size, lot", [(10**6, 256), (1000, 256), (60_000, 512), (10**7, 4096), (300, 299), (10**5, 16)]
)
def test_fine_sizes_are_few_and_pad_little(size, lot):
    buckets = Buckets(size, lot / size, fine=True)
    members = np.arange(size + 1) if size <= 10**4 else np.arange(lot + 20 * int(lot**0.5))
    probability = scipy.stats.binom.pmf(members, size, lot / size)
    rows = np.array([buckets.rows(int(k)) for k in members])
    padding = (probability * (rows - members)).sum() / (probability * rows).sum()
    assert padding < 0.36 / lot**0.5
    assert np.sort(np.bincount(rows, probability))[-17:].sum() > 1 - 1e-4


def test_padding_rows_are_copies_of_the_first_record_and_not_present():
    numbers = np.arange(1, 1001)
    batches = PoissonBatches({"x": numbers, "text": numbers.astype("U")}, numbers * 1.5, batch_size=100)
    sizes = set()
    for (features, y), present in batches.dataset(bucketed=True).take(100):
        present = present.numpy()
        sizes.add(len(present))
        assert len(features["x"]) == len(features["text"]) == len(y) == len(present)
        x, text = features["x"].numpy(), features["text"].numpy()
        assert len(np.unique(x[present])) == present.sum()
        assert (x[~present] == x[0]).all() and present[0]
        assert np.array_equal(y.numpy(), 1.5 * x) and np.array_equal(text, x.astype("S"))
    assert 1 < len(sizes) <= 4


def test_an_empty_lot_is_one_bucket_of_padding():
    batches = PoissonBatches(np.ones((1000, 2)), batch_size=1, public_size=10**6)
    (x,), present = next(iter(batches.dataset(bucketed=True).filter(lambda record, p: not p[0]).take(1)))
    assert len(present) == 1 and not present.numpy().any() and not x.numpy().any()


def test_a_lot_above_the_usual_sizes_comes_through_whole():
    # 200 records at rate 1/2, all of them drawn: far beyond every planned size.
    from tfdp.data.records import Records
    from tfdp.data.stream import stream

    buckets = Buckets(200, 0.1)
    lots = [np.arange(200), np.arange(0), np.arange(55)]
    dataset = stream(Records(np.arange(200)), lots * 20, expected_rows=20, padded_rows=buckets.rows)
    for expected, ((x,), present) in zip(lots, dataset.take(3), strict=True):
        assert np.array_equal(x.numpy()[present.numpy()], expected)


@pytest.mark.parametrize("texts", [np.array(["a", "b"] * 500), tf.constant(["a", "b"] * 500)], ids=["numpy", "tensor"])
def test_padding_of_texts_is_a_text_of_the_lot(texts):
    batches = PoissonBatches(texts, np.arange(1000), batch_size=100)
    for (text, y), present in batches.dataset(bucketed=True, fine=True).take(20):
        assert present.numpy().any() and len(text) == len(present)
        assert np.array_equal(text.numpy(), np.where(y.numpy() % 2 == 0, b"a", b"b"))


@pytest.mark.parametrize("texts", [np.array(["a"] * 1000), tf.constant(["a"] * 1000)], ids=["numpy", "tensor"])
def test_an_empty_lot_of_texts_is_padded_with_an_empty_one(texts):
    batches = PoissonBatches(texts, batch_size=1, public_size=10**6)
    (text,), present = next(iter(batches.dataset(bucketed=True).filter(lambda record, p: not p[0]).take(1)))
    assert text.numpy().tolist() == [b""] and not present.numpy().any()
