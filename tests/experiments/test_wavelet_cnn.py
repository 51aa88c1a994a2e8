"""A scattering network whose filters are trained: where it starts, and what a private step makes of filters that all maps share."""

import keras
import numpy as np
import pytest
import scipy.signal

import tfdp
from models.scattering import morlet
from models.wavelet_cnn import ORIENTATIONS, wavelet_cnn
from tests.brute_force import brute_force, expected_weights_after_one_step

IMAGES = np.random.default_rng(0).random((6, 28, 28, 1)).astype("float32")


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    return wavelet_cnn()


def moduli(image):
    """Of one map, at every other pixel."""
    waves = morlet(ORIENTATIONS, 0)
    norm = np.sqrt((np.abs(waves) ** 2).sum() / (2 * ORIENTATIONS))
    found = [scipy.signal.correlate2d(np.pad(image, 3), waves[..., one], mode="valid") for one in range(ORIENTATIONS)]
    # correlate2d conjugates the filter, which the modulus of a real map's convolution does not show
    return np.sqrt(np.abs(np.stack(found, axis=-1)[::2, ::2] / norm) ** 2 + 1e-4)


def test_it_starts_as_moduli_of_wavelets_of_each_map(model):
    maps, features = (
        keras.Model(model.input, model.get_layer(name).output)(IMAGES).numpy()
        for name in ("concatenate", "concatenate_1")
    )
    fine = moduli(IMAGES[2, :, :, 0])
    np.testing.assert_allclose(maps[2, ..., 1:], fine, atol=1e-4)
    coarse = np.concatenate([moduli(maps[2, ..., one]) for one in range(1 + ORIENTATIONS)], axis=-1)
    np.testing.assert_allclose(features[2, ..., 1 + ORIENTATIONS :], coarse, atol=1e-3)


def test_every_layer_is_trained_with_gradients_of_each_record_alone(model):
    loss, y = keras.losses.SparseCategoricalCrossentropy(from_logits=True), np.arange(6)
    model.compile(optimizer="sgd", loss=loss)
    examples, before = brute_force(model, IMAGES, y), model.get_weights()
    clip = float(np.median(examples.norms))
    expected = expected_weights_after_one_step(model, examples, clip)
    model.compile(optimizer=tfdp.NoisySGD(1.0, l2_norm_clip=clip, noise_multiplier=0.0), loss=loss)
    model.fit(IMAGES, y, batch_size=6, epochs=1, verbose=0)
    assert len(model.weights) == len(model.trainable_weights) == 8
    for weight, start, wanted in zip(model.trainable_weights, before, expected, strict=True):
        change = wanted - start
        np.testing.assert_allclose(weight.numpy() - start, change, atol=1e-3 * np.abs(change).max())
        assert np.abs(change).max() > 1e-6


def test_it_is_saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "model.keras")(IMAGES), model(IMAGES), atol=1e-6)
