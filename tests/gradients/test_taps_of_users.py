"""A user's rule must leave what the layer gives as it is."""

import keras
import numpy as np
import pytest

import tfdp
from tfdp.data import PoissonBatches

L = keras.layers


class _Residual(L.Layer):
    """Its call does not end with its activation."""

    def __init__(self):
        super().__init__()
        self.activation = keras.activations.tanh

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return self.activation(x * self.w) + x


class _Scale(_Residual):
    def call(self, x):
        return self.activation(x * self.w)


def _product(call, d):
    return [(call.layer.w, tfdp.gradients.Materialised(d[0] * call.inputs, call.layer.w.shape))]


for _family in (_Residual, _Scale):
    tfdp.gradients.rule(_family, tap=tfdp.gradients.at_pre_activation)(_product)


def _plan(layer):
    model = keras.Sequential([keras.Input((3,)), layer, L.Dense(1)])
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    records = PoissonBatches(rng.normal(size=(8, 3)), rng.normal(size=(8, 1)), batch_size=8)
    return tfdp.gradients.prove(model, records.record_spec, records.head(8))


def test_a_tap_that_changes_the_layer_is_refused():
    with pytest.raises(ValueError, match="'_product' changes what the layer"):
        _plan(_Residual())


def test_a_tap_before_the_last_activation_is_taken():
    assert _plan(_Scale()).describe()[0].endswith("_product")
