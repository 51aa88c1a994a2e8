"""Rounding that differs with the size of a lot is not mixing, and hides none."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import tfdp
from tfdp.gradients import MixesExamples, prove
from tfdp.gradients.rounding import persisting

ROUGH = 3e-5
SPEC = (tf.TensorSpec([None, 4, 4, 3]), tf.TensorSpec([None, 1]))
IMAGE_SPEC = (tf.TensorSpec([None, 16, 16, 3]), tf.TensorSpec([None, 1]))


class Rounds(layers.Layer):
    """Stands for a kernel that rounds otherwise in lots of another size, only that float32's round more finely."""

    def call(self, x):
        count = tf.cast(tf.shape(x)[0], tf.float32)
        return x * (1 + ROUGH * tf.stop_gradient(tf.sin(1e3 * count * x)))


class AddsTheMean(layers.Layer):
    """Mixes what the examples are."""

    def __init__(self, share):
        super().__init__(name="leaky")
        self.share = share

    def call(self, x):
        return x + self.share * ops.mean(x, 0, keepdims=True)


class GradientGrowsWithTheLot(layers.Layer):
    """Mixes in the gradient alone, and there only by the number of examples."""

    def __init__(self, share):
        super().__init__(name="leaky")
        self.share = share

    def call(self, x):
        @tf.custom_gradient
        def identity(x):
            count = tf.cast(tf.shape(x)[0], tf.float32)
            return tf.identity(x), lambda d: d * (1 + self.share * (count - 1))

        return identity(x)


class GradientTakesInOthers(layers.Layer):
    """Mixes in the gradient alone: a little of every example's goes to the one before it."""

    def __init__(self, share):
        super().__init__(name="leaky")
        self.share = share

    def call(self, x):
        @tf.custom_gradient
        def identity(x):
            return tf.identity(x), lambda d: d + self.share * tf.roll(d, 1, 0)

        return identity(x)


def rough_network(*extra: layers.Layer) -> keras.Model:
    """Its rounding puts some ReLUs at their kinks."""
    keras.utils.set_random_seed(0)
    parts = [keras.Input((4, 4, 3))]
    for _ in range(4):
        parts += [layers.Conv2D(256, 1, use_bias=False), Rounds(), layers.GroupNormalization(8), layers.ReLU()]
    return compiled(keras.Sequential([*parts, *extra, layers.GlobalAveragePooling2D(), layers.Dense(1)]))


def compiled(model: keras.Model) -> keras.Model:
    model.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
    return model


def movement(model: keras.Model) -> float:
    """How far an example's gradient in some weight moves, relatively, from a lot of one to one of four."""
    x = tf.constant(np.random.default_rng(20190).normal(size=(8, 4, 4, 3)), tf.float32)
    found = []
    for lot in (x[:1], x[:4]):
        with tf.GradientTape() as tape:
            own = model(lot)[0, 0]
        found.append(tape.gradient(own, [v.value for v in model.trainable_variables]))
    return max(float(tf.norm(a - b) / tf.norm(a)) for a, b in zip(*found, strict=True))


def test_units_at_their_kinks_are_not_mixing():
    model = rough_network()
    assert movement(model) > 1e-2
    prove(model, SPEC, lot_size=16)


@pytest.mark.parametrize("share", [1e-2, 1e-3])
@pytest.mark.parametrize("leak", [AddsTheMean, GradientGrowsWithTheLot, GradientTakesInOthers])
def test_units_at_their_kinks_do_not_hide_mixing(leak, share):
    with pytest.raises(MixesExamples):
        prove(rough_network(leak(share)), SPEC, lot_size=16)


def residual_network(padding: str, epsilon: float) -> keras.Model:
    def convolution(x, width, strides):
        if padding == "explicit":
            x = layers.ZeroPadding2D(1)(x)
        kind = "valid" if padding == "explicit" else padding
        x = layers.Conv2D(width, 3, strides=strides, padding=kind, use_bias=False)(x)
        return layers.GroupNormalization(16, epsilon=epsilon)(x)

    keras.utils.set_random_seed(0)
    image = keras.Input((16, 16, 3))
    x = layers.ReLU()(convolution(image, 32, 1))
    for width, strides in [(64, 2), (128, 2)]:
        inside = convolution(layers.ReLU()(convolution(x, width, strides)), width, 1)
        straight = x if strides == 1 else layers.Conv2D(width, 1, strides=strides)(x)
        x = layers.ReLU()(layers.Add()([inside, straight]))
    return compiled(keras.Model(image, layers.Dense(1)(layers.GlobalAveragePooling2D()(x))))


@pytest.mark.parametrize(("padding", "epsilon"), [("same", 1e-3), ("explicit", 1e-5)])
def test_residual_networks_are_not_refused(padding, epsilon):
    served = prove(residual_network(padding, epsilon), IMAGE_SPEC, lot_size=16).describe()
    assert not [line for line in served if "universal" in line or "whole model" in line]


def found_in(differences: list[np.ndarray]) -> list[int]:
    """What the rule says of one weight whose difference at the moved weights is this."""
    supply = iter(differences)
    return persisting(lambda number: contextlib.nullcontext(), lambda: [next(supply)])


def noise(size: float, number: int, length: int = 1000) -> np.ndarray:
    return size * np.random.default_rng(number).normal(size=length) / np.sqrt(length)


def test_a_kink_now_and_then_is_rounding():
    assert found_in([noise(50.0 if number % 3 == 0 else 0.01, number) for number in range(9)]) == []


def test_other_kinks_every_time_are_rounding():
    assert found_in([noise(5.0, number) for number in range(9)]) == []


@pytest.mark.parametrize("size", [0.0, 5.0, 50.0])
def test_what_is_the_same_every_time_persists_whatever_the_rounding(size):
    mixing = noise(10.0, 99)
    assert found_in([mixing + noise(size, number) for number in range(9)]) == [0]


def test_a_model_that_moves_wildly_is_not_cleared():
    assert found_in([noise(1000.0, number) for number in range(9)]) == [0]


def test_what_is_not_finite_is_not_cleared():
    assert found_in([np.full(3, np.nan) for _ in range(9)]) == [0]
