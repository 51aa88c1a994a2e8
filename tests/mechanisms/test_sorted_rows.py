"""The codeword chosen from products of float32 is the one that exact products choose."""

import numpy as np
import pytest

from tfdp.mechanisms import sorted_rows


def exactly(distances: np.ndarray, whole: np.ndarray) -> list[int]:
    """With Python's integers, which do not round."""
    rows = [[int(d) for d in row] for row in distances]
    products = [[sum(w * d for w, d in zip(map(int, one), row, strict=True)) for row in rows] for one in whole]
    return [max(range(len(rows)), key=one.__getitem__) for one in products]


def chosen(distances: np.ndarray, whole: np.ndarray) -> list[int]:
    products = whole @ distances.T.astype(np.float32)
    return sorted_rows.nearest(distances, np.abs(distances).max(axis=0), whole, products).tolist()


@pytest.mark.parametrize("apart", [0, 1, 1000])
def test_codewords_that_float32_cannot_tell_apart(apart):
    random = np.random.default_rng(apart)
    whole = np.rint(random.random((20, 60)) * 2**21).astype(np.float32)
    base = np.rint(random.standard_normal(60) * 2**24)
    distances = base + random.integers(-apart, apart + 1, (40, 60))
    distances[7] = distances[3]
    assert chosen(distances, whole) == exactly(distances, whole)


def test_rows_of_zeros_get_the_first():
    distances = np.rint(np.random.default_rng(0).standard_normal((5, 8)) * 1000)
    assert chosen(distances, np.zeros((2, 8), np.float32)) == [0, 0]
