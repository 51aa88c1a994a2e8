"""Output perturbation: how far a record moves the minimiser, and that no attack beats its epsilon."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest

from tests.erm import problems
from tests.erm.attacks import epsilon_reached
from tfdp.accounting import Relation, finite_support_delta
from tfdp.erm import OutputPerturbation
from tfdp.erm.logistic import minimised
from tfdp.erm.noise import SecretNormals


def found(features, signs, regularization):
    return minimised(features, signs, regularization, np.zeros((len(signs), features.shape[1])), 1e-10)


def test_500_leave_one_out_retrainings_move_weights_by_less_than_the_sensitivity():
    features, signs = problems.in_the_ball(500, classes=3, spread=2.0)
    mechanism = OutputPerturbation.calibrated(problems.setting(features, signs, penalty=1e-3))
    everyone = found(features, signs, mechanism.regularization)
    moves = [
        np.linalg.norm(found(np.delete(features, i, 0), np.delete(signs, i, 1), mechanism.regularization) - everyone)
        for i in range(500)
    ]
    assert max(moves) <= mechanism.sensitivity
    assert (
        max(moves) > mechanism.sensitivity / 100
    )  # others hold the weights, too: the penalty is weak beside their curvature


@pytest.mark.parametrize(("relation", "share"), [(Relation.ZERO_OUT, 0.9), (Relation.REPLACE_ONE, 0.9)])
def test_the_sensitivity_is_nearly_reached(relation, share):
    """A single record against nothing, or against its opposite, under a strong penalty: the derivative there is about a half."""
    features, signs = np.array([[1.0, 1.0]]), np.array([[1.0]])
    mechanism = OutputPerturbation.calibrated(problems.setting(features, signs, penalty=1e3, relation=relation))
    other = np.zeros_like(features) if relation is Relation.ZERO_OUT else -features
    moved = np.linalg.norm(found(features, signs, 1e3) - found(other, signs, 1e3))
    assert share * mechanism.sensitivity / 2 <= moved <= mechanism.sensitivity


def test_the_sensitivity_by_hand():
    """2 L / (n lambda) of Chaudhuri et al. 2011 for a replaced record, with L = sqrt(2): 1,000 records, lambda 0.01."""
    features, signs = problems.in_the_ball(1000, classes=4)
    setting = problems.setting(features, signs[:1], tolerance=1e-12, relation=Relation.REPLACE_ONE)
    one = OutputPerturbation(setting, mu=0.5)
    assert one.sensitivity == pytest.approx(0.2828427125)
    assert one.noise_stddev == pytest.approx(0.565685425)
    left_out = dataclasses.replace(setting, relation=Relation.ZERO_OUT)
    assert OutputPerturbation(left_out, 0.5).sensitivity == pytest.approx(0.1414213562)
    four = dataclasses.replace(setting, fits=4)
    assert OutputPerturbation(four, 0.5).sensitivity == pytest.approx(2 * 0.2828427125)
    loose = dataclasses.replace(setting, tolerance=0.5)
    assert OutputPerturbation(loose, 0.5).sensitivity == pytest.approx(1.5 * 0.2828427125)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-5), (0.5, 1e-6), (3.0, 1e-5), (10.0, 1e-9)])
def test_the_noise_is_that_of_dp_accounting(epsilon, delta):
    features, signs = problems.in_the_ball(50)
    mechanism = OutputPerturbation.calibrated(problems.setting(features, signs, epsilon=epsilon, delta=delta))
    sigma = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert sigma <= mechanism.noise_stddev / mechanism.sensitivity <= sigma * 1.0001  # a little for missing tails


def test_a_large_epsilon_gets_the_noise_whose_tails_can_be_paid():
    features, signs = problems.in_the_ball(50)
    mechanism = OutputPerturbation.calibrated(problems.setting(features, signs, epsilon=1000.0))
    assert finite_support_delta(5, 1, 1 / mechanism.mu) <= 1e-9
    assert 3 < mechanism.mu < 5


def test_a_delta_beyond_all_tails_is_refused():
    features, signs = problems.in_the_ball(50)
    with pytest.raises(ValueError, match="Give a larger delta"):
        OutputPerturbation.calibrated(problems.setting(features, signs, delta=1e-25))


def attack(mechanism: OutputPerturbation, runs: int = 20_000) -> float:
    """By likelihood: a single record at the edge, or nothing."""
    normals, sets = SecretNormals(seed=1), (np.array([[1.0, 1.0]]), np.zeros((1, 2)))
    many = np.ones((runs, 1))
    first, second = (mechanism.release(features, many, normals) for features in sets)
    direction = found(sets[0], many[:1], mechanism.regularization)[0]
    return epsilon_reached(first @ direction, second @ direction, mechanism.setting.delta)


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_no_attack_beats_the_proven_epsilon(epsilon):
    one = np.ones((1, 1))
    setting = problems.setting(np.ones((1, 2)), one, epsilon=epsilon, delta=1e-3, penalty=20.0)
    mechanism = OutputPerturbation.calibrated(setting)
    reached = attack(mechanism)
    assert epsilon / 30 < reached <= epsilon
    too_little = dataclasses.replace(mechanism, mu=8 * mechanism.mu)
    assert attack(too_little) > epsilon  # the attack would notice


def test_the_noise_of_a_release_has_the_stated_size():
    features, signs = problems.in_the_ball(30)
    mechanism = OutputPerturbation.calibrated(problems.setting(features, signs))
    many = np.repeat(signs, 4000, axis=0)
    released = mechanism.release(features, many, SecretNormals(seed=2))
    noise = released - found(features, signs, mechanism.regularization)
    assert noise.std() == pytest.approx(mechanism.noise_stddev, rel=0.03)
    assert np.abs(noise.mean(axis=0)).max() < 5 * mechanism.noise_stddev / math.sqrt(4000)
