"""Randomised response on labels."""

import math

import numpy as np
import pytest
from scipy import stats

from tfdp.data.perturbation.labels import RandomizedLabels

ROWS = 40_000


def words(seed=0):
    return np.random.default_rng(seed).integers(2**64 - 1, size=(ROWS, 2), dtype=np.uint64, endpoint=True)


@pytest.mark.parametrize(("p", "k"), [(0.3, 4), (1.0, 3), (0.01, 2)])
def test_labels_come_out_with_the_probabilities_of_the_claim(p, k):
    labels = np.full(ROWS, 1, np.int32)
    released = RandomizedLabels(p, k).released(labels, words())
    expected = ROWS * np.array([(1 - p) * (outcome == 1) + p / k for outcome in range(k)])
    assert stats.chisquare(np.bincount(released, minlength=k), expected).pvalue > 1e-4
    assert released.dtype == labels.dtype


def test_a_label_is_drawn_anew_exactly_below_the_threshold():
    at = np.array([[0, 5], [2**62, 5], [2**63 - 1, 5], [2**63, 5], [2**64 - 1, 5]], np.uint64)
    released = RandomizedLabels(0.5, 3).released(np.zeros(5, np.int64), at)
    assert released.tolist() == [2, 2, 2, 0, 0]  # 5 modulo 3


def test_columns_and_labels_other_than_numbers_from_zero():
    labels = np.array([[-1.0], [1.0], [1.0]], np.float32)
    released = RandomizedLabels(1e-18, (-1, 1)).released(labels, words()[:3])
    assert np.array_equal(released, labels) and released.dtype == np.float32


@pytest.mark.parametrize(
    ("classes", "dtype", "fits"),
    [
        (256, np.uint8, True),
        (257, np.uint8, False),
        ((-1, 1), np.uint64, False),
        ((0.5, 1.0), np.int64, False),
        ((0.5, 1.0), np.float16, True),
        ((0.1, 1.0), np.float32, False),
        ((2**24, 2**24 + 1), np.float32, False),
        ((0, 2**53 + 1), np.float64, False),
        ((0, 2**53 + 1), np.int64, True),
    ],
)
def test_a_type_holds_all_classes_or_not(classes, dtype, fits):
    assert RandomizedLabels(0.5, classes).fit_in(dtype) == fits


def test_its_price():
    assert RandomizedLabels(0.5, 2).epsilon == pytest.approx(math.log(3))
    assert RandomizedLabels(1e-30, 2**20).epsilon == pytest.approx(math.log(2**20) + math.log(1e30))


@pytest.mark.parametrize("label", [3, -1, 0.5, math.nan])
def test_a_label_that_is_no_class_is_refused(label):
    with pytest.raises(ValueError, match=r"none of the 3 public classes \(0, 1, 2\)"):
        RandomizedLabels(0.5, 3).released(np.array([0, label]), words()[:2])


@pytest.mark.parametrize(
    ("p", "classes", "message"),
    [
        (0.0, 2, "randomized_response must"),
        (1.5, 2, "randomized_response must"),
        (5e-324, 2, "5e-324 is too small to protect"),
        (1e-31, 2, "1e-31 is too small to protect"),
        ("much", 2, "randomized_response must"),
        (0.5, 1, "classes must"),
        (0.5, (1, 1), "different numbers"),
        (0.5, ("a", "b"), "different numbers"),
        (0.5, (1,), "2 to"),
        (0.5, 2**21, "2 to"),
    ],
)
def test_bad_values(p, classes, message):
    with pytest.raises(ValueError, match=message):
        RandomizedLabels(p, classes)
