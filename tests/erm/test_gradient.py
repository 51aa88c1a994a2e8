"""Gradient perturbation through NoisySGD."""

import numpy as np
import pytest

from tests.erm import problems
from tfdp.accounting import GaussianEvent, Poisson, Relation, Status
from tfdp.erm import PrivateLogisticRegression
from tfdp.erm.logistic import gradients, smallest_mean_loss


@pytest.fixture(scope="module")
def fitted():
    x, y = problems.blobs(2000, classes=3, spread=0.3)
    model = PrivateLogisticRegression(
        "gradient", epsilon=8.0, delta=1e-5, classes=[0, 1, 2], epochs=10, learning_rate=2.0
    )
    return model.fit(x, y), x, y


def test_its_epsilon_is_that_of_the_ledger_and_within_the_target(fitted):
    statement = fitted[0].statement_
    assert 7.9 < statement.epsilon <= 8.0
    assert statement.claims[0].status is Status.PROVEN
    assert statement.relation is Relation.ZERO_OUT
    (line,) = statement.facts.ledger
    assert isinstance(line.event, GaussianEvent)
    assert line.sampling == Poisson(256 / 2000, 2000)
    assert line.steps == 80


def test_it_comes_near_the_optimum(fitted):
    model, x, y = fitted
    assert model.score(x, y) > 0.9
    features, signs = problems.in_the_ball(2000, classes=3, spread=0.3)
    at_the_start = 3 * np.log(2) - smallest_mean_loss(features, signs, model.regularization)
    assert 0 < model.optimality_gap(x, y) < at_the_start / 2


def test_no_gradient_is_longer_than_the_clip():
    """The mean over the fits of logistic losses: radius / sqrt(fits)."""
    features, signs = problems.in_the_ball(50, classes=3, spread=3.0)
    weights = 20 * np.random.default_rng(0).normal(size=(3, features.shape[1]))
    longest = max(
        np.linalg.norm(gradients(weights, features[i : i + 1], signs[:, i : i + 1], 0.0, 0 * weights)) / 3
        for i in range(50)
    )
    assert longest <= problems.BALL.radius / np.sqrt(3)
