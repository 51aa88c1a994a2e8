"""The minimiser, against scipy's."""

import numpy as np
import pytest
import scipy.optimize

from tests.erm import problems
from tfdp.erm.logistic import gradients, mean_loss, minimised, smallest_mean_loss


def total(weights, features, signs, regularization, linear):
    """One fit's loss, written as in a textbook."""
    losses = [np.log(1 + np.exp(-y * weights @ z)) for z, y in zip(features, signs, strict=True)]
    return sum(losses) + regularization / 2 * weights @ weights + linear @ weights


def random_problem(fits=3, records=40, seed=1):
    features, signs = problems.in_the_ball(records, classes=3, seed=seed)
    return features, signs[:fits], np.random.default_rng(seed).normal(size=(fits, features.shape[1]))


def test_gradients_are_those_of_the_loss():
    features, signs, linear = random_problem()
    weights = np.random.default_rng(2).normal(size=linear.shape)
    found = gradients(weights, features, signs, 0.7, linear)
    for fit in range(len(signs)):
        wanted = scipy.optimize.approx_fprime(weights[fit], total, 1e-7, features, signs[fit], 0.7, linear[fit])
        np.testing.assert_allclose(found[fit], wanted, atol=1e-5)


@pytest.mark.parametrize("regularization", [1e-3, 1.0, 100.0])
def test_the_minimiser_is_scipys(regularization):
    features, signs, linear = random_problem()
    found = minimised(features, signs, regularization, linear, 1e-9)
    for fit in range(len(signs)):
        arguments = (features, signs[fit], regularization, linear[fit])
        wanted = scipy.optimize.minimize(total, np.zeros(features.shape[1]), arguments, method="BFGS", tol=1e-8).x
        np.testing.assert_allclose(found[fit], wanted, rtol=1e-3, atol=1e-5)


def test_the_gradient_where_it_stops_is_as_small_as_stated():
    features, signs, linear = random_problem()
    found = minimised(features, signs, 1e-4, 1e3 * linear, 1e-5)
    assert np.linalg.norm(gradients(found, features, signs, 1e-4, 1e3 * linear), axis=1).max() <= 1e-5


def test_a_gradient_below_rounding_is_refused():
    features, signs, linear = random_problem()
    with pytest.raises(FloatingPointError, match="Give a larger tol"):
        minimised(features, signs, 1e-4, linear, 1e-30)


def test_fits_do_not_depend_on_one_another():
    features, signs, linear = random_problem()
    together = minimised(features, signs, 0.5, linear, 1e-9)
    alone = [minimised(features, signs[k : k + 1], 0.5, linear[k : k + 1], 1e-9)[0] for k in range(3)]
    np.testing.assert_allclose(together, alone, atol=1e-8)


def test_the_smallest_loss_is_that_of_the_minimiser():
    features, signs, linear = random_problem()
    found = minimised(features, signs, 0.01 * len(features), 0 * linear, 1e-9)
    smallest = smallest_mean_loss(features, signs, 0.01)
    assert smallest == pytest.approx(mean_loss(found, features, signs, 0.01), abs=1e-9)
    assert mean_loss(found + 0.01, features, signs, 0.01) > smallest
