"""What noise of any family without the last of its tails adds to delta."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from tfdp.accounting import Codebook, finite_support_delta, noise_tails_delta
from tfdp.accounting.noise_tails import CUT, cut_of_a_moved_draw
from tfdp.noise import Cauchy, Gaussian, HyperbolicSecant, Laplace, StudentT, VarianceGamma

BOOK = Codebook(26_000, size=10)
FAMILIES = [
    Laplace(1.0),
    Cauchy(0.5),
    HyperbolicSecant(0.8),
    StudentT(3, scale=0.4),
    StudentT(9, stddev=1.0),
    VarianceGamma(2.0, 1.0),
]


@pytest.mark.parametrize("noise", FAMILIES, ids=repr)
def test_a_draw_that_is_not_moved_is_cut_with_the_probability_of_the_missing_bits(noise):
    assert cut_of_a_moved_draw(noise, 0.0) == pytest.approx(CUT, rel=1e-6, abs=0)


@pytest.mark.parametrize("noise", FAMILIES, ids=repr)
def test_the_price_grows_with_the_shift(noise):
    found = [cut_of_a_moved_draw(noise, shift) for shift in np.linspace(0, 3, 20)]
    assert np.all(np.diff(found) >= 0)


def test_a_moved_laplace_draw_is_beyond_the_end_as_often_as_its_formula_says():
    assert cut_of_a_moved_draw(Laplace(math.sqrt(2)), 0.7) == pytest.approx(CUT * math.cosh(0.7), rel=1e-6, abs=0)


@pytest.mark.parametrize(("df", "shift"), [(1, 0.5), (3, 2.0), (9, 0.3), (30, 1.0)])
def test_a_moved_student_draw_costs_at_most_what_is_stated(df, shift):
    """The mean of k(z + s), k from the law of the second coordinate of the pair given the first, by integration."""
    square = df * math.expm1(2 / df * 75 * math.log(2))  # of the largest radius
    law = scipy.stats.t(df)

    def cut(z):  # given z, the other is a Student-t with df + 1 and scale sqrt((df + z^2) / (df + 1))
        beyond = np.sqrt(np.maximum(square - z**2, 0)) / np.sqrt((df + z**2) / (df + 1))
        return 2 * scipy.stats.t(df + 1).sf(beyond)

    def mean(moved):
        s = np.linspace(-1, math.asinh(3 * math.sqrt(square)), 400_001)
        z = np.concatenate([-np.sinh(s[s > 0])[::-1], [0.0], np.sinh(s[s > 0])])
        return scipy.integrate.trapezoid(law.pdf(z) * cut(z + moved), z) + 2 * law.sf(z[-1])

    assert mean(0.0) == pytest.approx(CUT, rel=1e-3, abs=0)
    assert 0.99 * CUT <= mean(shift) <= cut_of_a_moved_draw(StudentT(df, scale=1.0), shift)


@pytest.mark.parametrize("noise", FAMILIES, ids=repr)
def test_it_is_far_below_delta_at_realistic_sizes(noise):
    assert 0 < noise_tails_delta(noise, BOOK, 10_000) < 1e-12
    assert noise_tails_delta(noise, BOOK, 0) == 0


def test_gaussian_noise_costs_what_the_gaussian_mechanism_pays():
    assert noise_tails_delta(Gaussian(1.1), BOOK, 500) == pytest.approx(finite_support_delta(26_000, 500, 1.1), abs=0)


def test_so_many_draws_that_some_are_cut_are_not_covered():
    assert noise_tails_delta(Laplace(1.0), BOOK, 10**20) == 1
    assert noise_tails_delta(Laplace(1e-3), Codebook(1, size=2), 10) == 1
