"""A network of which every layer is trained, from wavelets on: a scattering network (`models/scattering.py`) whose filters may learn.

It starts from what is known of images before any record is seen. Two layers of 16 filters each hold 2,080 numbers to put noise on.
"""

import keras
import numpy as np
from keras import layers, ops

from models.scattering import morlet

ORIENTATIONS, WIDTH = 8, 32


@keras.saving.register_keras_serializable("models")
class Wavelets(keras.initializers.Initializer):
    """Complex filters that start as wavelets: their real parts, then their imaginary ones.

    They are 8 x 8 pixels wide (the last row and column start at 0), for images of which the squares of 2 x 2 pixels were made colours: the shape
    is (4, 4, 4, 2 orientations).

    Args:
        norm: of each of both parts, on average.
    """

    def __init__(self, norm: float = 1.0):
        self.norm = norm

    def get_config(self):
        return {"norm": self.norm}

    def __call__(self, shape, dtype=None, **kwargs):
        waves = morlet(shape[-1] // 2, scale=0)
        filters = np.concatenate([waves.real, waves.imag], axis=-1)
        filters = np.pad(self.norm * filters / np.sqrt((filters**2).sum((0, 1)).mean()), ((0, 1), (0, 1), (0, 0)))
        squares = np.transpose(np.reshape(filters, (4, 2, 4, 2, -1)), (0, 2, 1, 3, 4))
        return ops.convert_to_tensor(np.reshape(squares, shape), dtype or "float32")


@keras.saving.register_keras_serializable("models")
class Modulus(layers.Layer):
    """Of complex maps, the first half of which are real parts and the second half imaginary ones; smooth at 0."""

    def call(self, parts):
        real, imaginary = ops.split(parts, 2, axis=-1)
        return ops.sqrt(ops.square(real) + ops.square(imaginary) + 1e-4)


def wavelet_cnn(classes: int = 10) -> keras.Model:
    """Grey images of 28 x 28."""
    return _network((28, 28, 1), classes, norm=1.0, name="wavelet_cnn")


def colour_wavelet_cnn(classes: int = 10) -> keras.Model:
    """Colour images of 32 x 32. From wavelets of norm 1 on, three fifths of a squared gradient were the filters'; so a tenth is."""
    return _network((32, 32, 3), classes, norm=4.0, name="colour_wavelet_cnn")


def _network(shape: tuple[int, int, int], classes: int, norm: float, name: str) -> keras.Model:
    """Wavelets, moduli, wavelets, moduli, a convolution with tanh and a dense layer. Gives logits.

    Args:
        shape: of images, as high and as wide as multiples of 4.
        norm: of the wavelets. Of colour images their scale is divided out afterwards, so the gradient of filters k times as long is a k-th: they
            take less of the clip, and turn k^2 times slower. (Of grey ones a group of three features has averages and moduli in it.)
    """
    images = keras.Input(shape)
    maps = layers.Concatenate()([layers.AveragePooling2D(2)(images), _moduli(images, norm)])
    averages = layers.AveragePooling2D(3, strides=2, padding="same")(maps)
    features = layers.Concatenate()([averages, _moduli(maps, norm)])
    features = layers.GroupNormalization(features.shape[-1] // 3, epsilon=1e-5, center=False, scale=False)(features)
    hidden = layers.Conv2D(WIDTH, 3, activation="tanh")(features)
    hidden = layers.MaxPooling2D(2, strides=1)(hidden)
    return keras.Model(images, layers.Dense(classes)(layers.Flatten()(hidden)), name=name)


def _moduli(maps, norm: float):
    """The modulus of each map's convolution with each complex filter, at every other pixel. All maps have the filters in common.

    Maps are stacked to one tall image, so that one convolution is enough; what lies across two of them is cut away. Squares of pixels are made
    colours because a convolution of one colour has a slow gradient.
    """
    _, height, width, count = maps.shape
    high, wide = height // 2, width // 2
    tall = layers.Permute((3, 1, 2))(layers.ZeroPadding2D(3)(maps))
    squares = layers.Permute((1, 3, 2, 4))(layers.Reshape((count * (high + 3), 2, wide + 3, 2))(tall))
    squares = layers.Reshape((count * (high + 3), wide + 3, 4))(squares)
    found = Modulus()(layers.Conv2D(2 * ORIENTATIONS, 4, kernel_initializer=Wavelets(norm))(squares))
    found = layers.Reshape((count, high + 3, wide, ORIENTATIONS))(layers.ZeroPadding2D(((0, 3), (0, 0)))(found))
    found = layers.Cropping3D(((0, 3), (0, 0), (0, 0)))(layers.Permute((2, 3, 1, 4))(found))
    return layers.Reshape((high, wide, count * ORIENTATIONS))(found)
