"""A scattering network whose filters are trained: where it starts, and what a private step makes of filters that all maps share."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import scipy.signal

import tfdp
from models.scattering import morlet
from models.wavelet_cnn import ORIENTATIONS, colour_wavelet_cnn, wavelet_cnn
from tests.brute_force import brute_force, expected_weights_after_one_step

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.random((6, 28, 28, 1)).astype("float32")
COLOURS = RANDOM.random((6, 32, 32, 3)).astype("float32")


@pytest.fixture(params=["grey", "colour"])
def images(request):
    return {"grey": IMAGES, "colour": COLOURS}[request.param]


@pytest.fixture
def model(images):
    keras.utils.set_random_seed(0)
    return wavelet_cnn() if images is IMAGES else colour_wavelet_cnn()


def moduli(image, length):
    """Of one map, at every other pixel, by waves of that norm."""
    waves = morlet(ORIENTATIONS, 0)
    norm = np.sqrt((np.abs(waves) ** 2).sum() / (2 * ORIENTATIONS)) / length
    found = [scipy.signal.correlate2d(np.pad(image, 3), waves[..., one], mode="valid") for one in range(ORIENTATIONS)]
    # correlate2d conjugates the filter, which the modulus of a real map's convolution does not show
    return np.sqrt(np.abs(np.stack(found, axis=-1)[::2, ::2] / norm) ** 2 + 1e-4)


def test_it_starts_as_moduli_of_wavelets_of_each_map(model, images):
    joined = [layer.output for layer in model.layers if isinstance(layer, keras.layers.Concatenate)]
    maps, features = (output.numpy() for output in keras.Model(model.input, joined)(images))
    count, length = images.shape[-1], 1.0 if images is IMAGES else 4.0
    fine = np.concatenate([moduli(images[2, ..., one], length) for one in range(count)], axis=-1)
    np.testing.assert_allclose(maps[2, ..., count:], fine, atol=1e-4 * length)
    count = maps.shape[-1]
    coarse = np.concatenate([moduli(maps[2, ..., one], length) for one in range(count)], axis=-1)
    np.testing.assert_allclose(features[2, ..., count:], coarse, atol=1e-3 * length**2)


def test_every_layer_is_trained_with_gradients_of_each_record_alone(model, images):
    loss, y = keras.losses.SparseCategoricalCrossentropy(from_logits=True), np.arange(6)
    model.compile(optimizer="sgd", loss=loss)
    examples, before = brute_force(model, images, y), model.get_weights()
    clip = float(np.median(examples.norms))
    expected = expected_weights_after_one_step(model, examples, clip)
    model.compile(optimizer=tfdp.NoisySGD(1.0, l2_norm_clip=clip, noise_multiplier=0.0), loss=loss)
    model.fit(images, y, batch_size=6, epochs=1, verbose=0)
    assert len(model.weights) == len(model.trainable_weights) == 8
    for weight, start, wanted in zip(model.trainable_weights, before, expected, strict=True):
        change = wanted - start
        np.testing.assert_allclose(weight.numpy() - start, change, atol=1e-3 * np.abs(change).max())
        assert np.abs(change).max() > 1e-6


def test_it_is_saved_and_loaded_and_cloned(model, images, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(images), model(images), atol=1e-6)
    # as new, a clone has the filters that the network starts with
    filters = [layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)][:2]
    for layer in filters:
        anew = keras.models.clone_model(loaded).get_layer(layer.name)
        np.testing.assert_allclose(anew.kernel, layer.kernel, atol=1e-6)


def test_it_is_loaded_in_a_process_that_never_built_one(tmp_path):
    model, file = wavelet_cnn(), tmp_path / "model.keras"
    model.save(file)
    load = f"from experiments.tasks import NETWORKS; print(NETWORKS['wavelet_cnn'].saved({str(file)!r}).count_params())"
    told = subprocess.run([sys.executable, "-c", load], check=True, capture_output=True, text=True, timeout=300)
    assert int(told.stdout) == model.count_params()
