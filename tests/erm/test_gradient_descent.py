"""Gradient descent with noise on its last weights: how far a record moves them."""

import functools
import math

import dp_accounting
import numpy as np
import pytest

from tests.erm import problems
from tests.erm.moved import assert_within_the_sensitivity, hundred_records, last_weights, moved_by_its_opposite
from tfdp.accounting import Relation, Status
from tfdp.erm import GradientDescent, OutputPerturbation, PrivateLogisticRegression
from tfdp.erm.logistic import minimised


@pytest.mark.parametrize(("penalty", "steps"), [(1e-4, 1), (1e-3, 30), (0.1, 5), (0.1, 300), (10.0, 2)])
def test_no_record_moves_the_last_weights_by_more_than_the_sensitivity(penalty, steps):
    """100 records, each left out (its features 0), the fits of three classes jointly."""
    features, signs, setting = hundred_records(penalty=penalty)
    mechanism = GradientDescent.calibrated(setting, gradient_steps=steps)
    assert_within_the_sensitivity(mechanism, features, signs, np.zeros_like)


def test_no_replaced_record_moves_them_by_more():
    """Each of 100 records by the one that pulls the other way: opposite features under the same signs."""
    features, signs, setting = hundred_records(penalty=1e-3, relation=Relation.REPLACE_ONE)
    mechanism = GradientDescent.calibrated(setting, gradient_steps=40)
    assert_within_the_sensitivity(mechanism, features, signs, np.negative)


def test_records_that_all_pull_one_way_move_them_by_half_of_it():
    """The derivative is a half at 0, where one step begins: one record against its opposite."""
    one_step = functools.partial(GradientDescent.calibrated, gradient_steps=1)
    assert moved_by_its_opposite(one_step, penalty=0.01) == pytest.approx(0.5)


def test_the_sensitivity_is_the_geometric_sum():
    """1,000 records of length up to sqrt(2), lambda 0.01: beta = 0.51, learning rate 2 / 0.52, q = 0.5 / 0.52."""
    features, signs = problems.in_the_ball(1000, classes=4)
    setting = problems.setting(features, signs, relation=Relation.REPLACE_ONE)
    rate, shrinks = 2 / 0.52, 0.5 / 0.52
    for steps in (1, 7, 100):
        one_fit = sum(rate * 2 * math.sqrt(2) / 1000 * shrinks**t for t in range(steps))
        assert GradientDescent(setting, 0.5, steps).sensitivity == pytest.approx(2 * one_fit)


def test_it_grows_with_the_steps_up_to_that_of_the_exact_minimiser():
    features, signs = problems.in_the_ball(100)
    setting = problems.setting(features, signs, tolerance=1e-12)
    found = [GradientDescent(setting, 1.0, steps).sensitivity for steps in (1, 10, 100, 10_000)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(OutputPerturbation(setting, 1.0).sensitivity)


@pytest.mark.parametrize("penalty", [1e-15, 1e30])
def test_an_extreme_penalty_keeps_the_sensitivity_exact(penalty):
    """Nearly none: as many equal shares as steps. A huge one: a step goes to the minimum."""
    features, signs = problems.in_the_ball(100)
    setting = problems.setting(features, signs, penalty=penalty)
    by_hand = {1e-15: 50 * 4 * math.sqrt(2) / 100, 1e30: math.sqrt(2) / (100 * 1e30)}
    assert GradientDescent(setting, 1.0, 50).sensitivity == pytest.approx(by_hand[penalty], rel=1e-9)


def test_many_steps_end_at_the_minimiser():
    features, signs = problems.in_the_ball(300, classes=3)
    setting = problems.setting(features, signs, penalty=0.05)
    exact = minimised(features, signs, 300 * 0.05, np.zeros((3, features.shape[1])), 1e-10)
    found = last_weights(GradientDescent(setting, 1.0, 300), features, signs)
    np.testing.assert_allclose(found, exact, atol=1e-9)


def test_the_noise_is_that_of_dp_accounting():
    features, signs = problems.in_the_ball(50)
    mechanism = GradientDescent.calibrated(problems.setting(features, signs), gradient_steps=20)
    sigma = dp_accounting.get_sigma_gaussian(1.0, 1e-5)
    assert sigma <= mechanism.noise_stddev / mechanism.sensitivity <= sigma * 1.0001  # a little for missing tails


def test_the_claim_is_proven_and_the_statement_says_what_was_released():
    x, y = problems.blobs(5000)
    model = PrivateLogisticRegression(
        "output", epsilon=20.0, delta=1e-5, regularization=0.05, gradient_steps=60, classes=[0, 1]
    )
    model.fit(x, y)
    assert model.optimality_gap(x, y) < 2e-3
    assert (model.statement_.claims[0].status, model.statement_.epsilon) == (Status.PROVEN, 20.0)
    assert "the weights after 60 steps of gradient descent" in " ".join(str(model.statement_).split())
