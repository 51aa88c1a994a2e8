"""Ways for examples to meet that an ordinary look at one lot does not show."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import tfdp
from tests.gradients.neighbours import proved

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


# On the way back.

D = 6
FEATURES = random.normal(size=(16, D)).astype("float32")
CLASSES = random.integers(0, 3, 16).astype("int32")
CROSSENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Backwards(layers.Layer):
    """Hands on what it is given, and changes the gradient on its way back."""

    def __init__(self, change, **kwargs):
        super().__init__(**kwargs)
        self.change = change

    def call(self, x):
        @tf.custom_gradient
        def unchanged(x):
            return tf.identity(x), self.change

        return unchanged(x)


def averaged(dy):
    return dy - 0.5 * tf.reduce_mean(dy, 0, keepdims=True)


def normalised(dy):
    return dy / (1e-6 + tf.maximum(1.0, tf.norm(dy)))


LOOKS_AT_ALL = {f"clip by norm {limit:g}": lambda dy, c=limit: tf.clip_by_norm(dy, c) for limit in (2, 5, 10, 1e6)}
LOOKS_AT_ALL |= {
    "clip by global norm": lambda dy: tf.clip_by_global_norm([dy], 5.0)[0][0],
    "normalised": normalised,
    "averaged": averaged,
    "by the largest": lambda dy: dy / (1.0 + tf.reduce_max(tf.abs(dy))),
}


@pytest.mark.parametrize("name", LOOKS_AT_ALL)
def test_gradients_that_look_at_the_whole_lot_are_refused(name):
    model = stack(layers.Dense(8, "tanh"), Backwards(LOOKS_AT_ALL[name], name="leaky"), shape=(D,))
    with pytest.raises(ValueError, match=r"'leaky'.*mixes examples"):
        fit(model, FEATURES, 3 + FEATURES[:, :1])


@pytest.mark.parametrize(
    "change", [lambda dy: tf.clip_by_norm(dy, 5.0, axes=[1]), lambda dy: tf.clip_by_value(dy, -1, 1), lambda dy: -dy]
)
def test_gradients_changed_an_example_at_a_time_are_accepted(change):
    model = stack(layers.Dense(8, "tanh"), Backwards(change), shape=(D,))
    fit(model, FEATURES, 3 + FEATURES[:, :1])
    assert model.optimizer.ledger.steps == 4


# What few or ordinary records do not show.


def fit_classes(*parts, loss=CROSSENTROPY, x=FEATURES, y=CLASSES, batch_size=64):
    """Lots of 64 are expected, of records 16 times over."""
    model = keras.Sequential([keras.Input(x.shape[1:]), layers.Dense(8, "tanh"), *parts, layers.Dense(3)])
    model.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss=loss)
    times = batch_size // len(x) + 1
    x, y = np.concatenate([x] * times), np.concatenate([y] * times)
    model.fit(x, y, batch_size=batch_size, steps_per_epoch=1, epochs=1, verbose=0)
    assert model.optimizer.ledger.steps == 1


def each(y, p):
    return keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)


def per_counted(unmarked):
    """The sum over examples that are not marked, by how many these are."""

    def loss(y, p):
        ok = ops.cast(ops.logical_not(unmarked(y)), "float32")
        counted = ops.maximum(ops.sum(ok), 1.0)
        return each(ops.where(unmarked(y), 0, y), p) * ok * ops.cast(ops.size(ok), "float32") / counted

    return loss


def hard_examples(kept):
    def loss(y, p):
        found = each(y, p)
        least = tf.math.top_k(found, tf.minimum(tf.size(found), kept))[0][-1]
        return tf.where(found >= least, found, 0.0)

    return loss


LOSSES_THAT_MIX = {
    "ignored labels of -1": per_counted(lambda y: y < 0),
    "ignored labels of 255": per_counted(lambda y: ops.equal(y, 255)),
    "hard examples, 16 kept": hard_examples(16),
    "hard examples, 8 kept": hard_examples(8),
    "hard examples, 40 kept": hard_examples(40),
    "by the lot's largest": lambda y, p: each(y, p) / (1 + ops.max(ops.abs(p))),
}


@pytest.mark.parametrize("name", LOSSES_THAT_MIX)
def test_losses_that_mix_for_marked_or_for_many_examples_are_refused(name):
    with pytest.raises(ValueError, match=r"loss of the model.*mixes examples.*mean over examples"):
        fit_classes(loss=LOSSES_THAT_MIX[name])


class TopOfTheLot(layers.Layer):
    """Lets the eight rows with the largest values through."""

    def call(self, x):
        score = tf.reduce_sum(x, -1)
        least = tf.math.top_k(score, tf.minimum(tf.size(score), 8))[0][-1]
        return tf.where(score[:, None] >= least, x, 0.0)


class ExpertsOfACapacity(layers.Layer):
    """Two experts; each takes at most half of the lot or 8, the rest passes by."""

    def build(self, shape):
        self.gate = self.add_weight(shape=(shape[-1], 2), initializer="glorot_uniform")
        self.experts = self.add_weight(shape=(2, shape[-1], shape[-1]), initializer="glorot_uniform")

    def call(self, x):
        chances = tf.nn.softmax(x @ self.gate)
        chosen = tf.one_hot(tf.argmax(chances, -1), 2)
        capacity = tf.maximum(8.0, 0.5 * tf.cast(tf.shape(x)[0], tf.float32))
        taken = chosen * tf.cast(tf.cumsum(chosen, 0) * chosen <= capacity, tf.float32)
        return x + tf.reduce_sum(tf.einsum("bi,eij->bej", x, self.experts) * (taken * chances)[..., None], 1)


class MeanOfManyRows(layers.Layer):
    def call(self, x):
        rows = tf.shape(x)[0]
        return tf.cond(rows >= 16, lambda: x - tf.reduce_mean(x, 0, keepdims=True), lambda: tf.identity(x))


class PlacesFromEight(layers.Layer):
    def call(self, x):
        place = tf.range(tf.shape(x)[0])
        return x * tf.where(place >= 8, tf.cast(place, tf.float32) / 8, 1.0)[:, None]


class WhereAllAreAlike(layers.Layer):
    """Mixes if all rows of the lot are equal."""

    def call(self, x):
        alike = tf.reduce_all(tf.equal(x, x[:1]))
        return tf.where(alike, x / tf.cast(tf.shape(x)[0], tf.float32), x)


class OnlyTheFirstOfEqualRows(layers.Layer):
    def call(self, x):
        equal = tf.reduce_all(tf.equal(x[:, None], x[None]), -1)
        seen_before = tf.reduce_any(tf.linalg.band_part(equal, -1, 0) & ~tf.eye(tf.shape(x)[0], dtype=tf.bool), 1)
        return tf.where(seen_before[:, None], 0.0, x)


class AFaintMean(layers.Layer):
    def call(self, x):
        return x + 1e-4 * tf.reduce_mean(x, 0, keepdims=True)


class ByTheLargest(layers.Layer):
    def call(self, x):
        largest = tf.reduce_max(tf.abs(x))
        return tf.where(largest > 1e3, x / largest, x)


LAYERS_THAT_MIX = (TopOfTheLot, ExpertsOfACapacity, MeanOfManyRows, PlacesFromEight, AFaintMean)
LAYERS_THAT_MIX += (WhereAllAreAlike, OnlyTheFirstOfEqualRows)


@pytest.mark.parametrize("kind", LAYERS_THAT_MIX)
def test_layers_that_mix_in_lots_of_some_kind_are_refused(kind):
    keras.utils.set_random_seed(0)  # where mixing is faint, weights decide in which layer it is seen first
    with pytest.raises(ValueError, match=r"'leaky'.*mixes examples.*function of one example"):
        fit_classes(kind(name="leaky"))


def test_a_layer_that_mixes_beside_an_outlier_is_refused():
    with pytest.raises(ValueError, match=r"'leaky'.*mixes examples"):
        model = stack(ByTheLargest(name="leaky"), shape=(D,))
        fit(model, FEATURES, FEATURES[:, :1])


# Losses over tokens.

TOKENS = random.integers(0, 12, (16, 5)).astype("int32")
MARKED = np.where(random.random((16, 5)) < 0.3, TOKENS, -100).astype("int32")
MARKED[:, 0] = TOKENS[:, 0]


class TokenHead(layers.Layer):
    """The end of a masked language model: labels of -100 are not counted. By what it divides, says ``mean``."""

    def __init__(self, mean, **kwargs):
        super().__init__(**kwargs)
        self.mean, self.head = mean, layers.Dense(12)

    def call(self, inputs):
        hidden, labels = inputs
        logits = self.head(hidden)
        ok = tf.cast(labels != -100, tf.float32)
        self.add_loss(self.mean(each(tf.where(labels == -100, 0, labels), logits) * ok, ok))
        return logits


def token_model(mean):
    tokens, labels = keras.Input((5,), dtype="int32"), keras.Input((5,), dtype="int32")
    hidden = layers.Dense(6, "tanh")(layers.Embedding(12, 4)(tokens))
    model = keras.Model([tokens, labels], TokenHead(mean, name="leaky")([hidden, labels]))
    model.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss=None)
    return model


def over_all_tokens(losses, ok):
    return tf.reduce_sum(losses) / (tf.reduce_sum(ok) + 1e-5)


def over_each_examples_tokens(losses, ok):
    return tf.reduce_mean(tf.reduce_sum(losses, 1) / (tf.reduce_sum(ok, 1) + 1e-5))


def test_a_mean_over_the_lots_marked_tokens_is_refused():
    """The usual form of masked language models: a record with many labels moved the sum by 27.96 clips."""
    with pytest.raises(ValueError, match=r"add_loss \(by 'leaky'\).*mixes examples.*mean"):
        token_model(over_all_tokens).fit([TOKENS, MARKED], batch_size=8, epochs=1, verbose=0)


def test_a_mean_over_each_examples_marked_tokens_is_accepted():
    model = token_model(over_each_examples_tokens)
    model.fit([TOKENS, MARKED], batch_size=8, epochs=1, verbose=0)
    assert model.optimizer.ledger.steps == 2


def tokens_to_logits(loss):
    parts = [keras.Input((5,), dtype="int32"), layers.Embedding(12, 4), layers.Dense(12)]
    model = keras.Sequential(parts)
    model.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss=loss)
    return model


def test_masked_tokens_through_sample_weights_are_accepted():
    model = tokens_to_logits(CROSSENTROPY)
    weights = (MARKED != -100).astype("float32")
    model.fit(TOKENS, np.maximum(MARKED, 0), sample_weight=weights, batch_size=8, epochs=1, verbose=0)
    assert model.optimizer.ledger.steps == 2


@pytest.mark.parametrize("ignored", [-1, 255, -100])
def test_a_loss_of_kerass_that_ignores_a_class_is_accepted(ignored):
    model = tokens_to_logits(keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored))
    model.fit(TOKENS, np.where(MARKED == -100, ignored, MARKED), batch_size=8, epochs=1, verbose=0)
    assert model.optimizer.ledger.steps == 2


def masked_each(y, p):
    """Marked tokens count nothing, and what is divided by is of one example."""
    ok = ops.cast(ops.not_equal(y, -100), "float32")
    return tf.reduce_sum(each(ops.where(ops.equal(y, -100), 0, y), p) * ok, -1) / tf.maximum(tf.reduce_sum(ok, -1), 1.0)


def test_a_vector_loss_over_each_examples_marked_tokens_is_accepted():
    model = tokens_to_logits(masked_each)
    model.fit(TOKENS, MARKED, batch_size=8, epochs=1, verbose=0)
    assert model.optimizer.ledger.steps == 2


# Refusals are our own.


class AllPairs(layers.Layer):
    """Logits of every row against every row, as contrastive models have them."""

    def call(self, x):
        return tf.matmul(x, x, transpose_b=True)


def in_batch(y, p):
    return keras.losses.sparse_categorical_crossentropy(tf.range(tf.shape(p)[0]), p, from_logits=True)


def pairs_in_the_loss(y, p):
    return in_batch(y, tf.matmul(p, p, transpose_b=True))


PAIRS = {
    "logits of a layer": (lambda: [layers.Dense(4), AllPairs(name="leaky")], in_batch, "leaky"),
    "logits of a layer, then more": (lambda: [AllPairs(name="leaky"), layers.Activation("tanh")], in_batch, "leaky"),
    "labels of places": (lambda: [layers.Dense(4), AllPairs(name="leaky")], CROSSENTROPY, "leaky"),
    "in the loss": (lambda: [layers.Dense(4)], pairs_in_the_loss, "loss"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_models_over_pairs_are_refused_in_words_of_our_own(name):
    parts, loss, culprit = PAIRS[name]
    model = keras.Sequential([keras.Input((D,)), layers.Dense(6), *parts()])
    model.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss=loss)
    labels = np.arange(16) if loss is CROSSENTROPY else np.full((16, 1), 7654321.0, "float32")
    with pytest.raises(ValueError, match=culprit) as refusal:
        model.fit(np.full_like(FEATURES, 7654321.0), labels, batch_size=16, epochs=1, verbose=0)
    said = str(refusal.value)
    assert type(refusal.value).__module__.startswith("tfdp.")
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None or refusal.value.__suppress_context__
    for foreign in ("Traceback", "Detected at node", "{{", "Op:", "7654321", "7.65"):
        assert foreign not in said
    assert "example" in said and any(cure in said for cure in ("Look for", "Make it", "needs a loss"))
    assert model.optimizer.ledger.steps == 0


class AddsSquares(layers.Layer):
    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1], 2), initializer="zeros")

    def call(self, x):
        means = ops.matmul(x, self.w)
        self.add_loss(ops.sum(ops.square(means)))
        return means


def test_an_added_sum_that_is_0_at_the_start_is_not_taken_for_a_mean():
    model = stack(AddsSquares())
    model.compile(optimizer="sgd", loss="mse")
    assert proved(model, X, Y).shares == ["sum"]
