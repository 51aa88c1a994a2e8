"""Models that were made for lots of one size are told so, before anything has moved."""

import keras
import pytest
from keras import layers, ops

from tests.optimizers import tiny


class AddsRows(layers.Layer):
    def call(self, x):
        return x + ops.zeros((tiny.SIZE, 1))


class ReadsTheirNumber(layers.Layer):
    def call(self, x):
        return ops.reshape(x, (x.shape[0], 3))


@pytest.mark.parametrize("layer", [AddsRows, ReadsTheirNumber])
def test_what_runs_on_one_number_of_rows_is_refused_by_the_inputs_name(layer):
    x = layers.Input((3,), batch_size=tiny.SIZE, name="features")
    model = tiny.private(model=keras.Model(x, layers.Dense(1)(layer()(x))))
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=f"'features' has {tiny.SIZE}.*without batch_size="):
        tiny.train(model)
