"""Norms of per-example gradients in ellipsoids, and inner products, against the same written out in float64."""

import numpy as np
import pytest
import tensorflow as tf

from tests import model_zoo
from tests.gradients.test_forced_forms import SELECTION
from tfdp.data import PoissonBatches
from tfdp.gradients import Ellipsoid, Materialised, OuterSum, Rows, factored, lot_gradients, prove
from tfdp.gradients.compilation import compiling
from tfdp.gradients.convolved import Convolved, Window
from tfdp.gradients.engine import LotGradients

B = 5


def normals(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def positive(seed, *shape):
    """Over four powers of ten."""
    return (10.0 ** np.random.default_rng(seed).uniform(-2, 2, shape)).astype("f4")


def mostly_infinite(seed, *shape):
    """Scales that leave nine of ten coordinates out."""
    scales = 1 / positive(seed, *shape)
    scales[np.random.default_rng(seed).random(shape) < 0.9] = np.inf
    return scales


def assert_norms(gradient, stretch, rtol=1e-3):
    """Of ``g * stretch``: never below, and hardly above."""
    stretched = gradient.materialise().numpy().astype("f8") * stretch
    wanted = np.square(stretched).reshape(B, -1).sum(1)
    found = gradient.squared_norms(tf.constant(stretch)).numpy()
    assert np.all(found >= wanted * (1 - 1e-5))
    np.testing.assert_allclose(found, wanted, rtol=rtol)
    products = gradient.materialise().numpy().astype("f8") * stretch
    inner, exact = gradient.inner_products(tf.constant(stretch)).numpy(), products.reshape(B, -1).sum(1)
    allowed = 1e-3 * np.linalg.norm(stretch) * np.sqrt(np.square(gradient.materialise().numpy()).sum() + 1)
    assert np.all(inner <= exact)
    assert np.all(inner >= exact - allowed)


@pytest.mark.parametrize("places", [1, 7])
@pytest.mark.parametrize("groups", [1, 2])
def test_sums_of_outer_products(groups, places):
    a, d = normals(0, B, groups, places, 4), normals(1, B, groups, places, 6)
    layout = ((groups, 4, 6), (1, 2, 0))
    assert_norms(OuterSum(a, d, (4, 6, groups), layout), positive(2, 4, 6, groups))


def test_gradients_too_large_to_keep_are_built_for_some_examples_at_once(monkeypatch):
    monkeypatch.setattr(factored, "_WORTH_KEEPING", 1)
    a, d = normals(0, B, 1, 3, 900), normals(1, B, 1, 3, 2000)  # two examples make 3.6 of 4 million numbers
    assert_norms(OuterSum(a, d, (900, 2000)), positive(2, 900, 2000))


@pytest.mark.parametrize(
    "tokens", [[[3]] * B, [[0, 3, 0, 3, 1]] * B, [[0, 1, 2]] * B], ids=["one", "repeated", "different"]
)
def test_rows_of_a_table(tokens):
    ids = np.array(tokens)
    assert_norms(Rows(ids, normals(0, *ids.shape, 3), (4, 3)), positive(1, 4, 3))


def test_gradients_that_are_built():
    assert_norms(Materialised(normals(0, B, 3, 4), (3, 4)), positive(1, 3, 4))


WINDOWS = {
    "1d": ((9,), Window((3,), (1,), (1,), "same"), 2, 5),
    "2d with strides": ((8, 9), Window((3, 3), (2, 1), (1, 1), "valid"), 3, 4),
    "2d of whole blocks": ((12, 12), Window((4, 4), (2, 2), (1, 1), "same"), 1, 6),
    "2d of whole blocks, many channels": ((8, 8), Window((4, 2), (2, 2), (1, 1), "valid"), 40, 3),
    "2d dilated": ((9, 9), Window((3, 2), (1, 1), (2, 3), "valid"), 2, 3),
    "3d": ((4, 5, 6), Window((2, 2, 2), (1, 2, 1), (1, 1, 1), "same"), 2, 3),
}


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("name", WINDOWS)
def test_convolutions(name, keeps, monkeypatch):
    if not keeps:  # inner products would be cheaper, were it not for the stretch
        monkeypatch.setattr(factored, "_WORTH_KEEPING", 0)
    space, window, channels, filters = WINDOWS[name]
    x = normals(0, B, *space, channels)
    kernel = normals(1, *window.kernel_size, channels, filters)
    output = tf.nn.convolution(
        x, kernel, strides=window.strides, padding=window.padding.upper(), dilations=window.dilation
    )
    gradient = Convolved(x, normals(2, *output.shape), window, kernel.shape)
    assert_norms(gradient, positive(3, *kernel.shape))


@pytest.mark.parametrize("xla", [False, True])
def test_cancelling_terms_are_allowed_for(xla):
    """The norm must cover the vector that is really summed, which rounding leaves of terms that cancel."""
    a, d = normals(0, B, 1, 2, 8), normals(1, B, 1, 2, 8)
    a[:, :, 1] = a[:, :, 0] * (1 + 1e-7)
    d[:, :, 1] = -d[:, :, 0]
    stretch = positive(2, 8, 8)

    def found(stretch):
        gradient = OuterSum(a, d, (8, 8))
        return gradient.squared_norms(stretch), [gradient.weighted_sum(tf.one_hot(i, B)) for i in range(B)]

    with compiling(xla):
        norms, summed = tf.function(found, jit_compile=xla or None)(tf.constant(stretch))
    summed = [np.sum(np.square(s.numpy().astype("f8") * stretch)) for s in summed]
    assert np.all(norms.numpy() >= np.array(summed) * (1 - 1e-5))


@pytest.mark.parametrize("size", [20_000, 1_000_000])
@pytest.mark.parametrize("shape", ["built", "product"])
def test_distances_of_long_gradients_of_one_sign(shape, size):
    """Where float32 sums err most: all terms are alike, and next to nothing is left of them."""
    lengths, centre = np.array([0.701, 0.71, 0.8, 0.6999, 2.0], "f4"), 0.7
    if shape == "built":
        gradient = Materialised(lengths[:, None] * np.ones((1, size), "f4"), (size,))
    else:
        a, d = lengths[:, None, None, None] * np.ones((1, 1, 1, size // 100), "f4"), np.ones((B, 1, 1, 100), "f4")
        gradient = OuterSum(a, d, (size // 100, 100))
    ones = tf.ones(gradient.shape)
    lot = LotGradients([gradient], [ones], tf.constant(B), 1.0)
    norms = lot.squared_norms(Ellipsoid([ones], [np.float32(centre) * ones])).numpy()
    wanted = np.square(lengths.astype("f8") - np.float32(centre)) * size
    assert np.all(norms >= wanted)
    np.testing.assert_allclose(norms, wanted, rtol=1e-2, atol=5e-4 * size * centre**2)


@pytest.mark.parametrize("far", [0.0, 1e-6, 1e-5, 1e-4])
def test_distances_where_places_cancel(far):
    random = np.random.default_rng(0)
    for _ in range(200):
        a, d = random.normal(size=(B, 1, 2, 8)).astype("f4"), random.normal(size=(B, 1, 2, 8)).astype("f4")
        a[:, :, 1] = a[:, :, 0] * (1 + 1e-7 * random.normal())
        d[:, :, 1] = -d[:, :, 0]
        ones, centre = tf.ones((8, 8)), tf.constant((far * random.normal(size=(8, 8))).astype("f4"))
        lot = LotGradients([OuterSum(a, d, (8, 8))], [ones], tf.constant(B), 1.0)
        norms = lot.squared_norms(Ellipsoid([ones], [centre])).numpy()
        for i in range(B):
            summed = OuterSum(a, d, (8, 8)).weighted_sum(tf.one_hot(i, B)).numpy().astype("f8") - centre
            assert norms[i] >= np.sum(np.square(summed))


GRADIENTS = {
    "one place": lambda: OuterSum(normals(0, B, 1, 1, 20), normals(1, B, 1, 1, 30), (20, 30)),
    "several places": lambda: OuterSum(normals(0, B, 1, 7, 20), normals(1, B, 1, 7, 30), (20, 30)),
    "rows": lambda: Rows(np.array([[0, 3, 0, 3, 1]] * B), normals(0, B, 5, 12), (9, 12)),
    "built": lambda: Materialised(normals(0, B, 20, 30), (20, 30)),
    "convolution": lambda: Convolved(
        normals(0, B, 8, 9, 3), normals(1, B, 6, 7, 4), Window((3, 3), (1, 1), (1, 1), "valid"), (3, 3, 3, 4)
    ),
}


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("name", GRADIENTS)
def test_coordinates_of_infinite_scale_have_no_part_in_a_norm(name, keeps, xla, monkeypatch):
    if not keeps:
        monkeypatch.setattr(factored, "_WORTH_KEEPING", 0)
    shape = GRADIENTS[name]().shape
    scales, far = mostly_infinite(3, *shape), np.full(shape, np.inf, "f4")

    def norms(scales):
        lot = LotGradients([GRADIENTS[name]()], [tf.ones(shape)], tf.constant(B), 1.0)
        return lot.squared_norms(Ellipsoid([scales]))

    with compiling(xla):
        compiled = tf.function(norms, jit_compile=xla or None)
        found, none = compiled(tf.constant(scales)).numpy(), compiled(tf.constant(far)).numpy()
    gradients = GRADIENTS[name]().materialise().numpy().astype("f8").reshape(B, -1)
    inside = np.isfinite(scales.ravel())
    assert 0 < inside.sum() < 0.2 * inside.size
    wanted = np.square(gradients[:, inside] / scales.ravel()[inside]).sum(1)
    assert np.all(found >= wanted * (1 - 1e-5))
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    assert np.all((none >= 0) & (none <= 1e-6 * np.square(gradients).sum(1)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_so_in_coordinates_of_infinite_scale_too(bad):
    """Such an example is left out: 0 times it is not 0."""
    a, d = normals(0, B, 1, 1, 4), normals(1, B, 1, 1, 6)
    a[2, 0, 0, 3] = bad
    scales = np.ones((4, 6), "f4")
    scales[3] = np.inf
    lot = LotGradients([OuterSum(a, d, (4, 6))], [tf.ones((4, 6))], tf.constant(B), 1.0)
    finite = np.isfinite(lot.squared_norms(Ellipsoid([tf.constant(scales)])).numpy())
    np.testing.assert_array_equal(finite, np.arange(B) != 2)


@pytest.mark.parametrize("name", sorted(SELECTION))
def test_of_whole_models(name):
    case = model_zoo.get(name)
    model = case.build()
    model.compile(optimizer="sgd", **case.compile)
    lots = PoissonBatches(case.x, case.y, case.sample_weight, batch_size=case.size)
    plan, lot = prove(model, lots.record_spec, lots.head(8), 16), lots.head(case.size)
    stretches = [tf.constant(positive(i, *w.shape)) for i, w in enumerate(model.trainable_variables)]

    centre = [tf.constant(0.1 * normals(i, *w.shape)) for i, w in enumerate(model.trainable_variables)]

    @tf.function(autograph=False)
    def found(*lot):
        gradients, scales = lot_gradients(model, plan, *lot).gradients, [1 / t for t in stretches]
        norms = [gradients.squared_norms(Ellipsoid(scales, around)) for around in (None, centre)]
        return norms, gradients.materialise()

    specs = tf.nest.map_structure(lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), lot)
    both, gradients = found.get_concrete_function(*specs)(*tf.nest.map_structure(tf.convert_to_tensor, lot))
    for norms, around in zip(both, ([0.0] * len(centre), centre), strict=True):
        triples = zip(gradients, around, stretches, strict=True)
        stretched = [(g.numpy().astype("f8") - np.asarray(a)) * t.numpy() for g, a, t in triples]
        wanted = sum(np.square(g).reshape(case.size, -1).sum(1) for g in stretched)
        assert np.all(norms.numpy() >= wanted * (1 - 1e-5))
        np.testing.assert_allclose(norms, wanted, rtol=1e-3, atol=1e-6 * wanted.max())
