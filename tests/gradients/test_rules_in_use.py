"""Common layers are served by the rule of their family, not by a slower one: what the self-proof settles on."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from models.wavelet_cnn import colour_wavelet_cnn
from tfdp.data import PoissonBatches
from tfdp.gradients import prove
from tfdp.gradients.factored import OuterSum
from tfdp.gradients.forms import allowed
from tfdp.gradients.recording import recording
from tfdp.gradients.rules import find_rule

L = keras.layers
SEQUENCES, IMAGES, TOKENS, FILMS = (5, 3), (8, 8, 2), (6,), (3, 4, 4, 2)

LAYERS = {
    "LSTM": (SEQUENCES, lambda: L.LSTM(4), "recurrent"),
    "LSTM without bias, unrolled": (SEQUENCES, lambda: L.LSTM(4, use_bias=False, unroll=True), "recurrent"),
    "LSTM backwards": (SEQUENCES, lambda: L.LSTM(4, go_backwards=True), "recurrent"),
    "LSTM, other activations": (SEQUENCES, lambda: L.LSTM(4, "relu", "hard_sigmoid"), "recurrent"),
    "SimpleRNN": (SEQUENCES, lambda: L.SimpleRNN(4), "recurrent"),
    "GRU": (SEQUENCES, lambda: L.GRU(4), "recurrent"),
    "GRU, reset before": (SEQUENCES, lambda: L.GRU(4, reset_after=False), "recurrent"),
    "GRU without bias": (SEQUENCES, lambda: L.GRU(4, use_bias=False), "recurrent"),
    "RNN around a cell": (SEQUENCES, lambda: L.RNN(L.GRUCell(4)), "recurrent"),
    "LSTM with dropout": (SEQUENCES, lambda: L.LSTM(4, dropout=0.2), "recurrent"),
    "GRU with masks for its gates": (SEQUENCES, lambda: L.GRU(4, dropout=0.2, recurrent_dropout=0.2), "recurrent"),
    "stacked cells": (SEQUENCES, lambda: L.RNN([L.LSTMCell(3), L.SimpleRNNCell(4, dropout=0.2)]), "recurrent"),
    "ConvLSTM1D, strides": (IMAGES, lambda: L.ConvLSTM1D(3, 3, strides=2), "convolutional_lstm"),
    "ConvLSTM2D backwards": (
        FILMS,
        lambda: L.ConvLSTM2D(2, 2, padding="same", go_backwards=True),
        "convolutional_lstm",
    ),
    "EinsumDense of any rank": (SEQUENCES, lambda: L.EinsumDense("...x,xy->...y", 4), "einsum_dense"),
    "both directions": (SEQUENCES, lambda: L.Bidirectional(L.GRU(4)), "recurrent"),
    "both directions, sequences": (SEQUENCES, lambda: L.Bidirectional(L.LSTM(4, return_sequences=True)), "recurrent"),
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
    served = prove(model, lots.record_spec, lots.head(8), 16).describe()
    assert all(line.endswith(f": {rule}") for line in served[:-1])
    assert served[-1].endswith(": dense")


FILM_OPTIONS = {
    "strides": {"strides": 2, "padding": "same"},
    "dilation, other activations": {"dilation_rate": 2, "activation": "relu", "recurrent_activation": "hard_sigmoid"},
    "no bias, unrolled": {"use_bias": False, "unroll": True},
    "backwards, sequences, states": {"go_backwards": True, "return_sequences": True, "return_state": True},
}


@pytest.mark.parametrize("options", FILM_OPTIONS.values(), ids=FILM_OPTIONS)
def test_a_film_layer_puts_out_with_its_rule_what_it_puts_out_without(options):
    """The self-proof differentiates what the rule's loop makes of the records: that must be what Keras's makes."""
    layer = L.ConvLSTM2D(2, 2, bias_initializer="random_normal", **options)
    films = np.random.default_rng(0).normal(size=(3, *FILMS)).astype("f4")
    expected = keras.tree.flatten(layer(films))
    with tf.GradientTape() as tape, recording(layer, {id(layer): find_rule(layer)}, tape.watch) as seen:
        found = keras.tree.flatten(layer(films))
    assert [call.rule.name for call in seen.sites()] == ["convolutional_lstm"]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_a_film_that_goes_on_from_anothers_state_keeps_its_rule():
    first, second = (L.ConvLSTM2D(2, 2, padding="same", return_state=True) for _ in range(2))
    inputs = keras.Input(FILMS)
    _, *state = first(inputs)
    outputs = L.Dense(1)(L.Flatten()(second(inputs, initial_state=state)[0]))
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="sgd", loss="mse")
    random = np.random.default_rng(0)
    lots = PoissonBatches(random.normal(size=(8, *FILMS)), random.normal(size=(8, 1)), batch_size=4)
    served = [line.partition(": ")[2] for line in prove(model, lots.record_spec, lots.head(8), 16).describe()]
    assert served == ["convolutional_lstm", "convolutional_lstm", "dense"]


def test_a_rule_that_does_not_run_is_replaced_alone():
    """No rule of products knows a diagonal: that kernel is followed instead, the others keep their rules."""
    diagonal = L.EinsumDense("abb,bc->ac", output_shape=2)
    model = keras.Sequential([keras.Input((4, 3)), L.Conv1D(4, 1), L.Dense(4), diagonal, L.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    random = np.random.default_rng(0)
    lots = PoissonBatches(random.normal(size=(8, 4, 3)), random.normal(size=(8, 1)), batch_size=4)
    served = [line.partition(": ")[2] for line in prove(model, lots.record_spec, lots.head(8), 16).describe()]
    assert served == ["convolution", "dense", "followed", "dense"]


@pytest.mark.parametrize(
    ("factor", "allowance", "kept"),
    [(1.0, 1.008, True), (1.0, 1.03, False), (1.003, 1.0, False), (0.997, 1.0, False), (0.995, 1.006, False)],
    ids=["allows a little", "allows much", "too large", "too small", "too small for what it allows"],
)
def test_a_rule_may_allow_a_little_for_rounding_in_norms_that_are_right(factor, allowance, kept, monkeypatch):
    exact = OuterSum.squared_norms

    def patched(self, stretch=None):
        return (factor * (1 + allowed(allowance - 1))) ** 2 * exact(self, stretch)

    monkeypatch.setattr(OuterSum, "squared_norms", patched)
    model = keras.Sequential([keras.Input((5,)), L.Dense(3)])
    model.compile(optimizer="sgd", loss="mse")
    random = np.random.default_rng(0)
    lots = PoissonBatches(random.normal(size=(8, 5)), random.normal(size=(8, 3)), batch_size=4)
    (served,) = prove(model, lots.record_spec, lots.head(8), 16).describe()
    assert served.endswith(": dense") == kept


def test_filters_of_which_many_terms_cancel_are_served_by_the_convolutions_rule():
    keras.utils.set_random_seed(0)
    model = colour_wavelet_cnn()
    model.compile(optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images = np.random.default_rng(0).random((8, 32, 32, 3)).astype("float32")
    lots = PoissonBatches(images, np.arange(8), batch_size=4)
    rules = [line.partition(": ")[2] for line in prove(model, lots.record_spec, lots.head(8), 16).describe()]
    assert rules == ["convolution", "convolution", "convolution", "dense"]
