"""Factored per-example gradients against the same sums written out in float64."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.gradients import Materialised, OuterSum, Rows
from tfdp.gradients.compilation import compiling
from tfdp.gradients.factored import total

B, G, T, P, Q = 4, 2, 5, 3, 6


def products(a, d):
    return np.einsum("bgtp,bgtq->bgpq", a.astype("float64"), d.astype("float64"))


@pytest.fixture
def factors():
    random = np.random.default_rng(0)
    return random.normal(size=(B, G, T, P)).astype("f4"), random.normal(size=(B, G, T, Q)).astype("f4")


@pytest.mark.parametrize("form", ["gram", "materialised", None])
def test_norms_of_an_outer_sum_are_those_of_the_written_out_sum(factors, form):
    expected = np.square(products(*factors)).sum((1, 2, 3))
    found = OuterSum(*factors, (G, P, Q), form=form).squared_norms().numpy()
    assert np.all(found >= expected * (1 - 1e-6))
    np.testing.assert_allclose(found, expected, rtol=2e-4)


def test_weighted_and_materialised_outer_sums_follow_the_layout(factors):
    layout = ((G, P, Q), (1, 2, 0))
    gradient = OuterSum(*factors, (P, Q, G), layout)
    expected = np.transpose(products(*factors), (0, 2, 3, 1))
    np.testing.assert_allclose(gradient.materialise(), expected, rtol=1e-4, atol=1e-5)
    c = np.array([0.5, 0.0, 2.0, -1.0], "f4")
    np.testing.assert_allclose(
        gradient.weighted_sum(tf.constant(c)), np.einsum("b,b...->...", c, expected), rtol=1e-4, atol=1e-5
    )


def table_gradients(ids, d, rows):
    g = np.zeros((len(ids), rows, d.shape[-1]))
    for i, (tokens, values) in enumerate(zip(ids, d, strict=True)):
        for token, value in zip(tokens, values, strict=True):
            g[i, token] += value
    return g


TOKENS = {
    "one": [[3]] * B,
    "all different": [[3, 0, 2, 1]] * B,
    "all the same": [[1, 1, 1, 1]] * B,
    "some repeated": [[0, 3, 0, 3, 1], [2, 2, 2, 0, 1], [0, 1, 2, 3, 3], [3, 2, 1, 0, 2]],
    "repeated in one example alone": [[0, 1, 2], [0, 1, 0], [1, 2, 3], [3, 2, 1]],
}


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("name", TOKENS)
def test_rows_sum_the_places_of_a_repeated_token(name, xla):
    ids = np.array(TOKENS[name])
    d = np.random.default_rng(1).normal(size=(*ids.shape, Q)).astype("f4")
    expected = table_gradients(ids, d, 4)
    with compiling(xla):
        gradient = Rows(ids, d, (4, Q))
        norms = tf.function(gradient.squared_norms, jit_compile=xla or None)()
    np.testing.assert_allclose(norms, np.square(expected).sum((1, 2)), rtol=2e-5)
    np.testing.assert_allclose(gradient.materialise(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient.weighted_sum(tf.ones([B])), expected.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["outer", "rows", "materialised"])
def test_an_example_of_coefficient_zero_is_left_out_whatever_it_holds(factors, kind, bad):
    a, d = (f.copy() for f in factors)
    a[1], d[1] = bad, bad
    ids = np.zeros((B, T), "i4")
    make = {
        "outer": lambda a, d: OuterSum(a, d, (G, P, Q)),
        "rows": lambda a, d: Rows(ids, d[:, 0], (3, Q)),
        "materialised": lambda a, d: Materialised(d, (G, T, Q)),
    }[kind]
    found = make(a, d).weighted_sum(tf.constant([1.0, 0.0, 1.0, 1.0])).numpy()
    a[1] = d[1] = 0
    np.testing.assert_allclose(found, make(a, d).weighted_sum(tf.ones([B])), rtol=1e-6)


@pytest.mark.parametrize("form", ["gram", "materialised"])
def test_the_norm_of_a_sum_that_cancels_is_not_understated(form):
    """Places cancel by seven digits: the float32 sum keeps an error far above the true norm, and the norm must cover it."""
    random = np.random.default_rng(2)
    half = random.normal(size=(64, 1, 50, 8)).astype("f4") * 1e3
    a = np.concatenate([half, half], 2)
    d_half = random.normal(size=(64, 1, 50, 8)).astype("f4") * 1e3
    d = np.concatenate([d_half, -d_half * np.float32(1 + 2**-20)], 2)
    order = random.permutation(100)
    gradient = OuterSum(a[:, :, order], d[:, :, order], (8, 8), form=form)
    norms = np.sqrt(gradient.squared_norms().numpy())
    for i in range(64):
        summed = gradient.weighted_sum(tf.one_hot(i, 64)).numpy()
        assert np.linalg.norm(np.float64(summed)) <= norms[i] * (1 + 1e-5)


def test_uses_of_one_weight_are_summed_before_the_norm(factors):
    a, d = factors
    once, twice = OuterSum(a, d, (G, P, Q)), OuterSum(a[:, :, :2], -d[:, :, :2], (G, P, Q))
    expected = products(a, d) - products(a[:, :, :2], d[:, :, :2])
    joined = total([once, twice], (G, P, Q))
    assert isinstance(joined, OuterSum)
    np.testing.assert_allclose(joined.squared_norms(), np.square(expected).sum((1, 2, 3)), rtol=2e-4)
    mixed = total([once, Materialised(np.ones((B, G, P, Q), "f4"), (G, P, Q))], (G, P, Q))
    np.testing.assert_allclose(mixed.squared_norms(), np.square(products(a, d) + 1).sum((1, 2, 3)), rtol=1e-4)


def test_rows_that_belong_to_one_example_fold_into_it(factors):
    a, d = factors
    folded = OuterSum(a, d, (G, P, Q)).fold(tf.constant(2)).materialise()
    np.testing.assert_allclose(folded, products(a, d).reshape(2, 2, G, P, Q).sum(1), rtol=1e-4, atol=1e-5)
