"""Ways for examples to meet that an ordinary look at one lot does not show."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import tfdp

random = np.random.default_rng(0)
X = random.normal(size=(8, 3)).astype("float32")
Y = random.normal(size=(8, 1)).astype("float32")
IMAGES = random.normal(size=(8, 8, 8, 3)).astype("float32")


def fit(model, x=X, y=Y, loss="mse", **compile_arguments):
    optimizer = tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer=optimizer, loss=loss, **compile_arguments)
    model.fit(x, y, batch_size=4, verbose=0)


def stack(*parts, shape=(3,)):
    return keras.Sequential([keras.Input(shape), *parts, layers.Dense(1)])


class SubtractsTheFirst(layers.Layer):
    def call(self, x):
        return x - x[:1]


class WeighsByPlace(layers.Layer):
    def call(self, x):
        return x * (1 + tf.cast(tf.range(tf.shape(x)[0]), tf.float32)[:, None])


class MixesAFiftieth(layers.Layer):
    def call(self, x):
        return x - 0.02 * ops.mean(x, 0, keepdims=True)


class MixesByAWeight(layers.Layer):
    """The weight is 0 at the start."""

    def __init__(self, kind, **kwargs):
        super().__init__(**kwargs)
        self.gate = tf.Variable(0.0, trainable=False) if kind == "untracked" else None
        self.kind = kind

    def build(self, shape):
        if self.gate is None:
            self.gate = self.add_weight(shape=(), initializer="zeros", trainable=self.kind == "trainable")

    def call(self, x):
        return x + self.gate * ops.mean(x, 0, keepdims=True)


class KeepsAMean(layers.Layer):
    def __init__(self, how, **kwargs):
        super().__init__(**kwargs)
        self.how, self.state = how, tf.Variable(tf.zeros([1, 3]), trainable=False)

    def call(self, x, training=False):
        if not training:
            return x - self.state
        mean = tf.reduce_mean(x, 0)[None]
        if self.how == "scatter":
            self.state.scatter_nd_add([[0]], mean)
        else:
            tf.raw_ops.AssignVariableOp(resource=self.state.handle, value=mean)
        return x


class ReadsAMetric(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mean = keras.metrics.Mean()

    def call(self, x, training=False):
        out = x - self.mean.result()
        if training:
            self.mean.update_state(x)
        return out


@pytest.mark.parametrize("kind", [SubtractsTheFirst, WeighsByPlace])
def test_random_draws_do_not_hide_what_a_place_in_the_lot_does(kind):
    with pytest.raises(ValueError, match=r"leaky.*mixes examples"):
        fit(stack(kind(name="leaky"), layers.Dropout(0.1)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [layers.MixUp, layers.CutMix])
def test_layers_that_mix_at_random_are_refused_whatever_the_seed(kind, seed):
    keras.utils.set_random_seed(seed)
    with pytest.raises(ValueError, match="mixes examples"):
        fit(stack(kind(), layers.Flatten(), shape=(8, 8, 3)), x=IMAGES)


@pytest.mark.parametrize("kind", ["trainable", "frozen", "untracked"])
def test_a_gate_that_is_closed_at_the_start_does_not_hide_mixing(kind):
    model = stack(layers.Dense(4), MixesByAWeight(kind, name="leaky"))
    model.layers[-1].kernel.assign(np.zeros((4, 1)))
    with pytest.raises(ValueError, match=r"leaky.*mixes examples"):
        fit(model)


def test_low_precision_does_not_hide_a_little_mixing():
    half = "mixed_bfloat16"
    model = stack(layers.Dense(8, activation="tanh", dtype=half), MixesAFiftieth(dtype=half))
    with pytest.raises(ValueError, match="mixes examples"):
        fit(model)


@pytest.mark.parametrize("how", ["scatter", "raw"])
def test_statistics_kept_past_keras_are_refused_before_they_moved(how):
    model = stack(KeepsAMean(how, name="leaky"))
    with pytest.raises(ValueError, match=r"leaky|keeps"):
        fit(model)
    np.testing.assert_array_equal(model.layers[0].state, np.zeros((1, 3)))


def test_a_metric_may_not_carry_records_from_lot_to_lot():
    with pytest.raises(ValueError, match="metric"):
        fit(stack(ReadsAMetric()))


def test_a_model_whose_attribute_changed_is_checked_again():
    class Centers(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense, self.center = layers.Dense(1), False

        def call(self, x):
            return self.dense(x - ops.mean(x, 0, keepdims=True) if self.center else x)

    model = Centers()
    fit(model)
    model.center = True
    with pytest.raises(ValueError, match="mixes examples"):
        fit(model)


def test_a_regulariser_over_the_lot_is_refused():
    def sparse(activations):
        rate = ops.mean(ops.sigmoid(activations), 0)
        return ops.sum(rate * ops.log(rate / 0.05))

    with pytest.raises(ValueError, match="regulariser"):
        fit(stack(layers.Dense(4, activity_regularizer=sparse)))


@pytest.mark.parametrize("arguments", [{}, {"run_eagerly": True}, {"jit_compile": True}])
def test_random_layers_that_keep_examples_apart_are_accepted(arguments):
    parts = [layers.SpatialDropout2D(0.3), layers.GaussianNoise(0.1), layers.Flatten()]
    model = stack(*parts, shape=(8, 8, 3))
    fit(model, x=IMAGES, **arguments)
    assert model.optimizer.ledger.steps == 2


def test_a_loss_that_flattens_tokens_is_taken_an_example_at_a_time():
    tokens = keras.Input((6,), dtype="int32")
    model = keras.Model(tokens, layers.Dense(7, activation="softmax")(layers.Embedding(7, 4)(tokens)))

    def flat(y, p):
        return keras.losses.sparse_categorical_crossentropy(ops.reshape(y, (-1,)), ops.reshape(p, (-1, 7)))

    fit(model, x=random.integers(0, 7, (8, 6)), y=random.integers(0, 7, (8, 6)), loss=flat)
    assert model.optimizer.ledger.steps == 2
