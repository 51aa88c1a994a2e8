"""Common layers are served by the rule of their family, not by a slower one: what the self-proof settles on."""

import keras
import numpy as np
import pytest

from tfdp.data import PoissonBatches
from tfdp.gradients import prove

L = keras.layers
SEQUENCES, IMAGES, TOKENS = (5, 3), (8, 8, 2), (6,)

LAYERS = {
    "LSTM": (SEQUENCES, lambda: L.LSTM(4), "recurrent"),
    "LSTM without bias, unrolled": (SEQUENCES, lambda: L.LSTM(4, use_bias=False, unroll=True), "recurrent"),
    "LSTM backwards": (SEQUENCES, lambda: L.LSTM(4, go_backwards=True), "recurrent"),
    "LSTM, other activations": (SEQUENCES, lambda: L.LSTM(4, "relu", "hard_sigmoid"), "recurrent"),
    "SimpleRNN": (SEQUENCES, lambda: L.SimpleRNN(4), "recurrent"),
    "GRU": (SEQUENCES, lambda: L.GRU(4), "gated_recurrent_unit"),
    "GRU, reset before": (SEQUENCES, lambda: L.GRU(4, reset_after=False), "gated_recurrent_unit"),
    "GRU without bias": (SEQUENCES, lambda: L.GRU(4, use_bias=False), "gated_recurrent_unit"),
    "both directions": (SEQUENCES, lambda: L.Bidirectional(L.GRU(4)), "gated_recurrent_unit"),
    "Conv2D": (IMAGES, lambda: L.Conv2D(3, 3, strides=2), "convolution"),
    "Conv1D": (SEQUENCES, lambda: L.Conv1D(3, 2, padding="causal"), "convolution"),
    "Conv2DTranspose": (IMAGES, lambda: L.Conv2DTranspose(3, 2), "transposed_convolution"),
    "DepthwiseConv2D": (IMAGES, lambda: L.DepthwiseConv2D(3), "depthwise_convolution"),
    "SeparableConv2D": (IMAGES, lambda: L.SeparableConv2D(3, 3), "separable_convolution"),
    "Dense": (SEQUENCES, lambda: L.Dense(4), "dense"),
    "Embedding": (TOKENS, lambda: L.Embedding(9, 4), "embedding"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_served_by_its_familys_rule(name):
    shape, layer, rule = LAYERS[name]
    model = keras.Sequential([keras.Input(shape), layer(), L.Flatten(), L.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    random = np.random.default_rng(0)
    x = random.integers(0, 9, (8, *shape)) if shape == TOKENS else random.normal(size=(8, *shape)).astype("f4")
    lots = PoissonBatches(x, random.normal(size=(8, 1)).astype("f4"), batch_size=4)
    served = prove(model, lots.record_spec, lots.head(8)).describe()
    assert all(line.endswith(f": {rule}") for line in served[:-1])
    assert served[-1].endswith(": dense")
