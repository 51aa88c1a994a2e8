"""Uses of a weight beside its own layer's: what counts as one, and that TensorFlow's variable class is left as it was."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from tests.brute_force import brute_force
from tfdp.data import PoissonBatches
from tfdp.gradients import lot_gradients, prove, reads

L, ops = keras.layers, keras.ops
METHODS = ("_read_variable_op", "sparse_read", "gather_nd")


class Reads(keras.Model):
    def __init__(self, use):
        super().__init__()
        self.hidden, self.head, self.use = L.Dense(4, "tanh"), L.Dense(1), use

    def call(self, x):
        h = self.hidden(x)
        return self.head(h + self.use(self.hidden.kernel, x))


def proven(use):
    model = Reads(use)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(8, 3)).astype("f4"), random.normal(size=(8, 1)).astype("f4")
    model(x)
    model.compile(optimizer="sgd", loss="mse")
    lots = PoissonBatches(x, y, batch_size=4)
    plan = prove(model, lots.record_spec, lots.head(8), 16)
    return model, plan, sorted(line.partition(": ")[2] for line in plan.describe())


def test_a_weight_that_the_loss_does_not_depend_on_elsewhere_keeps_its_rule():
    assert proven(lambda kernel, x: ops.stop_gradient(ops.norm(kernel)))[2] == ["dense", "dense"]


def test_a_use_behind_data_that_are_never_made_up_is_followed():
    model, plan, served = proven(lambda kernel, x: ops.where(x[:, :1] > 1e9, kernel[0], 0.0))
    assert served == ["dense", "dense"]
    x, y = np.array([[2e9, 1, 1], [1, 1, 1]], "f4"), np.ones((2, 1), "f4")
    spec = [tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1])]
    found = tf.function(lambda x, y: lot_gradients(model, plan, x, y).gradients.materialise(), input_signature=spec)(
        x, y
    )
    flat = np.concatenate([np.reshape(g, (2, -1)) for g in found], 1)
    truth = brute_force(model, x, y).gradients
    np.testing.assert_allclose(flat, truth, atol=1e-4 * np.linalg.norm(truth))


def test_a_use_that_can_not_be_followed_moves_the_weight_alone():
    """In a loop. The bias of the layer stays with the layer's rule."""

    def looped(kernel, x):
        return tf.while_loop(
            lambda i, h: i < 2, lambda i, h: (i + 1, h * kernel[0]), [0, ops.ones_like(x[:, :1]) * ops.ones(4)]
        )[1]

    assert proven(looped)[2] == ["dense", "dense", "universal rule (map)"]


def originals() -> list:
    return [getattr(BaseResourceVariable, name) for name in METHODS]


def test_who_leaves_last_puts_the_methods_back():
    model, before = keras.Sequential([keras.Input((3,)), L.Dense(1)]), originals()
    first, second = (reads.noted_reads(model, lambda variable, value: None) for _ in range(2))
    first.__enter__(), second.__enter__()
    assert originals() != before
    first.__exit__(None, None, None)
    assert originals() != before
    second.__exit__(None, None, None)
    assert originals() == before


def test_they_are_put_back_where_tracing_fails():
    before = originals()
    with pytest.raises(ZeroDivisionError), reads.noted_reads(keras.Sequential([keras.Input((3,))]), None):
        raise ZeroDivisionError
    assert originals() == before
