"""The Gaussian mechanism on a grid: what is released, by how much one record moves it, and what its last bits say."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.accounting import Budget, GaussianEvent, GaussianOnGridEvent, Ledger, NotPrivateEvent, Poisson
from tfdp.mechanisms import GaussianMechanism, GaussianOnGridMechanism, SecretGenerator, grid

SIZE = 2000
CLIP, EXPECTED = 1.3, 8.0


def on_grid(noise_multiplier=1.1, clip=CLIP) -> GaussianOnGridMechanism:
    mechanism = GaussianOnGridMechanism(clip, noise_multiplier)
    assert mechanism.initial_state([keras.Variable(np.zeros(SIZE, "f4"))]) == {}
    return mechanism


def released(mechanism, sums, seed=3) -> np.ndarray:
    """Times the expected lot size: the noised sum."""
    (found,) = mechanism.privatise([tf.constant(sums, tf.float32)], EXPECTED, SecretGenerator(seed=seed))
    return EXPECTED * found.numpy().astype("float64")


def rounded(mechanism, sums) -> np.ndarray:
    """Without noise."""
    found = grid._added(mechanism.grid, 1.0, tf.constant(sums, tf.float32), tf.zeros(SIZE, tf.int32))
    return found.numpy().astype("float64")


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.1, 50.0])
@pytest.mark.parametrize("clip", [1e-15, 1.0, 3e7])
def test_releases_are_whole_multiples_of_the_grid(noise_multiplier, clip):
    mechanism = on_grid(noise_multiplier, clip)
    whole = released(mechanism, clip * np.random.default_rng(0).standard_normal(SIZE)) / mechanism.grid
    np.testing.assert_array_equal(whole, np.round(whole))
    assert np.abs(whole).max() > 100
    assert math.frexp(mechanism.grid)[0] == 0.5  # a power of two


def test_sums_that_round_alike_are_released_alike_to_the_last_bit():
    mechanism = on_grid()
    whole = np.random.default_rng(1).integers(-9000, 9000, SIZE)
    one, other = (mechanism.grid * (whole + part) for part in (-0.49, 0.49))
    np.testing.assert_array_equal(released(mechanism, one), released(mechanism, other))


def test_rounded_sums_of_neighbours_differ_by_no_more_than_the_noise_is_scaled_to():
    """And by more than the clip: without the larger noise less would be run than is accounted."""
    mechanism, rng = on_grid(), np.random.default_rng(2)
    farthest = 0.0
    for _ in range(20):
        direction = np.abs(rng.standard_normal(SIZE))
        direction *= CLIP / np.linalg.norm(direction)
        sums = mechanism.grid * (rng.integers(-9000, 9000, SIZE) + 0.5)
        below = sums - direction * rng.uniform(0, 1e-3)
        difference = rounded(mechanism, below + direction) - rounded(mechanism, below)
        farthest = max(farthest, np.linalg.norm(difference))
    assert CLIP < farthest <= mechanism.contribution <= 1.001 * CLIP


def test_the_noise_is_as_large_as_the_enlarged_contribution_asks():
    mechanism = on_grid(noise_multiplier=2.0)
    found = np.concatenate([released(mechanism, np.zeros(SIZE), seed) for seed in range(5)])
    assert abs(found.std() / (2.0 * mechanism.contribution) - 1) < 4 / math.sqrt(2 * found.size)
    assert abs(found.mean()) < 4 * 2.0 * mechanism.contribution / math.sqrt(found.size)
    assert mechanism.unit_of_release(EXPECTED) == mechanism.contribution / EXPECTED


def fits(release: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Whether any float32 noise leads from the sum to the release: the next three are tried."""
    release, sums = np.float32(release), np.float32(sums)
    noise = np.float32(np.float64(release) - np.float64(sums))
    tried = (noise, np.nextafter(noise, np.float32(np.inf)), np.nextafter(noise, np.float32(-np.inf)))
    return np.any([sums + n == release for n in tried], axis=0)


def test_last_bits_tell_two_sums_apart_without_a_grid_and_not_with_one():
    """Mironov's attack on one release: sums that no noise leads from are not the sum."""
    rng = np.random.default_rng(3)
    plain, gridded = GaussianMechanism(CLIP, 1.1), on_grid()
    not_with = {True: 0, False: 0}
    for seed in range(3):
        sums = np.float32(0.1 * rng.standard_normal(SIZE))
        record = rng.standard_normal(SIZE)
        neighbour = np.float32(sums + 0.5 * CLIP * record / np.linalg.norm(record))
        release = released(plain, sums, seed)
        not_with[True] += np.sum(~fits(release, sums))
        not_with[False] += np.sum(~fits(release, neighbour))
        # On the grid both sums are whole numbers, and so is the difference to any release.
        release = released(gridded, sums, seed)
        for candidate in (sums, neighbour):
            noise = (release - rounded(gridded, candidate)) / gridded.grid
            np.testing.assert_array_equal(noise, np.round(noise))
    assert not_with[True] == 0  # never the true sum
    assert not_with[False] > 100  # but its neighbour, again and again


def test_it_is_accounted_as_the_gaussian_mechanism_and_told_apart_from_it():
    event, plain = on_grid(1.1).event(), GaussianMechanism(CLIP, 1.1).event()
    assert event == GaussianOnGridEvent(1.1) != plain == GaussianEvent(1.1)
    sampling, budget = Poisson(0.01, 1000), Budget(3.0, 1e-5, "pld")
    one, other = (Ledger().record(e, sampling, 100) for e in (event, plain))
    assert budget.epsilon(one) == budget.epsilon(other)
    assert Ledger.from_json(one.to_json()) == one
    assert isinstance(on_grid(0.0).event(), NotPrivateEvent)


def test_a_larger_model_has_a_finer_grid_and_extreme_noise_a_coarser_one():
    grids = {}
    for size, noise in ((100, 1.0), (10**8, 1.0), (10**8, 1000.0)):
        mechanism = GaussianOnGridMechanism(1.0, noise)
        mechanism._weights = size
        grids[size, noise] = mechanism.grid
        assert noise * mechanism.contribution / mechanism.grid <= 2**26
    assert grids[10**8, 1.0] < 1e-3 * grids[100, 1.0]
    assert grids[10**8, 1000.0] > grids[10**8, 1.0]
    mechanism.noise_multiplier = 1e4
    with pytest.raises(ValueError, match="Leave out grid"):
        mechanism.grid  # noqa: B018


def test_what_it_can_not_do_is_refused():
    with pytest.raises(ValueError, match="l2_norm_clip"):
        GaussianOnGridMechanism(1e-30, 1.0)
    with pytest.raises(ValueError, match="build the optimizer first"):
        GaussianOnGridMechanism(1.0, 1.0).grid  # noqa: B018


def test_large_weights_are_released_alike(monkeypatch):
    """XLA adds them up."""
    mechanism, sums = on_grid(), np.random.default_rng(4).standard_normal(SIZE)
    expected = released(mechanism, sums)
    monkeypatch.setattr(grid, "_WORTH_COMPILING", 1)
    np.testing.assert_array_equal(released(mechanism, sums), expected)


def test_a_copy_knows_the_grid():
    mechanism = on_grid()
    assert mechanism.copy().grid == mechanism.grid
