"""The noise itself: its law, its independence, what it is made of, and that it stays."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.mechanisms.test_normals import exact_normals
from tfdp.data import InputPerturbation
from tfdp.data.perturbation.seeds import RecordSeeds
from tfdp.mechanisms import philox

KEY = bytes(range(32))
RECORDS, FEATURES = 20_000, 4
NOTHING = np.zeros((RECORDS, FEATURES), np.float32)


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    """Records of zeros come out as their noise."""
    return InputPerturbation(3.0, key=KEY).on_arrays(NOTHING) / 3.0


def test_it_is_standard_normal(noise):
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-4


def test_coordinates_and_neighbouring_records_are_independent(noise):
    """Correlations of so many pairs are normal with standard deviation 1 / sqrt(RECORDS)."""
    side_by_side = np.concatenate([noise[:-1], noise[1:]], axis=1)
    for moved in (side_by_side, side_by_side**2):
        correlations = np.corrcoef(moved.T)[np.triu_indices(2 * FEATURES, 1)]
        assert np.abs(correlations).max() < 5 / np.sqrt(RECORDS)


def test_records_far_apart_are_independent(noise):
    """One number for every distance: the correlation of the first coordinate with itself, so many records on."""
    first = noise[:, 0] - noise[:, 0].mean()
    spectrum = np.abs(np.fft.rfft(first, 2 * RECORDS)) ** 2
    correlation = np.fft.irfft(spectrum)[1 : RECORDS // 2] / np.sum(first**2)
    scaled = correlation * np.sqrt(RECORDS**2 / (RECORDS - np.arange(1, RECORDS // 2)))
    assert np.abs(scaled).max() < 6
    assert stats.kstest(scaled, "norm").pvalue > 1e-4


@pytest.mark.parametrize("other", [{"key": KEY[::-1]}, {"name": "other"}, {"split": "test"}, {"clip_norm": 2.0}])
def test_another_key_or_data_set_has_independent_noise(noise, other):
    found = InputPerturbation(3.0, **({"key": KEY} | other)).on_arrays(NOTHING[:2000]) / 3.0
    correlation = np.corrcoef(found.ravel(), noise[:2000].ravel())[0, 1]
    assert abs(correlation) < 5 / np.sqrt(found.size)


def test_noise_of_another_size_is_other_noise(noise):
    """Else two releases would show the record by their difference."""
    found = InputPerturbation(1.0, key=KEY).on_arrays(NOTHING[:2000])
    assert abs(np.corrcoef(found.ravel(), noise[:2000].ravel())[0, 1]) < 5 / np.sqrt(found.size)


def test_it_is_box_and_muller_of_the_records_own_stream(noise):
    """From seeds by TensorFlow's kernel and extended precision, up to the rounding to multiples."""
    released = ("data", "train", (3.0).hex(), (1.0).hex())
    seeds = RecordSeeds(KEY, released).of("x float32 (4,)", 0, 200)
    grain = 2.0 ** (1 - 20)
    for record, seed in enumerate(seeds):
        words = [word.numpy() for word in philox.from_kernel(tf.constant(seed), FEATURES // 2)]
        _, first, second = exact_normals(*words)
        expected = 3 * np.stack([first, second], axis=1).ravel()
        assert np.abs(3 * noise[record] - expected.astype(float)).max() < 0.51 * grain


def test_what_comes_out_lies_on_public_multiples():
    x = np.random.default_rng(0).normal(size=(1000, FEATURES)).astype(np.float32)
    for stddev, grain in ((3.0, 2.0**-19), (0.75, 2.0**-21)):
        in_grains = InputPerturbation(stddev, key=KEY).on_arrays(x).astype(np.float64) / grain
        assert np.array_equal(in_grains, np.round(in_grains))


OTHER_PROCESS = """
import numpy as np
from tfdp.data import InputPerturbation
x = np.zeros((20000, 4), np.float32)
print(InputPerturbation(3.0, key=bytes(range(32))).on_arrays(x[:300]).tobytes().hex())
"""


def test_another_process_with_the_key_has_the_same_noise(noise):
    done = subprocess.run([sys.executable, "-c", OTHER_PROCESS], capture_output=True, text=True, check=True)
    assert bytes.fromhex(done.stdout.strip()) == (3 * noise[:300]).astype(np.float32).tobytes()
