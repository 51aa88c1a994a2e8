"""Normalisation within one example, PReLU, and BatchNormalization in inference mode."""

import keras
import numpy as np
from keras import layers

from tests.zoo.cases import Case, case, representative


def normalised(draw, shape, *make, size=5):
    """Dense, the layers under test, Dense."""

    def model():
        width = shape[-1]
        return keras.Sequential(
            [
                layers.Input(shape),
                layers.Dense(width, "tanh"),
                *(m() for m in make),
                layers.Flatten(),
                layers.Dense(2),
            ]
        )

    return Case(model=model, x=draw.reals(size, *shape), y=draw.reals(size, 2), compile={"loss": "mse"})


@case
def layer_normalization_of_vectors(draw):
    return normalised(draw, (6,), layers.LayerNormalization)


@case
def layer_normalization_of_sequences(draw):
    return normalised(draw, (4, 6), layers.LayerNormalization, lambda: layers.LayerNormalization(axis=1))


@case
def layer_normalization_over_two_axes(draw):
    return normalised(draw, (3, 4), lambda: layers.LayerNormalization(axis=[1, 2], epsilon=1e-2))


@representative
@case
def layer_normalization_over_separated_axes(draw):
    """Axes 1 and 3 of a rank 4 input: scale and offset must be broadcast over the axis between."""
    return normalised(draw, (3, 2, 4), lambda: layers.LayerNormalization(axis=[1, 3]))


@case
def layer_normalization_without_scale_or_offset(draw):
    return normalised(
        draw,
        (4, 6),
        lambda: layers.LayerNormalization(scale=False),
        lambda: layers.LayerNormalization(center=False),
    )


@representative
@case
def group_normalization(draw):
    return normalised(
        draw,
        (3, 3, 6),
        lambda: layers.GroupNormalization(groups=2),
        lambda: layers.GroupNormalization(groups=-1, center=False),
    )


@case
def rms_normalization(draw):
    return normalised(draw, (4, 6), layers.RMSNormalization)


@case
def unit_normalization(draw):
    return normalised(draw, (4, 6), layers.UnitNormalization)


@case
def prelu_with_and_without_shared_axes(draw):
    return normalised(draw, (3, 3, 4), lambda: layers.PReLU(shared_axes=[1, 2]), layers.PReLU)


class SetStatistics(keras.initializers.Initializer):
    """Moving statistics as a trained model has them."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __call__(self, shape, dtype=None):
        return np.linspace(self.low, self.high, int(np.prod(shape))).reshape(shape).astype("float32")


def batch_normalization(**arguments):
    return layers.BatchNormalization(
        moving_mean_initializer=SetStatistics(-0.5, 0.5),
        moving_variance_initializer=SetStatistics(0.5, 2.0),
        **arguments,
    )


@case
def frozen_batch_normalization(draw):
    """`trainable=False` puts the layer in inference mode: fixed statistics, nothing mixed."""
    return normalised(draw, (3, 3, 4), lambda: batch_normalization(trainable=False))


@case
def batch_normalization_frozen_after_building(draw):
    def model():
        model = keras.Sequential([layers.Input((5,)), layers.Dense(6, "tanh"), batch_normalization(), layers.Dense(2)])
        model.layers[1].trainable = False
        return model

    return Case(model=model, x=draw.reals(6, 5), y=draw.reals(6, 2), compile={"loss": "mse"})


class InferenceModeInside(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(4, "tanh")
        self.normalisation = batch_normalization()
        self.head = layers.Dense(2)

    def call(self, x):
        return self.head(self.normalisation(self.hidden(x), training=False))


@case
def batch_normalization_called_in_inference_mode(draw):
    """`training=False` in a subclassed model's own call: fixed statistics, scale and offset are trained.

    In a functional model Keras replaces that `training=False` by the mode the model is called in.
    """
    return Case(model=InferenceModeInside, x=draw.reals(6, 3, 4), y=draw.reals(6, 3, 2), compile={"loss": "mse"})
