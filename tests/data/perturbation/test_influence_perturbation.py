"""Algorithm 2 of Kang et al. 2020 (data perturbation)."""

import math

import keras
import numpy as np
import pytest

import tfdp
from tests.data.perturbation.test_influence import at_the_optimum, fitted, logistic_model, records
from tfdp.accounting import Status
from tfdp.accounting.perturbation import record_noise
from tfdp.data import InfluencePerturbation
from tfdp.data.perturbation.influence_rounds import Setting


def perturbation(model, epsilon=1.0, **changes):
    return InfluencePerturbation(model, epsilon, 1e-5, **{"lipschitz": 1.0, **changes})


def setting(epsilon=1.0, rule="normalized") -> Setting:
    return Setting(epsilon, 1e-5, 1.0, rule, 1.0, 10, 0.0)


def test_line_9_by_hand():
    """theta = (1, 2): c = (1, 2) doubles it, c = (-0.5, -1) halves it; the literal norm is sqrt(2) times the ratio."""
    weights, moves = np.array([1.0, 2.0]), np.array([[1.0, 2.0], [-0.5, -1.0], [0.0, 0.0]])
    for epsilon, rule, large in (
        (math.log(2.01), "normalized", [False, False, False]),
        (math.log(1.99), "normalized", [True, True, False]),
        (math.log(2.01), "literal", [True, False, False]),
        (math.log(1.4), "literal", [True, True, True]),
        (1e300, "literal", [False, False, False]),
    ):
        np.testing.assert_array_equal(setting(epsilon, rule=rule).large(moves, weights), large)


def test_a_weight_of_zero_that_does_not_move_counts_as_unchanged():
    found = setting().large(np.array([[0.0, 0.0], [0.0, 1.0]]), np.array([1.0, 0.0]))
    np.testing.assert_array_equal(found, [False, True])


def test_without_large_contributions_it_is_sgd_on_the_records_as_they_are():
    x, y = records()
    model = at_the_optimum(x, y)
    before = model.get_weights()
    result = perturbation(model, epsilon=50.0).train(x, y, steps=50, learning_rate=0.01)
    assert result.noisy_steps == 0
    np.testing.assert_array_equal(result.x, x)
    assert any(not np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    weights = np.concatenate([part.ravel() for part in model.get_weights()])
    np.testing.assert_allclose(weights, fitted(x, y, 0.02), atol=0.3)


def test_noise_has_the_size_of_eq_15():
    """With every record noised: in units of record_noise at the record's w it is standard normal. w is at least p (1 - p) or so."""
    x, y = records()
    model = at_the_optimum(x, y)
    result = perturbation(model, 0.5, rule="literal").train(x, y, steps=150, learning_rate=1e-9)
    assert result.noisy_steps == 150
    weights = fitted(x, y, 0.02)
    z = np.hstack([x, np.ones((100, 1))])
    p = 1 / (1 + np.exp(-z @ weights))
    units = []
    for i in np.flatnonzero(result.noised):
        mixed = p[i] * (1 - p[i]) * np.outer(z[i], weights[:-1]) + (p - y)[i] * np.eye(9, 8)
        units.append((result.x[i] - x[i]) / record_noise(0.5, 1e-5, 150, 100, 1.0, np.linalg.norm(mixed, 2)))
    assert len(units) > 60
    assert np.std(units) == pytest.approx(1, abs=0.1)
    assert abs(np.mean(units)) < 0.15
    np.testing.assert_array_equal(result.x[~result.noised], x[~result.noised])


def test_records_that_noise_does_not_reach_are_not_counted_as_noisy():
    """The model sees nothing of x, so w_t is 0; the literal rule finds every contribution large."""
    x, y = records(20)
    unseen = keras.layers.Dense(4, trainable=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((8,)), unseen, keras.layers.Dense(1)])
    model.compile("sgd", loss=keras.losses.BinaryCrossentropy(from_logits=True))
    result = perturbation(model, 0.5, rule="literal", damping=0.1).train(x, y, steps=10, learning_rate=0.01)
    assert (result.steps, result.noisy_steps) == (10, 0)
    assert not result.noised.any()
    np.testing.assert_array_equal(result.x, x)


def test_nothing_is_proven_and_the_papers_claim_has_its_reason():
    x, y = records()
    result = perturbation(at_the_optimum(x, y)).train(x, y, steps=10, learning_rate=0.01)
    assert {claim.status for claim in result.claims} == {Status.NONE, Status.AS_PUBLISHED}
    published = result.claims[-1]
    assert (published.epsilon, published.delta) == (1.0, 1e-5)
    assert "Taylor" in published.reasons[0]
    assert "T / n^2 is 0.001 here" in published.reasons[1] and "c_1 is above 1e+03" in published.reasons[1]
    assert "NONE: epsilon = infinity" in str(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "sum"}, "rule must be one of 'normalized', 'literal'"),
        ({"epsilon": 0.0}, "target_epsilon must be positive"),
        ({"lipschitz": -1.0}, "lipschitz must be positive"),
        ({"local_steps": 0}, "local_steps must be at least 1"),
        ({"damping": -1.0}, "damping must not be negative"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        perturbation(logistic_model(1), **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (np.where(x > 1, np.nan, x), y), "NaN"),
        (lambda x, y: (x, np.where(y > 0, np.inf, y)), "infinity"),
        (lambda x, y: (x[:, 0], y), "one row each"),
        (lambda x, y: (x[:0], y[:0]), "at least one record"),
        (lambda x, y: (x.astype(np.int64), y), "integers without a public range"),
        (lambda x, y: (x.astype(str), y), "must hold numbers"),
    ],
)
def test_bad_records_are_named_before_anything_changes(change, message):
    x, y = records(20)
    model = at_the_optimum(x, y)
    weights = model.get_weights()
    with pytest.raises(ValueError, match=message):
        perturbation(model).train(*change(x, y), steps=10, learning_rate=0.1)
    for one, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_round_is_not_cut():
    x, y = records(20)
    with pytest.raises(ValueError, match="no multiple of local_steps=10"):
        perturbation(at_the_optimum(x, y)).train(x, y, steps=15, learning_rate=0.1)


def test_it_ends_what_was_proven_of_privately_trained_weights():
    x, y = records()
    model = at_the_optimum(x, y)
    loss = model.loss
    model.compile(tfdp.NoisySGD(0.01, l2_norm_clip=1.0, noise_multiplier=2.0), loss=loss)
    model.fit(x, y, batch_size=20, verbose=0)
    assert tfdp.privacy_statement(model, delta=1e-3).epsilon < math.inf
    weights = model.get_weights()
    with pytest.raises(ValueError, match="Compile it with an ordinary one"):
        perturbation(model).train(x, y, steps=10, learning_rate=0.01)
    for one, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)
    model.compile(keras.optimizers.SGD(), loss=loss)
    assert tfdp.privacy_statement(model, delta=1e-3).epsilon < math.inf
    perturbation(model, damping=1.0).train(x, y, steps=10, learning_rate=0.01)
    assert tfdp.privacy_statement(model, delta=1e-3).epsilon is None
