"""One record moves the clipped sum by at most the clip, whatever numbers it holds."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.gradients import lot_gradients, prove
from tfdp.mechanisms import GaussianMechanism

LOT = 6
PAIRS = 125  # for each of 4 models and 2 clips: 1,000 in all


def dense() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="relu"), keras.layers.Dense(2)])


def attention_like() -> keras.Model:
    """A weight used at several places of one example: norms by Gram matrices."""
    return keras.Sequential([keras.Input((3, 4)), keras.layers.Dense(8), keras.layers.Flatten(), keras.layers.Dense(2)])


def convolution() -> keras.Model:
    layers = [keras.layers.Conv1D(3, 2, activation="tanh"), keras.layers.LayerNormalization(), keras.layers.Flatten()]
    return keras.Sequential([keras.Input((4, 4)), *layers, keras.layers.Dense(2)])


def shared() -> keras.Model:
    """A layer used twice: gradients of its uses may cancel."""
    x = keras.Input((4,))
    layer = keras.layers.Dense(4)
    return keras.Model(x, keras.layers.Dense(2)(layer(layer(x)) - layer(x)))


MODELS = {"dense": dense, "attention-like": attention_like, "convolution": convolution, "shared": shared}


def extreme(rng, *shape) -> np.ndarray:
    """Rows of very different sizes; here and there a single large, tiny or non-finite value."""
    rows = rng.standard_normal(shape) * 10.0 ** rng.uniform(-20, 20, (shape[0],) + (1,) * (len(shape) - 1))
    odd = rng.random(shape) < 0.03
    strange = rng.choice([0.0, 1e-20, 1e20, -1e20, 1e-38, 3e38, np.nan, np.inf, -np.inf], shape)
    ordinary = rng.random(shape[0]) < 0.3
    rows[ordinary] = rng.standard_normal((ordinary.sum(), *shape[1:]))
    return np.where(odd, strange, rows).astype("float32")


def sums_of(model, x_shape, clip):
    """The mechanism's sum of a lot, as the private step computes it."""
    spec = (tf.TensorSpec((None, *x_shape)), tf.TensorSpec((None, 2)))
    plan = prove(model, spec, lot_size=16)
    mechanism = GaussianMechanism(clip, 1.0)

    @tf.function(input_signature=[*spec, tf.TensorSpec((None,), tf.bool)], autograph=False)
    def sums(x, y, present):
        return mechanism.bounded_sum(lot_gradients(model, plan, x, y).gradients, present)[0]

    return lambda *lot: np.concatenate([np.ravel(s) for s in sums(*lot)]).astype("float64")


@pytest.mark.parametrize("clip", [1e-3, 30.0])
@pytest.mark.parametrize("name", MODELS)
def test_two_neighbouring_lots_differ_by_at_most_the_clip(name, clip):
    keras.utils.set_random_seed(1)
    model = MODELS[name]()
    model.compile(loss="mse")
    sums = sums_of(model, model.input_shape[1:], clip)
    rng = np.random.default_rng(0)
    moved = 0
    for _ in range(PAIRS):
        x, y = extreme(rng, LOT, *model.input_shape[1:]), extreme(rng, LOT, 2)
        present = np.ones(LOT, bool)
        whole = sums(x, y, present)
        assert np.all(np.isfinite(whole))
        if rng.random() < 0.5:  # the record is replaced by nothing
            present[rng.integers(LOT)] = False
            neighbour = sums(x, y, present)
        else:  # the lot has one record less
            neighbour = sums(x[:-1], y[:-1], present[:-1])
        distance = np.linalg.norm(whole - neighbour)
        assert distance <= clip
        moved += distance > 0.9 * clip
    assert moved > PAIRS / 20  # the clip is reached: the test would see a bound that is a little off


@pytest.mark.parametrize("x_scale", [1e-23, 1e-21, 1e-20, 1e-19, 1e-15])
def test_products_of_tiny_and_huge_factors_are_clipped(x_scale):
    """A kernel's gradient is features times errors. Here the square of one factor is 0 in float32, their product is not."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, use_bias=False)])
    model.compile(loss="mse")
    clip = 1e-3
    sums = sums_of(model, (4,), clip)
    x = np.full((1, 4), x_scale, "float32")
    for y_scale in (1e15, 1e17, 1e18, 3e18, 1e19):
        y = np.full((1, 2), y_scale, "float32")
        assert np.linalg.norm(sums(x, y, np.ones(1, bool))) <= clip
