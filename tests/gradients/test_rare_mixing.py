"""Mixing that shows for some values, sizes or variables alone, and random numbers that are tied or cut down."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfdp
from tfdp.gradients import MixesExamples, StateAssigned, prove
from tfdp.gradients.state import KnownDraws

SPEC = (tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1]))


def compiled(*parts: layers.Layer, loss="mse") -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), *parts, layers.Dense(1)])
    model.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss=loss)
    return model


def mean_over(counts):
    """A loss that divides by how many labels of the lot count."""

    def loss(y, p):
        ok = tf.cast(counts(y), tf.float32)
        squares = tf.square(tf.where(ok > 0, y - p, 0.0)) * ok
        return squares[:, 0] * tf.cast(tf.size(ok), tf.float32) / tf.maximum(tf.reduce_sum(ok), 1.0)

    return loss


MISSING = {
    "-1": lambda y: tf.not_equal(y, -1.0),
    "NaN": lambda y: ~tf.math.is_nan(y),
    "below -900": lambda y: y > -900.0,
    "a number of the model's own": lambda y: tf.not_equal(y, 317.0),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_mean_over_the_float_labels_that_are_not_missing_is_refused(name):
    with pytest.raises(MixesExamples, match="loss"):
        prove(compiled(loss=mean_over(MISSING[name])), SPEC, lot_size=16)


def test_marks_are_tried_where_features_have_to_be_positive():
    def loss(y, p):
        ok = tf.cast(tf.not_equal(y, -100), tf.float32)
        squares = tf.square(tf.cast(y, tf.float32) - p) * ok
        return squares[:, 0] * tf.cast(tf.size(ok), tf.float32) / tf.maximum(tf.reduce_sum(ok), 1.0)

    model = compiled(layers.Lambda(lambda x: keras.ops.log(x)), loss=loss)
    with pytest.raises(MixesExamples, match="loss"):
        prove(model, (SPEC[0], tf.TensorSpec([None, 1], tf.int32)), lot_size=16)


class MovesTheMiddle(layers.Layer):
    """Once its weights, which are not trained, are not 0."""

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[1:], initializer="zeros", trainable=False)

    def call(self, x):
        rows = tf.shape(x)[0]
        return x + tf.one_hot([rows // 2], rows, axis=0) * self.scale


def test_a_layer_that_treats_one_place_in_its_own_way_at_other_weights_is_refused():
    with pytest.raises(MixesExamples):
        prove(compiled(MovesTheMiddle()), SPEC, lot_size=16)


class CentresGroups(layers.Layer):
    """Where the lot can be cut into groups of this size."""

    def __init__(self, group):
        super().__init__(name="leaky")
        self.group = group

    def call(self, x):
        rows = tf.shape(x)[0]

        def centred():
            groups = tf.reshape(x, [-1, self.group, 4])
            return tf.reshape(groups - tf.reduce_mean(groups, 1, keepdims=True), [-1, 4])

        return tf.ensure_shape(tf.cond(rows % self.group == 0, centred, lambda: tf.identity(x)), [None, 4])


@pytest.mark.parametrize(("group", "lot_size"), [(16, 20), (32, 50), (64, 250)])
def test_a_layer_that_mixes_where_the_size_divides_is_refused(group, lot_size):
    with pytest.raises(MixesExamples, match="leaky"):
        prove(compiled(CentresGroups(group)), SPEC, lot_size=lot_size)


class Switched(layers.Layer):
    """Centres the lot where a variable says so."""

    def __init__(self, variable, opens):
        super().__init__(name="leaky")
        self.variable, self.opens = variable, opens

    def call(self, x):
        return tf.where(self.opens(self.variable), x - tf.reduce_mean(x, 0), x)


@pytest.mark.parametrize("dtype", [tf.float32, tf.int64, tf.bool])
def test_a_variable_that_may_switch_mixing_on_is_tried(dtype):
    switch = tf.Variable(tf.zeros([], dtype), trainable=False)
    layer = Switched(switch, lambda v: tf.cast(v, tf.float32) > 0.5)
    with pytest.raises(MixesExamples, match="leaky"):
        prove(compiled(layer), SPEC, lot_size=16)
    assert not switch.numpy()


def test_a_layer_that_reads_a_count_of_the_optimizer_is_refused():
    layer = Switched(None, lambda v: tf.constant(False))
    model = compiled(layer)
    layer.opens = lambda v: model.optimizer.iterations.value >= 10**6
    with pytest.raises((StateAssigned, MixesExamples), match=r"optimizer|leaky"):
        model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, verbose=0)
    assert model.optimizer.ledger.steps == 0


class Draws(layers.Layer):
    """Adds normal numbers, whose seeds are made of the generator's."""

    def __init__(self, seeds):
        super().__init__(name="leaky")
        self.generator, self.made = keras.random.SeedGenerator(1), seeds

    def call(self, x):
        for seed, shape in self.made(self.generator.next(), tf.shape(x)[0]):
            x = x + tf.reduce_sum(tf.random.stateless_normal(shape, seed=seed)) * 1e-3
        return x


CUT_DOWN = {
    "a few values": lambda seed, rows: [(seed % 10, [rows, 4])],
    "one bit": lambda seed, rows: [(tf.bitwise.bitwise_and(seed, tf.ones([], seed.dtype)), [rows, 4])],
    "small numbers": lambda seed, rows: [(tf.cast(tf.cast(seed, tf.int8), tf.int32), [rows, 4])],
    "chosen": lambda seed, rows: [(tf.where(True, tf.constant([5, 5], seed.dtype), seed), [rows, 4])],
    "one seed, twice as many rows": lambda seed, rows: [(seed, [rows, 4]), (seed, [2 * rows, 4])],
}


@pytest.mark.parametrize("name", CUT_DOWN)
def test_seeds_that_are_cut_down_or_serve_draws_of_several_shapes_are_refused(name):
    with pytest.raises(KnownDraws, match="leaky"):
        prove(compiled(Draws(CUT_DOWN[name])), SPEC, lot_size=16)
