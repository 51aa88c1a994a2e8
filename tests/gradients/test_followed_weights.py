"""Weights that have no axis of examples where they are used: tables at constants, class tokens, scales, gates, biases of positions.

They are followed to where they meet the examples. No other layer leaves its rule, and no layer is run a second time.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.brute_force import brute_force
from tfdp.data import PoissonBatches
from tfdp.gradients import Rows, lot_gradients, prove
from tfdp.gradients.operations import own_gradients
from tfdp.gradients.rules.embedding import ids_and_gradients

L, ops = keras.layers, keras.ops
SIZE, STEPS, WIDTH = 6, 5, 4
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Weighted(L.Layer):
    """One weight of a shape, used by a function of the weight and the input."""

    def __init__(self, shape, use):
        super().__init__()
        self.shape, self.use = shape, use

    def build(self, input_shape):
        self.w = self.add_weight(shape=self.shape, initializer="random_normal")

    def call(self, x):
        return self.use(self.w, x)


def with_weight(shape, use, before=None):
    inputs = keras.Input((STEPS, WIDTH))
    h = L.Dense(WIDTH, "tanh")(inputs)
    h = Weighted(shape, use)(h if before is None else before(h))
    return keras.Model(inputs, L.Dense(1)(L.Flatten()(h)))


def class_token(w, x):
    return ops.concatenate([ops.broadcast_to(w, (ops.shape(x)[0], 1, WIDTH)), x], 1)


CASES |= {
    "positions": lambda: with_weight((STEPS, WIDTH), lambda w, x: x + w),
    "longer positions": lambda: with_weight((STEPS + 3, WIDTH), lambda w, x: x + ops.convert_to_tensor(w)[:STEPS]),
    "a scale": lambda: with_weight((WIDTH,), lambda w, x: x * w),
    "a gate": lambda: with_weight((), lambda w, x: x * ops.tanh(w)),
    "a class token": lambda: with_weight((1, 1, WIDTH), class_token),
    "a class token, tiled": lambda: with_weight((1, 1, WIDTH), lambda w, x: x + ops.tile(w, (ops.shape(x)[0], 1, 1))),
    "a matrix": lambda: with_weight((WIDTH, 3), lambda w, x: ops.matmul(x, w)),
    "a matrix of an equation": lambda: with_weight((WIDTH, 3), lambda w, x: ops.einsum("btd,de->bet", x, w)),
    "a kernel": lambda: with_weight((3, WIDTH, 2), lambda w, x: ops.conv(x, w, strides=2, padding="same")),
    "a standardised kernel": lambda: with_weight(
        (2, WIDTH, 2), lambda w, x: ops.conv(x, w - ops.mean(w, (0, 1), keepdims=True))
    ),
    "learned queries": lambda: with_weight(
        (3, WIDTH), lambda w, x: ops.matmul(ops.softmax(ops.matmul(w, ops.swapaxes(x, 1, 2))), x)
    ),
    "a softmax of weights": lambda: with_weight((STEPS, STEPS), lambda w, x: ops.matmul(ops.softmax(w)[None], x)),
    "a choice": lambda: with_weight((WIDTH,), lambda w, x: ops.where(x > 0, x, w)),
    "a table": lambda: with_weight(
        (7, WIDTH), lambda w, x: ops.take(w, ops.cast(ops.abs(x[:, :, 0]) * 6, "int32"), axis=0)
    ),
    "a table of unit length": lambda: with_weight(
        (STEPS, WIDTH), lambda w, x: x + ops.normalize(ops.convert_to_tensor(w), axis=-1)
    ),
    "used twice": lambda: with_weight((WIDTH,), lambda w, x: (x + w) * w),
    "windows": lambda: with_weight(
        (1, WIDTH), lambda w, x: ops.reshape(ops.reshape(x, (-1, 1, WIDTH)) * w, (-1, STEPS, WIDTH))
    ),
}


class Positions(L.Layer):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = L.Embedding(9, WIDTH), L.Embedding(STEPS + 2, WIDTH)

    def call(self, ids):
        return self.tokens(ids) + self.places(ops.arange(0, ops.shape(ids)[-1]))


@pytest.mark.parametrize("steps", [STEPS, None], ids=["", "length unknown"])
def test_a_table_that_is_looked_up_at_constants_keeps_its_rule(steps):
    inputs = keras.Input((steps,), dtype="int32")
    model = keras.Model(inputs, L.Dense(1)(L.GlobalAveragePooling1D()(L.Dense(3, "tanh")(Positions()(inputs)))))
    assert_exact(model, ["embedding", "embedding", "dense", "dense"], ids=True)


@pytest.mark.parametrize("name", CASES)
def test_a_weight_is_followed_to_where_it_meets_the_examples(name):
    assert_exact(CASES[name](), ["dense", "followed", "dense"])


class RealPart(L.Layer):
    def call(self, x):
        return ops.fft((x, ops.zeros_like(x)))[0]


@pytest.mark.parametrize("layer, rule", [(lambda: L.LSTM(3), "recurrent"), (RealPart, None)])
def test_a_weight_is_followed_where_its_way_to_the_loss_leaves_the_real_numbers(layer, rule):
    """Loops are given lists of tensors, Fourier transforms complex numbers."""
    inputs = keras.Input((STEPS, WIDTH))
    x = layer()(Weighted((WIDTH,), lambda w, x: x * w)(inputs))
    assert_exact(keras.Model(inputs, L.Dense(1)(L.Flatten()(x))), [one for one in ("followed", rule, "dense") if one])


def test_what_is_looked_up_beyond_a_table_stays_with_its_example():
    """XLA reads the last row for it."""
    table = tf.zeros([3, 2])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.int32)])
    def gradients(ids):
        read = tf.gather(table, ids).op
        d = tf.ones([tf.shape(ids)[0], 2, 2])
        own = own_gradients(read, read.inputs[0], read.inputs, d, tf.shape(ids)[0])
        return own, Rows(*ids_and_gradients(ids, d, 3, 2), (3, 2)).materialise()

    for found in gradients(np.asarray([[0, 3], [7, 1]], "int32")):
        np.testing.assert_array_equal(found[:, :, 0], [[1, 0, 1], [0, 1, 1]])


class Latents(keras.Model):
    """Layers that are called on weights alone, before they meet the examples."""

    def __init__(self):
        super().__init__()
        self.norm, self.queries, self.values, self.out = (
            L.LayerNormalization(),
            L.Dense(WIDTH),
            L.Dense(WIDTH),
            L.Dense(1),
        )

    def build(self, input_shape):
        self.latents = self.add_weight(shape=(3, WIDTH), initializer="random_normal")

    def call(self, x):
        q = self.queries(self.norm(self.latents[None]))
        v = self.values(x)
        return self.out(ops.mean(ops.matmul(ops.softmax(ops.matmul(q, ops.swapaxes(v, 1, 2))), v), 1))


def test_layers_that_are_called_on_weights_keep_their_rules():
    model = Latents()
    assert_exact(model, ["dense", "dense", "dense", "followed", "layer_normalization"])


def test_a_weight_that_others_read_is_followed_there_and_keeps_its_rule():
    class Tied(keras.Model):
        def __init__(self):
            super().__init__()
            self.table, self.hidden = L.Embedding(9, WIDTH), L.Dense(WIDTH, "tanh")

        def call(self, ids):
            return ops.matmul(self.hidden(self.table(ids)), ops.transpose(self.table.embeddings))

    assert_exact(Tied(), ["dense", "embedding"], ids=True)


@pytest.mark.parametrize("head", ["glorot_uniform", "zeros"])
def test_a_weight_in_a_loop_takes_no_other_along(head):
    """Whether its gradient shows at the first weights, or is 0 there."""

    class Looped(L.Layer):
        def build(self, input_shape):
            self.w = self.add_weight(shape=(WIDTH,), initializer="random_normal")

        def call(self, x):
            _, h = tf.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, tf.tanh(h * self.w)), [0, x])
            return h

    inputs = keras.Input((STEPS, WIDTH))
    outputs = L.Dense(1, kernel_initializer=head)(L.Flatten()(Looped()(L.Dense(WIDTH)(inputs))))
    served = assert_exact(keras.Model(inputs, outputs), None)
    assert served[0] == served[2] == "dense"
    assert served[1].startswith("universal rule")


def test_layers_that_draw_random_numbers_are_no_hindrance():
    """A layer with weights of its own that draws random numbers can't be run a second time; nothing is."""

    class Noisy(L.Layer):
        def __init__(self):
            super().__init__()
            self.drop = L.Dropout(0.5)

        def build(self, input_shape):
            self.w = self.add_weight(shape=(WIDTH,), initializer="random_normal")

        def call(self, x):
            return self.drop(x * self.w)

    inputs = keras.Input((STEPS, WIDTH))
    model = keras.Model(inputs, L.Dense(1)(L.Flatten()(Noisy()(L.Dense(WIDTH)(inputs)))))
    assert served_of(model, *data(model, False))[1] == ["dense", "followed", "dense"]


def data(model, ids):
    random = np.random.default_rng(0)
    x = random.integers(0, 9, (SIZE, STEPS)) if ids else random.normal(size=(SIZE, STEPS, WIDTH)).astype("f4")
    return x, random.normal(size=(SIZE, *model(x[:2]).shape[1:])).astype("f4")


def served_of(model, x, y):
    model.compile(optimizer="sgd", loss="mse")
    lots = PoissonBatches(x, y, batch_size=4)
    plan = prove(model, lots.record_spec, lots.head(6), 16)
    return plan, [line.partition(": ")[2] for line in plan.describe()]


def assert_exact(model, expected, ids=False):
    keras.utils.set_random_seed(0)
    x, y = data(model, ids)
    plan, served = served_of(model, x, y)
    assert expected is None or sorted(served) == sorted(expected)

    @tf.function(input_signature=[tf.TensorSpec([None, *a.shape[1:]], a.dtype) for a in (x, y)], autograph=False)
    def found(x, y):
        gradients = lot_gradients(model, plan, x, y).gradients
        return gradients.materialise(), gradients.squared_norms()

    gradients, squares = found(x, y)
    flat = np.concatenate([np.reshape(g, (SIZE, -1)) for g in gradients], 1)
    truth = brute_force(model, x, y)
    np.testing.assert_allclose(flat, truth.gradients, rtol=0, atol=1e-5 * np.linalg.norm(truth.gradients))
    np.testing.assert_allclose(np.sqrt(squares), truth.norms, rtol=1e-3)
    return served
