"""Sample weights, class weights, masks, and losses that each example averages by itself."""

import keras
import numpy as np
from keras import layers

from tests.zoo.cases import Case, case, representative

OWN_MEAN = "each example takes the mean over its own unmasked tokens, Keras the mean over those of the whole lot"
OWN_WEIGHTS = "each example divides by its own sum of weights, Keras by that of the whole lot"
LENGTHS = (5, 2, 3, 1, 5, 4)


def perceptron(outputs, activation=None):
    return lambda: keras.Sequential([layers.Input((4,)), layers.Dense(5, "tanh"), layers.Dense(outputs, activation)])


@representative
@case
def sample_weights(draw):
    """One of them 0: that example has no gradient at all."""
    weights = draw.weights(6)
    weights[2] = 0.0
    return Case(
        model=perceptron(3),
        x=draw.reals(6, 4),
        y=draw.reals(6, 3),
        sample_weight=weights,
        compile={"loss": "mse"},
    )


@representative
@case
def class_weights(draw):
    """A class without a weight of its own counts 1."""
    return Case(
        model=perceptron(3, "softmax"),
        x=draw.reals(7, 4),
        y=np.array([0, 1, 2, 0, 1, 2, 2], dtype="int32"),
        compile={"loss": "sparse_categorical_crossentropy"},
        fit={"class_weight": {0: 0.2, 2: 3.0}},
    )


@case
def class_weights_of_one_hot_labels(draw):
    return Case(
        model=perceptron(3, "softmax"),
        x=draw.reals(7, 4),
        y=draw.one_hot(7, classes=3),
        compile={"loss": "categorical_crossentropy"},
        fit={"class_weight": {0: 0.2, 1: 1.0, 2: 3.0}},
    )


@case
def mean_with_sample_weight(draw):
    return Case(
        model=perceptron(3),
        x=draw.reals(6, 4),
        y=draw.reals(6, 3),
        sample_weight=draw.weights(6),
        compile={"loss": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")},
        differs_from_keras=OWN_WEIGHTS,
    )


@case
def mean_with_token_weights(draw):
    """Each example divides by the sum of its own token weights."""
    return Case(
        model=lambda: keras.Sequential([layers.Input((4, 3)), layers.Dense(5, "tanh"), layers.Dense(2)]),
        x=draw.reals(6, 4, 3),
        y=draw.reals(6, 4, 2),
        sample_weight=draw.weights(6, 4),
        compile={"loss": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")},
        differs_from_keras=OWN_WEIGHTS,
    )


@case
def token_weights(draw):
    """Weights of rank 2, and a loss that divides by the number of tokens."""
    return Case(
        model=lambda: keras.Sequential([layers.Input((4, 3)), layers.GRU(4, return_sequences=True), layers.Dense(2)]),
        x=draw.reals(6, 4, 3),
        y=draw.reals(6, 4, 2),
        sample_weight=draw.weights(6, 4),
        compile={"loss": "mse"},
    )


def tagger(*body, activation="softmax"):
    """Masked tokens in, a distribution for each token out."""

    def model():
        return keras.Sequential(
            [
                layers.Input((None,), dtype="int32"),
                layers.Embedding(7, 4, mask_zero=True),
                *(make() for make in body),
                layers.Dense(3, activation),
            ]
        )

    return model


@case
def masked_token_loss(draw):
    return Case(
        model=tagger(lambda: layers.LSTM(4, return_sequences=True)),
        x=draw.padded_ids(LENGTHS, vocabulary=7),
        y=draw.labels(6, 5, classes=3),
        compile={"loss": "sparse_categorical_crossentropy"},
        differs_from_keras=OWN_MEAN,
    )


@case
def masked_token_loss_without_recurrence(draw):
    """The mask travels through Dense and LayerNormalization, beside the logits softmax leaves behind."""
    return Case(
        model=tagger(lambda: layers.Dense(4, "tanh"), layers.LayerNormalization),
        x=draw.padded_ids(LENGTHS, vocabulary=7),
        y=draw.one_hot(6, 5, classes=3),
        compile={"loss": "categorical_crossentropy"},
        differs_from_keras=OWN_MEAN,
    )


@case
def masked_token_loss_with_an_empty_example(draw):
    """One example is padding alone: its loss and gradient are 0, not 0/0."""
    return Case(
        model=tagger(lambda: layers.GRU(4, return_sequences=True)),
        x=draw.padded_ids((5, 2, 0, 1, 4, 3), vocabulary=7),
        y=draw.labels(6, 5, classes=3),
        compile={"loss": "sparse_categorical_crossentropy"},
        differs_from_keras=OWN_MEAN,
    )


@case
def masked_token_loss_with_sample_weights(draw):
    """The mask and one weight for each token together."""
    return Case(
        model=tagger(lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True)), activation=None),
        x=draw.padded_ids(LENGTHS, vocabulary=7),
        y=draw.labels(6, 5, classes=3),
        sample_weight=draw.weights(6, 5),
        compile={"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
        differs_from_keras=OWN_MEAN,
    )


@case
def ignored_class_in_token_loss(draw):
    """`ignore_class` masks within the loss."""
    labels = draw.labels(6, 5, classes=3)
    labels[:, 0] = 1  # at least one counted token in each example
    labels[np.arange(5)[None, :] >= np.array(LENGTHS)[:, None]] = -1
    return Case(
        model=lambda: keras.Sequential([layers.Input((5, 3)), layers.Conv1D(4, 2, padding="causal"), layers.Dense(3)]),
        x=draw.reals(6, 5, 3),
        y=labels,
        compile={"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)},
        differs_from_keras=OWN_MEAN,
    )


@case
def ignored_class_of_whole_examples(draw):
    """Examples of the ignored class have no gradient; Keras then averages over the others alone."""
    return Case(
        model=perceptron(3),
        x=draw.reals(7, 4),
        y=np.array([0, 1, 2, 0, 1, 2, 2], dtype="int32"),
        compile={"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=2)},
        differs_from_keras=OWN_MEAN,
    )
