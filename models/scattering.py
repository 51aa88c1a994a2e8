"""Features of images that nobody has to learn: a scattering transform (Mallat 2012; for private training: Tramer and Boneh 2021).

Wavelets, moduli, wavelets, moduli, averages: a convolutional network of two layers whose filters are known beforehand. There is nothing
in it to put noise on, and what it makes of a record depends on that record alone, so it costs no privacy.

    front = scattering((28, 28, 1))
    features = front.predict(images)                # once, before training
    model = keras.Sequential([front, trained])      # afterwards, for images
"""

import math

import keras
import numpy as np
from keras import layers, ops

SCALES = 2
_SLANT = 4  # over the number of orientations: how much longer than wide a wavelet is


@keras.saving.register_keras_serializable("models")
class Scattering(layers.Layer):
    """Images (batch, height, width, colours) to (batch, height / 4, width / 4, features), at two scales.

    With L orientations there are (1 + L)^2 features of each colour: the average grey, 2 L of how much of one wavelet there is, L^2 of how
    much of a coarse wavelet there is in what a fine one gave.

    Args:
        orientations: of the wavelets, L.
    """

    def __init__(self, orientations: int = 8, **kwargs):
        super().__init__(**kwargs)
        self.orientations = orientations
        self._wavelets = [morlet(orientations, scale) for scale in range(SCALES)]
        self._average = _gaussian(0.8 * 2 ** (SCALES - 1))

    def call(self, images):
        fine, coarse = (self._moduli(images, wavelets) for wavelets in self._wavelets)
        fine_then_coarse = self._moduli(fine, self._wavelets[1])
        return ops.concatenate([self._averages(maps) for maps in (images, fine, coarse, fine_then_coarse)], axis=-1)

    def _moduli(self, maps, wavelets):
        """The modulus of each map's convolution with each (complex) wavelet."""
        parts = _each_map(maps, np.concatenate([wavelets.real, wavelets.imag], axis=-1))
        _, height, width, count = parts.shape
        squares = ops.square(ops.reshape(parts, (-1, height, width, maps.shape[-1], 2, self.orientations)))
        return ops.reshape(ops.sqrt(ops.sum(squares, axis=-2)), (-1, height, width, count // 2))

    def _averages(self, maps):
        return _each_map(maps, self._average, strides=2**SCALES)

    def compute_output_shape(self, input_shape):
        batch, height, width, colours = input_shape
        step = 2**SCALES
        return batch, math.ceil(height / step), math.ceil(width / step), colours * (1 + self.orientations) ** 2

    def get_config(self):
        return {**super().get_config(), "orientations": self.orientations}


def scattering(shape: tuple[int, ...]) -> keras.Model:
    """Scattering features of images of this shape, every three of them with mean 0 and variance 1 over an image.

    In half precision, because there are five numbers for each one of an image.
    """
    front = Scattering()
    groups = front.compute_output_shape((None, *shape))[-1] // 3  # there are 81 features of a colour
    scaled = layers.GroupNormalization(groups, epsilon=1e-5, center=False, scale=False)
    return keras.Sequential([keras.Input(shape), front, scaled, layers.Identity(dtype="float16")], name="scattering")


def scattering_cnn(shape: tuple[int, ...], classes: int = 10, width: int = 32) -> keras.Model:
    """One convolution with tanh and a dense layer, on scattering features of this shape. Gives logits."""
    return keras.Sequential(
        [
            keras.Input(shape),
            layers.Conv2D(width, 3, activation="tanh"),
            layers.MaxPooling2D(2, strides=1),
            layers.Flatten(),
            layers.Dense(classes),
        ],
        name="scattering_cnn",
    )


def scattering_linear(shape: tuple[int, ...], classes: int = 10) -> keras.Model:
    """Logistic regression on scattering features of this shape, scaled to length 1. Gives logits."""
    return keras.Sequential(
        [
            keras.Input(shape),
            layers.Flatten(),
            layers.UnitNormalization(),
            layers.Dense(classes, kernel_initializer="zeros"),
        ],
        name="scattering_linear",
    )


def _each_map(maps, filters: np.ndarray, strides: int = 1):
    """Convolves every map (the last axis) with every filter (height, width, filters), mirrored at the borders."""
    _, height, width, count = maps.shape
    margin = filters.shape[0] // 2
    alone = ops.reshape(ops.transpose(maps, (0, 3, 1, 2)), (-1, height, width, 1))
    padded = ops.pad(alone, ((0, 0), (margin, margin), (margin, margin), (0, 0)), mode="reflect")
    kernel = ops.cast(filters[:, :, None, :], maps.dtype)
    convolved = ops.conv(padded, kernel, strides=strides)
    _, height, width, found = convolved.shape
    together = ops.transpose(ops.reshape(convolved, (-1, count, height, width, found)), (0, 2, 3, 1, 4))
    return ops.reshape(together, (-1, height, width, count * found))


def morlet(orientations: int, scale: int) -> np.ndarray:
    """Waves under a Gaussian, without their mean, one for each orientation: complex (height, width, orientations)."""
    spread, frequency, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, _SLANT / orientations
    x, y = _grid(math.ceil(3 * spread) + scale)
    angles = np.arange(orientations) * np.pi / orientations
    along = x[..., None] * np.cos(angles) + y[..., None] * np.sin(angles)
    across = y[..., None] * np.cos(angles) - x[..., None] * np.sin(angles)
    bell = np.exp(-(along**2 + (slant * across) ** 2) / (2 * spread**2))
    wave = bell * np.exp(1j * frequency * along)
    without_mean = wave - bell * (wave.sum((0, 1)) / bell.sum((0, 1)))
    return without_mean * slant / (2 * np.pi * spread**2)


def _gaussian(spread: float) -> np.ndarray:
    x, y = _grid(math.ceil(3 * spread))
    bell = np.exp(-(x**2 + y**2) / (2 * spread**2))[..., None]
    return bell / bell.sum()


def _grid(radius: int) -> tuple[np.ndarray, np.ndarray]:
    steps = np.arange(-radius, radius + 1)
    return tuple(np.meshgrid(steps, steps, indexing="ij"))
