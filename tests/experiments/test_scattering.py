"""Scattering features are what their definition says, of each record alone, and a run is trained on them as on any others."""

import keras
import numpy as np
import pytest
import scipy.signal

from experiments import tasks, training
from experiments.settings import RunSettings
from models.scattering import Scattering, scattering

ORIENTATIONS = 4


def wavelet(scale, orientation, size=31):
    """The Morlet wavelet by its formula, on a grid that is wider than the layer's."""
    spread, slant, angle = 0.8 * 2**scale, 4 / ORIENTATIONS, np.pi * orientation / ORIENTATIONS
    radius = int(np.ceil(3 * spread)) + scale
    found = np.zeros((size, size), complex)
    bell = np.zeros((size, size))
    for row in range(-radius, radius + 1):
        for column in range(-radius, radius + 1):
            along = row * np.cos(angle) + column * np.sin(angle)
            across = column * np.cos(angle) - row * np.sin(angle)
            place = (row + size // 2, column + size // 2)
            bell[place] = np.exp(-(along**2 + (slant * across) ** 2) / (2 * spread**2))
            found[place] = bell[place] * np.exp(1j * 0.75 * np.pi / 2**scale * along)
    return (found - bell * found.sum() / bell.sum()) * slant / (2 * np.pi * spread**2)


def modulus(image, filters):
    """A correlation, as networks mean it, of the image mirrored at its borders."""
    margin = filters.shape[0] // 2
    return np.abs(scipy.signal.correlate2d(np.pad(image, margin, mode="reflect"), np.conj(filters), mode="valid"))


def average(image):
    row, column = np.mgrid[-5:6, -5:6]
    bell = np.exp(-(row**2 + column**2) / (2 * 1.6**2))
    return scipy.signal.correlate2d(np.pad(image, 5, mode="reflect"), bell / bell.sum(), mode="valid")[::4, ::4]


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((3, 16, 20, 2)).astype("float32")


def test_features_are_averages_of_moduli_of_convolutions(images):
    found = Scattering(ORIENTATIONS)(images).numpy()
    assert found.shape == (3, 4, 5, 2 * 25) == Scattering(ORIENTATIONS).compute_output_shape(images.shape)
    image = images[1, :, :, 1]
    fine = [modulus(image, wavelet(0, one)) for one in range(ORIENTATIONS)]
    coarse = [modulus(image, wavelet(1, one)) for one in range(ORIENTATIONS)]
    both = [modulus(first, wavelet(1, one)) for first in fine for one in range(ORIENTATIONS)]
    # of two colours, the second: each kind of feature has the first colour's before
    kinds = [found[1, ..., 1:2], found[1, ..., 6:10], found[1, ..., 14:18], found[1, ..., 34:50]]
    for ours, maps in zip(kinds, ([image], fine, coarse, both), strict=True):
        np.testing.assert_allclose(ours, np.stack([average(one) for one in maps], axis=-1), atol=2e-5)


def test_a_grey_image_has_nothing_but_its_average():
    found = Scattering(ORIENTATIONS)(np.full((1, 16, 16, 1), 0.7, "float32")).numpy()
    np.testing.assert_allclose(found[..., 0], 0.7, atol=1e-6)
    np.testing.assert_allclose(found[..., 1:], 0, atol=1e-6)


def test_a_quarter_turn_turns_the_orientations():
    image = (
        np.random.default_rng(1).random((1, 17, 17, 1)).astype("float32")
    )  # both grids of averages fall on one another
    upright, turned = (Scattering(2)(one).numpy() for one in (image, np.rot90(image, axes=(1, 2))))
    expected = np.rot90(upright, axes=(1, 2))
    np.testing.assert_allclose(turned[..., 1:3], expected[..., [2, 1]], atol=1e-5)
    np.testing.assert_allclose(turned[..., 3:5], expected[..., [4, 3]], atol=1e-5)


def test_a_records_features_depend_on_it_alone_and_are_scaled_in_threes(images):
    front = scattering((16, 20, 2))
    assert front.count_params() == 0
    together = front(images).numpy()
    for one in range(3):
        np.testing.assert_allclose(front(images[one : one + 1]).numpy()[0], together[one], atol=0.005)
    raw, scaled = Scattering()(images).numpy().reshape(3, 20, 54, 3), together.reshape(3, 20, 54, 3)
    spread = np.sqrt(raw.var((1, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(scaled, (raw - raw.mean((1, 3), keepdims=True)) / spread, atol=0.005)


def test_features_and_network_are_saved_as_one_model(images, tmp_path):
    shape = (16, 20, 2)
    front = scattering(shape)
    whole = keras.Sequential([keras.Input(shape), front, keras.layers.Flatten(), keras.layers.Dense(3)])
    whole.save(tmp_path / "whole.keras")
    again = keras.models.load_model(tmp_path / "whole.keras")
    np.testing.assert_allclose(again(images), whole(images), atol=1e-6)


def test_a_run_is_trained_on_the_features_that_its_network_takes(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (40, 28, 28)).astype("uint8")
    y = np.arange(40) % 10
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    settings = RunSettings.of("mnist", "noisy-sgd", model="scattering_cnn", batch_size=20, epochs=1)
    data = training.load(settings, tmp_path)
    pixels = (x[:10, ..., None] / 255).astype("float32")
    assert data.train[0].dtype == np.float16
    np.testing.assert_allclose(data.test[0], scattering((28, 28, 1))(pixels), atol=0.01)
    trained = training.train(settings, data, tmp_path / "run", verbose=0)
    assert trained.model.input_shape == (None, 7, 7, 81)
    assert trained.record["statement"]["ledger"]["lines"]
    plain = training.load(settings.replaced(model="mnist_tanh_cnn"), tmp_path)
    np.testing.assert_array_equal(plain.test[0], pixels)


def test_scattering_networks_are_offered_for_images_alone():
    taking = {name for name, task in tasks.TASKS.items() if "scattering_cnn" in task.networks}
    assert taking == {"mnist", "fashion_mnist", "svhn", "cifar10"}
