"""w of Xiang et al. 2021: clipped as a whole, then noised."""

import numpy as np
import pytest
import tensorflow as tf

from tests.mechanisms.lots import SHAPES, SIZE, draws_of, flat, lot_of, shaped
from tfdp.accounting import Budget, FullBatch, GaussianEvent, Ledger
from tfdp.mechanisms import SecretGenerator
from tfdp.mechanisms.published_direction import PublishedDirection

CLIP, RECORDS = 0.7, 40


def both_shapes(gradients):
    return [gradients[:, :12].reshape(-1, *SHAPES[0]), gradients[:, 12:]]


def test_examples_are_added_up_as_they_are():
    gradients = (10.0 ** np.arange(4))[:, None] * np.random.default_rng(0).normal(size=(4, SIZE))
    gradients = gradients.astype("f4")
    broken = gradients.copy()
    broken[1, 3] = np.nan
    present = np.array([True, True, True, False])
    sums, bad = PublishedDirection(CLIP, 1.0).bounded_sum(lot_of(both_shapes(broken)), tf.constant(present))
    np.testing.assert_allclose(flat(sums), gradients[[0, 2]].sum(0), rtol=1e-5)
    assert bad == 1


@pytest.mark.parametrize("size", [0.1, 1e4])
def test_the_mean_is_clipped_and_noised(size):
    direction, generator = PublishedDirection(CLIP, 2.0), SecretGenerator(seed=0)
    total = RECORDS * size * np.random.default_rng(0).normal(size=SIZE) / SIZE**0.5
    sums = [tf.cast(part, tf.float64) for part in shaped(total)]
    draws = draws_of(lambda: direction.privatise(sums, RECORDS, generator), 2000)
    mean = total / RECORDS
    expected = mean * min(1, CLIP / np.linalg.norm(mean))
    sigma = 2.0 * CLIP
    assert np.all(np.abs(draws.mean(0) - expected) <= 5 * sigma / np.sqrt(2000))
    normal = (draws - expected) / sigma
    covariance = normal.T @ normal / len(draws)
    assert np.all(np.abs(covariance - np.eye(SIZE)) <= 5 * np.sqrt((1 + np.eye(SIZE)) / len(draws)))


def test_one_record_moves_it_by_up_to_twice_the_clip():
    """The paper counts one clip."""
    direction, generator = PublishedDirection(CLIP, 0.0), SecretGenerator(seed=0)
    one, other = np.zeros(SIZE), np.zeros(SIZE)
    one[0], other[0] = RECORDS, -RECORDS
    found = [flat(direction.privatise(shaped(sums), RECORDS, generator)) for sums in (one, other)]
    assert np.linalg.norm(found[0] - found[1]) == pytest.approx(2 * CLIP, rel=1e-6)
    assert PublishedDirection(CLIP, 3.0).event() == GaussianEvent(1.5)


def test_the_noise_of_w_of_mnist_is_thousands_of_clips():
    """An eighth of epsilon 1 for 6,445 releases without sampling, by the formula at the best beta."""
    direction = PublishedDirection(CLIP)
    direction.calibrate(Budget(1.0, 1e-5), FullBatch(55000), 6445, Ledger())
    betas = np.arange(1, 100_000)
    tau = np.max(2 * (1 / 8 + np.log(1e-5 / 8) / betas) / (6445 * (1 + betas)))
    assert direction.noise_multiplier == pytest.approx(tau**-0.5, rel=1e-9)
    assert direction.noise_multiplier > 3000
