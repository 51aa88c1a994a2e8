"""Encoding in the graph against algorithm 2 of Nasr et al. 2020, line by line."""

import numpy as np
import pytest
import tensorflow as tf

from tests.mechanisms.lots import SHAPES, SIZE, flat
from tfdp.accounting import Codebook
from tfdp.gradients import Materialised
from tfdp.gradients.compilation import compiling
from tfdp.gradients.engine import LotGradients
from tfdp.mechanisms import Encoder, encoding

CLIP = 0.7
BOOK = Codebook(SIZE, size=50)


def algorithm_2(gradient: np.ndarray, codewords: np.ndarray) -> np.ndarray:
    """As printed, but for line 2: the largest similarity of the magnitudes."""
    sorted_inds = np.argsort(np.abs(gradient), kind="stable")
    norms = np.linalg.norm(codewords, axis=1) * max(np.linalg.norm(gradient), 1e-300)
    similarities = codewords @ np.abs(gradient)[sorted_inds] / norms
    psi = codewords[np.argmax(similarities)]
    t = 0
    encoded = np.zeros_like(gradient)
    for i in sorted_inds:
        encoded[i] = min(psi[t], max(gradient[i], -psi[t]))
        t = t + 1
    return encoded


def in_full(book: Codebook) -> np.ndarray:
    return np.array([book.codeword(i) for i in range(book.size)], np.float64)


def one_weight(gradients: np.ndarray) -> LotGradients:
    shape = gradients.shape[1:]
    return LotGradients([Materialised(tf.constant(gradients), shape)], [tf.zeros(shape)], len(gradients), 1.0)


def encoded(gradients: np.ndarray, book: Codebook, clip: float = 1.0) -> np.ndarray:
    """Each row by itself."""
    encoder = Encoder(book)
    return np.array([encoder.sum_of(one_weight(g[None]), tf.constant([True]), clip)[0][0] for g in gradients])


def random_gradients(random: np.random.Generator, count: int, weights: int) -> np.ndarray:
    """Of all lengths and shapes: heavy and light tails, with zeros, with equal magnitudes."""
    found = []
    for _ in range(count):
        g = random.standard_t(random.choice([1.0, 3.0, 30.0]), weights) * 10.0 ** random.uniform(-4, 2)
        g[random.random(weights) < random.choice([0.0, 0.5])] = 0
        if random.random() < 0.2:
            g = np.round(g * 4) / 4
        found.append(g)
    return np.array(found, np.float32)


@pytest.mark.parametrize(
    ("book", "count"),
    [(BOOK, 100), (Codebook(300, size=200), 70), (Codebook(20_000, size=40), 20), (Codebook(16_400, size=20), 10)],
    ids=["17 weights", "300", "20,000, in runs", "16,400, some in runs"],
)
def test_two_hundred_gradients_are_encoded_as_algorithm_2_says(book, count):
    gradients = random_gradients(np.random.default_rng(count), count, book.weights)
    expected = [algorithm_2(g.astype(np.float64), in_full(book)) for g in gradients]
    np.testing.assert_allclose(encoded(gradients, book), expected, rtol=0, atol=2 * encoding.GRID)


def test_xla_encodes_alike():
    gradients = random_gradients(np.random.default_rng(5), 6, SIZE)
    present = tf.constant([True, True, False, True, True, True])

    encoder = Encoder(BOOK)

    @tf.function(jit_compile=True, autograph=False)
    def encode():
        with compiling(xla=True):
            return encoder.sum_of(one_weight(gradients), present, CLIP)

    compiled, _ = encode()
    plain, _ = Encoder(BOOK).sum_of(one_weight(gradients), present, CLIP)
    np.testing.assert_array_equal(compiled[0], plain[0])


def under_an_envelope(v: np.ndarray, book: Codebook) -> bool:
    """Exactly: in some order nowhere above one of the codewords, as they are priced."""
    return bool((np.sort(np.abs(v)) <= in_full(book)).all(axis=1).any())


def test_neighbouring_lots_differ_by_one_vector_under_a_codeword_exactly():
    """1,000 random lots with and without one example, of any order and cut into any parts."""
    random, encoder = np.random.default_rng(0), Encoder(BOOK)
    specs = [tf.TensorSpec([None], tf.bool), *(tf.TensorSpec([None, *shape]) for shape in SHAPES)]

    @tf.function(input_signature=specs, autograph=False)
    def total(present, *parts):
        each = [Materialised(p, shape) for p, shape in zip(parts, SHAPES, strict=True)]
        lot = LotGradients(each, [tf.zeros(shape) for shape in SHAPES], tf.shape(present)[0], 1.0)
        return encoder.sum_of(lot, present, CLIP)[0]

    reached = 0
    for _ in range(1000):
        rows = int(random.integers(2, 9))
        gradients = random_gradients(random, rows, SIZE)
        parts = [
            tf.constant(p.reshape(rows, *s)) for p, s in zip(np.split(gradients, [12], axis=1), SHAPES, strict=True)
        ]
        present = random.random(rows) < 0.7
        one = random.integers(rows)
        with_it, without = present.copy(), present.copy()
        with_it[one], without[one] = True, False
        difference = flat(total(with_it, *parts)) - flat(total(without, *parts))
        assert under_an_envelope(difference, BOOK)
        reached += np.abs(difference).max() > 0.1
    assert reached > 300


def test_sums_do_not_depend_on_the_parts_they_were_added_up_in(monkeypatch):
    gradients = random_gradients(np.random.default_rng(1), 50, SIZE)
    present = tf.constant(np.random.default_rng(2).random(50) < 0.8)
    whole, _ = Encoder(BOOK).sum_of(one_weight(gradients), present, CLIP)
    monkeypatch.setattr(encoding, "_NUMBERS_AT_ONCE", 7 * SIZE)
    parts, _ = Encoder(BOOK).sum_of(one_weight(gradients), present, CLIP)
    np.testing.assert_array_equal(parts[0], whole[0])
    assert whole[0].dtype == tf.float64


def test_codewords_that_are_equally_near_are_chosen_alike_in_any_company():
    """Halfway between two codewords, rounding would decide, and rounding depends on how many rows are multiplied at once."""
    random, book = np.random.default_rng(8), Codebook(300, size=200)
    units = in_full(book) / np.linalg.norm(in_full(book), axis=1, keepdims=True)
    between = [units[random.choice(200, 2, replace=False)].sum(0) for _ in range(40)]
    gradients = np.concatenate([between, random_gradients(random, 40, 300)]).astype(np.float32)
    alone = encoded(gradients[:40], book)
    for _ in range(10):
        size = int(random.integers(2, 60))
        rows = random.choice(80, size, replace=False)
        sums, _ = Encoder(book).sum_of(one_weight(gradients[rows]), tf.ones(size, bool), 1.0)
        rest, _ = Encoder(book).sum_of(one_weight(gradients[rows[1:]]), tf.ones(size - 1, bool), 1.0)
        if rows[0] < 40:
            np.testing.assert_array_equal(sums[0] - rest[0], alone[rows[0]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gradients_that_are_not_finite_contribute_0_and_are_counted(bad):
    gradients = random_gradients(np.random.default_rng(3), 4, SIZE)
    expected, none = Encoder(BOOK).sum_of(one_weight(gradients), tf.constant([True, False, True, False]), CLIP)
    gradients[1, 3] = gradients[3, 0] = bad
    sums, not_finite = Encoder(BOOK).sum_of(one_weight(gradients), tf.constant([True, True, True, False]), CLIP)
    np.testing.assert_array_equal(sums[0], expected[0])
    assert (int(none), int(not_finite)) == (0, 1)  # of those that are present


def test_absent_rows_contribute_nothing():
    gradients = random_gradients(np.random.default_rng(4), 3, SIZE)
    sums, _ = Encoder(BOOK).sum_of(one_weight(gradients), tf.zeros(3, bool), CLIP)
    np.testing.assert_array_equal(sums[0], np.zeros(SIZE))


def test_huge_and_tiny_gradients_stay_under_the_envelope():
    random = np.random.default_rng(6)
    for size in (1e-42, 1e-30, 1e30, 3e38):
        gradients = (np.clip(random.standard_normal((3, SIZE)), -1, 1) * size).astype(np.float32)
        for v in encoded(gradients, BOOK, CLIP):
            assert np.isfinite(v).all() and under_an_envelope(v, BOOK)


def test_groups_are_encoded_by_their_mean():
    gradients = random_gradients(np.random.default_rng(7), 7, SIZE)
    present = np.array([True, True, True, False, False, False, True])
    means = [gradients[:2].mean(0), gradients[2], gradients[6]]  # of pairs, an absent row left out
    sums, _ = Encoder(BOOK).sum_of(one_weight(gradients), tf.constant(present), CLIP, group=2)
    expected = sum(algorithm_2(mean.astype(np.float64) / CLIP, in_full(BOOK)) for mean in means)
    np.testing.assert_allclose(sums[0], expected, atol=1e-6)


def test_a_codebook_of_zeros_encodes_to_nothing():
    book = Codebook(1, size=3)
    np.testing.assert_allclose(encoded(np.array([[0.5], [-3.0]], np.float32), book), [[0.5], [-1.0]], rtol=1e-6)
