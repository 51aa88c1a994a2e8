"""The public codebook: sorted, bounded, rebuilt from its description, small."""

import numpy as np
import pytest
from scipy import stats

from tfdp.accounting import Codebook
from tfdp.noise import Cauchy, Gaussian, Laplace, StudentT

LARGE = Codebook(10**6, size=3)
GOLDEN = [[0.19865613, 0.30222645, 0.93230623], [0.04249337, 0.44002348, 0.8969803]]
GOLDEN_RUNS = [1.5438563e-05, 8.4067741e-04, 4.5484235e-03, 1.3814740e-02, 3.2559667e-02]


@pytest.mark.parametrize("codebook", [Codebook(1, size=4), Codebook(500, size=20, seed=3), LARGE], ids=str)
def test_codewords_are_sorted_and_of_norm_at_most_one(codebook):
    rows = codebook.magnitudes
    assert rows.dtype == np.float32 and rows.shape == (codebook.size, len(codebook.counts))
    assert codebook.counts.sum() == codebook.weights
    assert (np.diff(rows, axis=1) >= 0).all() and (rows >= 0).all()
    norms = np.sqrt((rows.astype(float) ** 2 * codebook.counts).sum(axis=1))
    assert (norms <= 1).all() and (norms > 1 - 1e-6).all()


def test_the_same_description_gives_the_same_codebook_and_another_seed_another():
    first = Codebook(500, size=2).magnitudes.copy()
    Codebook.magnitudes.fget.__globals__["_magnitudes"].cache_clear()
    np.testing.assert_array_equal(Codebook(500, size=2).magnitudes, first)
    assert (Codebook(500, size=2, seed=1).magnitudes != first).any()


def test_a_codebook_never_changes_by_version():
    """What was rebuilt from this description when it was first released."""
    np.testing.assert_allclose(Codebook(3, size=2, seed=7).magnitudes, GOLDEN, rtol=1e-6)
    in_runs = Codebook(20_000, size=2, seed=7)
    np.testing.assert_allclose(in_runs.magnitudes[0, [0, 100, 500, -1024, -1]], GOLDEN_RUNS, rtol=1e-6)
    assert [*in_runs.counts[[0, 1, -1025, -1024]], len(in_runs.counts)] == [33, 19, 19, 1, 2022]


def test_magnitudes_are_a_sorted_sample_of_the_distribution():
    """Kolmogorov-Smirnov over all draws of many codewords, the norm's scale taken out."""
    codebook = Codebook(1000, size=100, distribution=Laplace(1.0))
    rows = codebook.magnitudes.astype(float)
    rows /= np.sqrt((rows**2).mean(axis=1, keepdims=True))
    assert stats.kstest(rows.ravel(), stats.expon(scale=np.sqrt(0.5)).cdf).statistic < 0.01


def test_runs_are_order_statistics_of_the_whole_sample():
    """A million draws, of which one a run is made, against the quantiles of the distribution."""
    ranks = np.cumsum(LARGE.counts)
    expected = stats.halfnorm.isf((10**6 - ranks + 1) / (10**6 + 1))
    found = LARGE.magnitudes[0].astype(float) * np.sqrt((expected**2 * LARGE.counts).sum())
    np.testing.assert_allclose(found[100:-100], expected[100:-100], rtol=0.02)
    assert 4 < found[-1] < 6.5


def test_small_draws_are_zero():
    rows = Codebook(2000, size=160).magnitudes
    # A standard normal is below 1e-5 with probability 8e-6: in 320,000 draws 2.6 times.
    assert 0 < (rows == 0).sum() < 12
    assert (rows[rows > 0] > 0.9e-5 / np.sqrt(2000)).all()


def test_a_thousand_codewords_of_a_million_weights_take_less_than_100_mb():
    assert LARGE.magnitudes.nbytes / 3 * 1000 < 100e6


def test_a_codeword_in_full_has_a_magnitude_for_each_weight():
    full = Codebook(20000, size=1).codeword(0)
    assert full.shape == (20000,) and (np.diff(full) >= 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": 0}, "weights must be at least 1"),
        ({"weights": 10, "size": 1.5}, "size must be a whole number"),
        ({"weights": 10, "seed": -1}, "seed"),
        ({"weights": 10, "seed": 2**32}, "seed must be below"),
        ({"weights": 10, "distribution": "normal"}, "distribution must be a tfdp.noise.Noise"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Codebook(**arguments)


def test_another_distribution_gives_other_codewords():
    normal, heavy = (Codebook(1000, 1, d).magnitudes[0] for d in (StudentT(1e6, 1.0), StudentT(3, 1.0)))
    assert heavy[-1] > 1.5 * normal[-1]


@pytest.mark.parametrize("distribution", [Cauchy(1e300), Gaussian(1e300), Gaussian(1e200)])
def test_magnitudes_whose_norm_is_beyond_floats_are_refused(distribution):
    with pytest.raises(ValueError, match="cannot be priced"):
        Codebook(10, 2, distribution).codeword(0)
