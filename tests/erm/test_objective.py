"""Objective perturbation: the privacy loss against its exact densities, and that no attack beats its epsilon."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats

from tests.erm import problems
from tests.erm.attacks import epsilon_reached
from tfdp.accounting import Relation, epsilon_delta_tradeoff, gdp_delta
from tfdp.erm import ObjectivePerturbation
from tfdp.erm.logistic import gradients, minimised
from tfdp.erm.noise import SecretNormals

ZERO_OUT, REPLACE_ONE = Relation.ZERO_OUT, Relation.REPLACE_ONE


def log_density(weights, features, signs, mechanism):
    """Of exact minimisers ``[runs, weights]`` of one fit: the density of the linear term that leads there, times how it spreads."""
    total = np.repeat(signs, len(weights), axis=0)
    linear = -gradients(weights, features, total, mechanism.regularization, np.zeros_like(weights))
    slopes = 1 / (2 + np.exp(weights @ features.T) + np.exp(-weights @ features.T))
    hessians = np.einsum("rn,ni,nj->rij", slopes, features, features)
    hessians += mechanism.regularization * np.eye(features.shape[1])
    normal = scipy.stats.norm.logpdf(linear, scale=mechanism.noise_stddev).sum(axis=1)
    return normal + np.linalg.slogdet(hessians)[1]


def released(features, signs, mechanism, runs, seed):
    """Minimisers of one fit, before the second noise."""
    linear = mechanism.noise_stddev * np.random.default_rng(seed).normal(size=(runs, features.shape[1]))
    return minimised(features, np.repeat(signs, runs, axis=0), mechanism.regularization, linear, 1e-9)


def tiny(relation, epsilon=1.0, delta=1e-2, fits=1, **changes):
    """One weight, one record at the edge beside another, and a neighbour: (mechanism, records, records of the neighbour)."""
    first = np.array([[1.0], [0.3]]), np.array([[1.0, -1.0]])
    second = np.array([[0.0 if relation is ZERO_OUT else -1.0], [0.3]]), np.array([[1.0, -1.0]])
    usual = {"records": 2, "radius": 1.0, "relation": relation, "epsilon": epsilon, "delta": delta, "penalty": 1e-9}
    setting = problems.setting(first[0], first[1], **{**usual, "fits": fits, **changes})
    return ObjectivePerturbation.calibrated(setting), first, second


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE_ONE])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_exact_delta_of_one_weight_is_within_its_bound(relation, epsilon):
    """Integrated over the line, in both directions."""
    mechanism, first, second = tiny(relation, epsilon)
    spread = mechanism.noise_stddev / mechanism.regularization
    grid = np.linspace(-12 * spread, 12 * spread, 400_001)
    one, other = (np.exp(log_density(grid[:, None], *records, mechanism)) for records in (first, second))
    cell = grid[1] - grid[0]
    assert one.sum() * cell == pytest.approx(1, abs=1e-4)
    for p, q in ((one, other), (other, one)):
        exact = np.maximum(p - math.exp(epsilon) * q, 0).sum() * cell
        assert exact <= mechanism.setting.delta
    assert np.abs(one - other).sum() * cell > 0.01


@pytest.mark.parametrize(("relation", "epsilon"), [(ZERO_OUT, 1.0), (REPLACE_ONE, 1.0), (ZERO_OUT, 0.2)])
def test_the_mean_delta_of_several_fits_is_within_its_bound(relation, epsilon):
    """Three fits of two weights: losses add up, as their noises are independent."""
    mechanism, *_ = tiny(relation, epsilon, delta=0.02, fits=3, weights=2)
    edge = np.array([[0.6, 0.8], [0.0, 0.2]])
    moved = np.array([[0.0, 0.0], [0.0, 0.2]]) if relation is ZERO_OUT else np.array([[-0.8, 0.6], [0.0, 0.2]])
    for one, other in ((edge, moved), (moved, edge)):
        losses = 0.0
        for fit, signs in enumerate(([[1.0, 1.0]], [[-1.0, 1.0]], [[1.0, -1.0]])):
            weights = released(one, np.array(signs), mechanism, 20_000, seed=fit)
            sets = (log_density(weights, features, np.array(signs), mechanism) for features in (one, other))
            losses = losses + np.subtract(*sets)
        exceeding = np.maximum(0, 1 - np.exp(epsilon - losses))
        assert exceeding.mean() - 4 * exceeding.std() / math.sqrt(20_000) <= mechanism.setting.delta


def test_500_leave_one_out_retrainings_stay_within_the_bounds_of_the_proof():
    """At the weights that were found: how the linear term has to move to find them without a record, and the determinants."""
    features, signs = problems.in_the_ball(500, spread=2.0)
    mechanism = ObjectivePerturbation.calibrated(problems.setting(features, signs, penalty=1e-4))
    linear = mechanism.noise_stddev * np.random.default_rng(0).normal(size=(1, features.shape[1]))
    weights = minimised(features, signs, mechanism.regularization, linear, 1e-10)
    moves, costs = [], []
    for i in range(500):
        fewer = np.delete(features, i, 0), np.delete(signs, i, 1)
        needed = -gradients(weights, *fewer, mechanism.regularization, np.zeros_like(weights))
        again = minimised(*fewer, mechanism.regularization, needed, 1e-10)
        np.testing.assert_allclose(again, weights, atol=1e-8)
        moves.append(np.linalg.norm(needed - linear))
        parts = (log_density(weights, *records, mechanism)[0] for records in ((features, signs), fewer))
        gaussian = (needed**2 - linear**2).sum() / (2 * mechanism.noise_stddev**2)
        costs.append(np.subtract(*parts) - gaussian)
    assert 0.3 * mechanism.setting.radius < max(moves) <= mechanism.setting.radius
    assert min(costs) >= 0
    assert 0 < max(costs) <= mechanism.kappa


def test_regularization_and_noise_by_hand():
    """A record left out, one fit, epsilon 1: determinants may cost a half, so the floor is (2 / 4) / (e^0.5 - 1)."""
    features, signs = problems.in_the_ball(10)
    mechanism = ObjectivePerturbation(problems.setting(features, signs, penalty=1e-9), mu=0.2)
    assert mechanism.regularization == pytest.approx(0.7707470413)
    assert mechanism.kappa == pytest.approx(0.5)
    assert mechanism.noise_stddev == pytest.approx(7.0710678119)
    assert mechanism.second_stddev == pytest.approx(2 * 1e-6 * math.sqrt(2) / 0.7707470413 / (0.02 * 0.2))
    # delta: half a corner of the second noise alone, and one of both
    by_hand = gdp_delta(0.2 * math.sqrt(1.0004), 0.5) + 0.5 * gdp_delta(0.2 * 0.02, 0.5)
    assert mechanism.delta() == pytest.approx(by_hand, rel=1e-9)
    strong = dataclasses.replace(mechanism, setting=problems.setting(features, signs, penalty=5.0))
    assert strong.regularization == pytest.approx(50.0)
    assert strong.kappa == pytest.approx(math.log(1.01))


def test_corners_of_two_replaced_fits_by_hand():
    """(1/2 + 2 q + q^4)^2 = 1/4 + 2 q + 4 q^2 + q^4 + 4 q^5 + q^8."""
    features, signs = problems.in_the_ball(10)
    setting = problems.setting(features, signs, fits=2, relation=REPLACE_ONE, penalty=1e6, tolerance=1e-9)
    mechanism = ObjectivePerturbation(setting, mu=0.2)
    corners = {0: 0.25, 1: 2, 2: 4, 4: 1, 5: 4, 8: 1}
    left = 1.0 - 2 * mechanism.kappa
    by_hand = sum(times * gdp_delta(0.2 * math.sqrt(m + 0.0008), left) for m, times in corners.items())
    assert mechanism.delta() == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 4.0])
def test_it_needs_less_noise_than_the_papers_theorem(epsilon):
    """Kifer et al. 2012, theorem 2: radius sqrt(8 ln(2 / delta) + 4 epsilon) / epsilon, at their floor of 2 beta / epsilon."""
    features, signs = problems.in_the_ball(10)
    mechanism = ObjectivePerturbation.calibrated(problems.setting(features, signs, epsilon=epsilon, penalty=1e-9))
    papers = math.sqrt(2) * math.sqrt(8 * math.log(2 / 1e-5) + 4 * epsilon) / epsilon
    assert papers / 2 < mechanism.noise_stddev < papers
    assert mechanism.regularization <= 2 * 0.5 / epsilon


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE_ONE])
@pytest.mark.parametrize("fits", [1, 10])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
def test_the_calibrated_noise_keeps_to_delta_and_hardly_less(relation, fits, epsilon):
    features, signs = problems.in_the_ball(100)
    setting = problems.setting(features, signs, relation=relation, fits=fits, epsilon=epsilon)
    mechanism = ObjectivePerturbation.calibrated(setting)
    assert mechanism.delta() + mechanism.tails() <= setting.delta
    assert dataclasses.replace(mechanism, mu=mechanism.mu * 1.001).delta() > setting.delta


def test_a_large_epsilon_gets_the_noise_whose_tails_can_be_paid():
    features, signs = problems.in_the_ball(50)
    mechanism = ObjectivePerturbation.calibrated(problems.setting(features, signs, epsilon=1e4, penalty=1e-9))
    assert mechanism.tails() <= 1e-9
    assert 3 < mechanism.mu < 5


@pytest.mark.parametrize(
    ("relation", "most"), [(Relation.ZERO_OUT, 1590), (Relation.REPLACE_ONE, 514)], ids=["zero_out", "replace_one"]
)
def test_more_classes_than_its_sum_can_be_computed_for_are_refused(relation, most):
    """1.5^1590 and 3.5^514 are just below 1e280. With hardly any noise the sum is far beyond 1, and delta is 1."""
    setting = problems.setting(*problems.in_the_ball(2), relation=relation, fits=most)
    assert ObjectivePerturbation(setting, 10.0).delta() == 1.0
    with pytest.raises(ValueError, match="Write method='output'"):
        ObjectivePerturbation.calibrated(dataclasses.replace(setting, fits=most + 1))


def attack(mechanism, first, second, runs=20_000) -> float:
    """By the exact likelihood of what was released; the second noise is small enough to be overlooked."""
    normals = SecretNormals(seed=3)
    losses = []
    for features, signs in (first, second):
        weights = mechanism.release(features, np.repeat(signs, runs, axis=0), normals)
        losses.append(np.subtract(*(log_density(weights, *records, mechanism) for records in (first, second))))
    return epsilon_reached(*losses, mechanism.setting.delta)


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE_ONE])
@pytest.mark.parametrize("epsilon", [2.0, 3.0])
def test_no_attack_beats_the_proven_epsilon(relation, epsilon):
    mechanism, first, second = tiny(relation, epsilon, delta=1e-3)
    reached = attack(mechanism, first, second)
    assert epsilon / 30 < reached <= epsilon
    too_little = dataclasses.replace(mechanism, mu=16 * mechanism.mu)
    assert attack(too_little, first, second) > epsilon  # the attack would notice


def test_its_curve_is_below_one_epsilons_and_never_below_what_an_exact_attack_finds():
    mechanism, first, second = tiny(ZERO_OUT, 2.0)
    curve, alone = mechanism.tradeoff(), epsilon_delta_tradeoff([(2.0, mechanism.setting.delta)])
    assert curve(0.01) > alone(0.01)
    grid = np.linspace(-300, 300, 400_001)
    one, other = (np.exp(log_density(grid[:, None], *records, mechanism)) for records in (first, second))
    order = np.argsort(other / one)
    found, accused = (np.cumsum(density[order]) * (grid[1] - grid[0]) for density in (one, other))
    for rate in (0.001, 0.01, 0.1):
        assert found[np.searchsorted(accused, rate)] <= curve.true_positive_rate(rate) + 1e-6
