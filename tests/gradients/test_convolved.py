"""Per-example kernel gradients of convolutions against one GradientTape an example."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tfdp.gradients.convolved import Convolved, Window, patches
from tfdp.gradients.forms import GRAM, MATERIALISED, without_allowances

B = 4
CASES = {
    "1D": (Window((3,), (1,), (1,), "same"), (9, 2), 5),
    "1D, one channel, long kernel": (Window((7,), (2,), (1,), "valid"), (20, 1), 3),
    "1D dilated": (Window((3,), (1,), (3,), "valid"), (12, 2), 4),
    "2D": (Window((3, 3), (1, 1), (1, 1), "same"), (6, 7, 3), 5),
    "2D, few places": (Window((2, 2), (1, 1), (1, 1), "valid"), (3, 3, 40), 36),
    "2D, many channels": (Window((3, 2), (1, 1), (1, 1), "same"), (5, 6, 33), 4),
    "2D strided": (Window((4, 4), (2, 2), (1, 1), "valid"), (9, 11, 2), 3),
    "2D strided, same": (Window((3, 3), (2, 2), (1, 1), "same"), (7, 8, 2), 3),
    "2D, unequal strides": (Window((2, 3), (3, 1), (1, 1), "same"), (8, 5, 2), 3),
    "2D, gaps between windows": (Window((1, 2), (3, 3), (1, 1), "valid"), (8, 9, 2), 3),
    "2D dilated": (Window((3, 2), (1, 1), (2, 2), "same"), (7, 8, 2), 3),
    "2D, an eighth of the input a side": (Window((8, 8), (2, 2), (1, 1), "same"), (14, 14, 1), 4),
    "3D": (Window((2, 3, 2), (1, 1, 1), (1, 1, 1), "same"), (4, 5, 3, 2), 3),
    "3D strided": (Window((2, 2, 2), (2, 1, 2), (1, 1, 1), "valid"), (5, 4, 6, 2), 3),
}


def convolution(x, kernel, window):
    arguments = {"strides": window.strides, "padding": window.padding.upper(), "dilations": window.dilation}
    return tf.nn.convolution(x, kernel, data_format={1: "NWC", 2: "NHWC", 3: "NDHWC"}[len(window.strides)], **arguments)


@pytest.fixture(params=CASES)
def case(request):
    window, shape, filters = CASES[request.param]
    random = np.random.default_rng(7)
    x = tf.constant(random.normal(size=(B, *shape)).astype("f4"))
    kernel = tf.zeros([*window.kernel_size, shape[-1], filters])
    d = tf.constant(random.normal(size=convolution(x, kernel, window).shape).astype("f4"))
    expected = []
    for i in range(B):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            output = convolution(x[i : i + 1], kernel, window)
        expected.append(tape.gradient(output, kernel, d[i : i + 1]).numpy().astype("float64"))
    return window, x, d, tuple(kernel.shape), np.stack(expected)


def sums_of_squares(g):
    return np.square(g).sum(tuple(range(1, g.ndim)))


@pytest.mark.parametrize("form", ["gram", "materialised", None])
def test_norms_are_those_of_each_examples_gradient_and_not_below(case, form):
    window, x, d, shape, expected = case
    with without_allowances():
        bare = Convolved(x, d, window, shape, form).squared_norms().numpy()
    np.testing.assert_allclose(bare, sums_of_squares(expected), rtol=1e-5)
    found = Convolved(x, d, window, shape, form).squared_norms().numpy()
    assert np.all(found >= sums_of_squares(expected) * (1 - 1e-6))
    np.testing.assert_allclose(found, sums_of_squares(expected), rtol=1e-3)


def test_gradients_and_their_weighted_sum(case):
    window, x, d, shape, expected = case
    gradient = Convolved(x, d, window, shape)
    np.testing.assert_allclose(gradient.materialise(), expected, rtol=1e-4, atol=1e-4)
    c = np.array([0.5, 0.0, 2.0, -1.0], "f4")
    np.testing.assert_allclose(
        gradient.weighted_sum(tf.constant(c)), np.tensordot(c, expected, 1), rtol=1e-4, atol=1e-4
    )


def test_the_form_that_joins_several_uses_is_the_same_gradient(case):
    window, x, d, shape, expected = case
    np.testing.assert_allclose(
        Convolved(x, d, window, shape).as_products().materialise(), expected, rtol=1e-4, atol=1e-4
    )
    folded = Convolved(x, d, window, shape).fold(tf.constant(B // 2)).materialise()
    np.testing.assert_allclose(folded, expected.reshape(B // 2, 2, *shape).sum(1), rtol=1e-4, atol=1e-4)


def test_sizes_that_are_not_known_beforehand(case):
    window, x, d, shape, expected = case
    unknown = [None] * (len(x.shape) - 1)

    @tf.function(
        input_signature=[tf.TensorSpec([*unknown, x.shape[-1]]), tf.TensorSpec([*unknown, d.shape[-1]])],
        autograph=False,
    )
    def found(x, d):
        gradient = Convolved(x, d, window, shape)
        return gradient.squared_norms(), gradient.weighted_sum(tf.ones([tf.shape(x)[0]]))

    norms, total = found(x, d)
    np.testing.assert_allclose(norms, sums_of_squares(expected), rtol=3e-4)
    np.testing.assert_allclose(total, expected.sum(0), rtol=1e-4, atol=1e-4)


def test_an_example_that_is_left_out_has_no_influence_whatever_it_holds(case):
    window, x, d, shape, expected = case
    bad = np.full((1, 1), np.nan, "f4")
    x = tf.concat([x[:1] * bad[0, 0], x[1:]], 0)
    d = tf.concat([d[:1] * np.inf, d[1:]], 0)
    total = Convolved(x, d, window, shape).weighted_sum(tf.constant([0.0, 1.0, 1.0, 1.0]))
    np.testing.assert_allclose(total, expected[1:].sum(0), rtol=1e-4, atol=1e-4)
    norms = Convolved(x, d, window, shape).squared_norms().numpy()
    assert not np.isfinite(norms[0])
    assert np.isfinite(norms[1:]).all()


def test_a_value_that_no_window_sees_does_no_harm():
    window = Window((1, 1), (2, 2), (1, 1), "valid")
    x = np.ones((1, 3, 3, 1), "f4")
    x[0, 1, 1, 0] = np.nan
    norms = Convolved(x, np.ones((1, 2, 2, 1), "f4"), window, (1, 1, 1, 1)).squared_norms().numpy()
    np.testing.assert_allclose(norms, [16.0], rtol=1e-4)


@pytest.mark.parametrize("form", [GRAM, MATERIALISED])
@pytest.mark.parametrize("filters", [2, 4000])
def test_what_is_not_finite_between_the_windows_reaches_no_sum(form, filters):
    """TensorFlow's own kernel gradient of a dilated convolution multiplies it by 0."""
    window = Window((2, 2), (1, 1), (5, 5), "valid")
    x = np.random.default_rng(0).normal(size=(3, 7, 7, 3)).astype("f4")
    d = np.random.default_rng(1).normal(size=(3, 2, 2, filters)).astype("f4")
    clean = Convolved(x, d, window, (2, 2, 3, filters), form)
    norms, expected = clean.squared_norms(), clean.weighted_sum(tf.ones([3]))
    x[0, 3, 3], x[1, 3, 2] = np.nan, np.inf
    gradient = Convolved(x, d, window, (2, 2, 3, filters), form)
    np.testing.assert_allclose(gradient.squared_norms(), norms, rtol=1e-5)
    keep = tf.constant([True, True, True])
    np.testing.assert_allclose(gradient.weighted_sum(tf.ones([3]), keep), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_no_value_is_covered_more_often_than_the_window_says(name):
    window, shape, _ = CASES[name]
    x = tf.ones([1, *shape])
    kernel = tf.ones([*window.kernel_size, shape[-1], 1])
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = tf.reduce_sum(convolution(x, kernel, window))
    assert tf.reduce_max(tape.gradient(output, x)) <= window.cover <= math.prod(window.kernel_size)


def test_patches_show_what_is_under_the_kernel():
    window = Window((2, 2), (2, 2), (1, 1), "valid")
    x = np.arange(16, dtype="f4").reshape(1, 4, 4, 1)
    seen = patches(tf.constant(x), window, [2, 2]).numpy()[0, :, :, 0]
    np.testing.assert_array_equal(seen, [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]])
