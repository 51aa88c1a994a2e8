"""One record's contribution is at most the clip, rounding included, however many places its weights are used at."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.gradients import Ellipsoid, Materialised, OuterSum, Rows
from tfdp.gradients.compilation import compiling
from tfdp.gradients.convolved import Convolved, Window
from tfdp.gradients.engine import LotGradients
from tfdp.gradients.factored import total
from tfdp.gradients.forms import GRAM, MATERIALISED, forced
from tfdp.mechanisms import GaussianMechanism

CLIP = 1.0
MOST = 1 + 1e-5


def contributions(make, shape, xla=False, present=(True,), ellipsoid=None) -> np.ndarray:
    """What the mechanism's sum of a lot is, in clips of 1, with examples left out that are not present."""

    def summed():
        lot = LotGradients([make()], [tf.zeros(shape)], tf.constant(len(present)), 1.0)
        return GaussianMechanism(CLIP, 1.0).bounded_sum(lot, tf.constant(present), ellipsoid)[0][0]

    with compiling(xla):
        return tf.function(summed, jit_compile=xla or None, autograph=False)().numpy().astype("f8")


def length(values: np.ndarray) -> float:
    return float(np.linalg.norm(values))


def just_below_half_a_spacing(shape, axis) -> np.ndarray:
    """One number of 1, and all others so that a product of two is lost beside it."""
    values = np.full(shape, np.sqrt(2.0**-24 * 0.98), "f4")
    values[tuple(slice(0, 1) if i == axis else slice(None) for i in range(len(shape)))] = 1
    return values


def constant(shape, axis=0, value=0.7):
    return np.full(shape, value, "f4")


def alternating(shape, axis):
    """Neighbours that cancel by four digits."""
    values = np.ones(shape, "f4")
    values[tuple(slice(1, None, 2) if i == axis else slice(None) for i in range(len(shape)))] = -0.9999
    return values


def up_and_down(shape, axis):
    """A sum that grows for half its terms, and shrinks to next to nothing after that."""
    values = np.full(shape, 0.3333, "f4")
    half = shape[axis] // 2
    values[tuple(slice(half, None) if i == axis else slice(None) for i in range(len(shape)))] = -0.3332
    return values


def random_signs(shape, axis):
    return np.random.default_rng(0).choice([-0.7, 0.7], shape).astype("f4")


def normal(shape, axis):
    return np.random.default_rng(1).normal(size=shape).astype("f4")


VALUES = {f.__name__: f for f in (constant, alternating, up_and_down, random_signs, normal, just_below_half_a_spacing)}

PRODUCTS = {  # T, p, q
    "one unit": (4096, 16500, 1),
    "one input": (4096, 1, 16500),
    "inner products of long vectors": (8, 5000, 3000),
    "inner products of two places": (2, 5000, 400),
    "as many places as are allowed for": (1024, 1500, 1100),
    "more places, none kept": (1100, 1200, 1150),
    "kept": (1000, 64, 96),
    "one place": (1, 30000, 30),
}


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, values, xla):
    places, p, q = PRODUCTS[name]
    if xla and places * p * q > 10**9:
        pytest.skip("takes long to run")
    a = tf.constant(VALUES[values]((1, 1, places, p), axis=2 if places > 8 else 3))
    d = tf.constant(np.ones((1, 1, places, q), "f4"))
    assert length(contributions(lambda: OuterSum(a, d, (p, q)), (p, q), xla)) <= MOST


@pytest.mark.parametrize("form", [GRAM, MATERIALISED])
@pytest.mark.parametrize("values", VALUES)
def test_products_in_either_form(values, form):
    a, d = (tf.constant(VALUES[values]((1, 3, 70, 150), axis)) for axis in (2, 3))
    with forced(form):
        assert length(contributions(lambda: OuterSum(a, d, (3, 150, 150)), (3, 150, 150))) <= MOST


@pytest.mark.parametrize("places", [5000, 40_000])
def test_constants_of_any_size(places):
    """The worst of a search over constants: one number is rounded up in nearly all sums, another down."""
    for value in (0.1, 0.3333, 0.7, 1.1, 1.9, 0.55, 0.9, 0.97, 0.51, 1.3):
        a, d = tf.fill([1, 1, places, 300], np.float32(value)), tf.ones([1, 1, places, 1])
        assert length(contributions(lambda a=a, d=d: OuterSum(a, d, (300, 1)), (300, 1))) <= MOST
        wide = tf.reshape(a, [1, 1, 100, -1])[..., : 3 * places]
        e = tf.ones([1, 1, 100, 1])
        assert length(contributions(lambda a=wide, d=e: OuterSum(a, d, (a.shape[3], 1)), (wide.shape[3], 1))) <= MOST


IMAGES = {  # side, kernel, stride, channels, filters
    "256": (256, 3, 1, 3, 700),
    "512, strides": (512, 7, 2, 3, 128),
    "224, whole blocks": (224, 4, 4, 3, 768),
    "28, none kept": (28, 3, 1, 128, 64),
    "40, products made again": (40, 3, 1, 256, 64),
    "14, inner products": (14, 3, 1, 256, 512),
}


def images(side, kernel, stride, channels, filters, values, batch=1):
    window = Window((kernel, kernel), (stride, stride), (1, 1), "same")
    out = -(-side // stride)
    x = tf.constant(VALUES[values]((batch, side, side, channels), 1))
    return x, tf.ones([batch, out, out, filters]), window, (kernel, kernel, channels, filters)


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", IMAGES)
def test_convolutions(name, values):
    image = images(*IMAGES[name], values)
    assert length(contributions(lambda: Convolved(*image), image[-1])) <= MOST


def test_a_convolution_over_an_image_of_a_million_places():
    image = images(1024, 3, 1, 8, 300, "constant")
    assert length(contributions(lambda: Convolved(*image), image[-1])) <= MOST


def test_a_convolution_whose_places_are_not_known_beforehand():
    x, d, window, shape = images(64, 3, 1, 64, 80, "constant")

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, v.shape[-1]]) for v in (x, d)], autograph=False)
    def summed(x, d):
        gradient = Convolved(x, d, window, shape)
        return gradient.squared_norms(), gradient.weighted_sum(tf.ones([1]))

    squared, sums = summed(x, d)
    assert length(sums.numpy().astype("f8")) <= np.sqrt(squared[0]) * MOST


TOKENS = {  # places, tokens, numbers of a row
    "one token of many": (1000, 1, 5000),
    "every token twice": (1000, 500, 5000),
    "one token, more places than rows": (200_000, 1, 1000),
    "one token, many places": (50_000, 1, 60_000),
    "every token twice, many places": (50_000, 25_000, 60_000),
}


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", TOKENS)
def test_rows(name, values, xla):
    places, tokens, count = TOKENS[name]
    ids, d = tf.constant(np.arange(places)[None] % tokens), tf.constant(VALUES[values]((1, places, 4), 1))
    assert length(contributions(lambda: Rows(ids, d, (count, 4)), (count, 4), xla)) <= MOST


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("size", [4000, 10**7])
def test_gradients_that_are_built(size, values):
    g = tf.constant(VALUES[values]((1, size), 1))
    assert length(contributions(lambda: Materialised(g, (size,)), (size,))) <= MOST


def test_several_uses_of_a_weight_and_several_rows_of_an_example():
    a, d = tf.fill([2, 1, 3000, 300], 0.7), tf.ones([2, 1, 3000, 60])
    shape = (300, 60)
    assert length(contributions(lambda: OuterSum(a, d, shape).fold(tf.constant(1)), shape)) <= MOST
    uses = [(a[:1], d[:1]), (-a[1:], 0.9999 * d[1:])]
    assert length(contributions(lambda: total([OuterSum(*use, shape) for use in uses], shape), shape)) <= MOST


@pytest.mark.parametrize("values", VALUES)
def test_ellipsoids(values):
    random = np.random.default_rng(0)
    image = images(28, 3, 1, 128, 64, values)
    scales = tf.constant(random.uniform(0.5, 2, image[-1]).astype("f4"))
    moved = contributions(lambda: Convolved(*image), image[-1], ellipsoid=Ellipsoid([scales]))
    assert length(moved / scales.numpy()) <= MOST
    ids, d = tf.zeros([1, 20_000], tf.int32), tf.constant(VALUES[values]((1, 20_000, 4), 1))
    scales = tf.constant(random.uniform(0.5, 2, (1000, 4)).astype("f4"))
    moved = contributions(lambda: Rows(ids, d, (1000, 4)), (1000, 4), ellipsoid=Ellipsoid([scales]))
    assert length(moved / scales.numpy()) <= MOST
    a, d = (tf.constant(VALUES[values]((1, 1, 700, 200), axis)) for axis in (2, 3))
    scales = tf.constant(random.uniform(0.5, 2, (200, 200)).astype("f4"))
    moved = contributions(lambda: OuterSum(a, d, (200, 200)), (200, 200), ellipsoid=Ellipsoid([scales]))
    assert length(moved / scales.numpy()) <= MOST


COMPANY = {
    "product": lambda: (
        tf.fill([5, 1, 900, 1000], 0.7),
        lambda a: OuterSum(a, tf.ones([5, 1, 900, 950]), (1000, 950)),
        (1000, 950),
    ),
    "inner products": lambda: (
        tf.fill([5, 1, 60, 1000], 0.7),
        lambda a: OuterSum(a, tf.ones([5, 1, 60, 950]), (1000, 950)),
        (1000, 950),
    ),
    "convolution": lambda: (
        tf.fill([5, 28, 28, 128], 0.7),
        lambda x: Convolved(x, tf.ones([5, 28, 28, 64]), Window((3, 3), (1, 1), (1, 1), "same"), (3, 3, 128, 64)),
        (3, 3, 128, 64),
    ),
    "convolution made again": lambda: (
        tf.fill([5, 40, 40, 256], 0.7),
        lambda x: Convolved(x, tf.ones([5, 40, 40, 64]), Window((3, 3), (1, 1), (1, 1), "same"), (3, 3, 256, 64)),
        (3, 3, 256, 64),
    ),
    "rows": lambda: (
        tf.fill([5, 1000, 4], 0.7),
        lambda d: Rows(tf.zeros([5, 1000], tf.int32), d, (5000, 4)),
        (5000, 4),
    ),
}


@pytest.mark.parametrize("name", COMPANY)
def test_a_record_in_a_lot(name):
    """Alone in it, at any place: kernels cut lots in blocks of their own. With others there, the sum of all of them is rounded
    as well: docs/threat_model.md, "The size of a record's contribution"."""
    values, make, shape = COMPANY[name]()
    for row in range(5):
        present = [i == row for i in range(5)]
        assert length(contributions(lambda: make(values), shape, present=present)) <= MOST
    others = [i != 2 for i in range(5)]
    moved = contributions(lambda: make(values), shape, present=[True] * 5) - contributions(
        lambda: make(values), shape, present=others
    )
    of_the_lot = 25 * 2.0**-24 * 1000 if name == "rows" else 2e-4
    assert length(moved) <= MOST + of_the_lot
