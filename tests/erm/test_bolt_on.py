"""Bolt-on SGD: how far a record moves its last weights."""

import numpy as np
import pytest

from tests.erm import problems
from tfdp.accounting import Relation, Status
from tfdp.erm import BoltOnSGD, OutputPerturbation, PrivateLogisticRegression
from tfdp.erm.noise import SecretNormals


def last_weights(mechanism, features, signs, seed=3):
    return mechanism.found(features, signs, SecretNormals(seed))


@pytest.mark.parametrize(
    ("penalty", "passes", "batch_size"), [(0.001, 2, 1), (0.1, 3, 7), (10.0, 1, 10), (0.01, 5, 100)]
)
def test_no_record_moves_the_last_weights_by_more_than_the_sensitivity(penalty, passes, batch_size):
    """100 records, each left out (its features 0 in its place of the order), two fits of three classes."""
    features, signs = problems.in_the_ball(100, classes=3, spread=2.0)
    setting = problems.setting(features, signs, penalty=penalty)
    mechanism = BoltOnSGD.calibrated(setting, passes=passes, batch_size=batch_size)
    everyone = last_weights(mechanism, features, signs)
    moves = []
    for i in range(100):
        without = features.copy()
        without[i] = 0.0
        moves.append(np.linalg.norm(last_weights(mechanism, without, signs) - everyone))
    assert mechanism.sensitivity / 50 < max(moves) <= mechanism.sensitivity


def test_a_replaced_record_under_a_strong_penalty_nearly_reaches_it():
    """One record against its opposite: derivatives are a half where weights are small."""
    features, signs = np.array([[1.0, 1.0]]), np.array([[1.0]])
    setting = problems.setting(features, signs, penalty=1e3, relation=Relation.REPLACE_ONE)
    mechanism = BoltOnSGD.calibrated(setting, passes=1, batch_size=1)
    moved = np.linalg.norm(last_weights(mechanism, features, signs) - last_weights(mechanism, -features, signs))
    assert 0.45 * mechanism.sensitivity < moved <= mechanism.sensitivity


def test_its_sensitivity_is_that_of_the_exact_minimiser_and_less_where_the_last_batch_is_small():
    features, signs = problems.in_the_ball(100)
    setting = problems.setting(features, signs, tolerance=1e-12)
    exact = OutputPerturbation.calibrated(setting)
    assert BoltOnSGD.calibrated(setting, passes=4, batch_size=10).sensitivity == pytest.approx(exact.sensitivity)
    assert BoltOnSGD.calibrated(setting, passes=4, batch_size=30).sensitivity == pytest.approx(
        100 / 120 * exact.sensitivity
    )


def test_many_passes_come_to_the_optimum_and_the_claim_is_proven():
    x, y = problems.blobs(5000)
    model = PrivateLogisticRegression(
        "output", epsilon=20.0, delta=1e-5, regularization=0.05, passes=20, classes=[0, 1]
    )
    model.fit(x, y)
    assert model.optimality_gap(x, y) < 2e-3
    assert model.statement_.claims[0].status is Status.PROVEN
    assert "20 passes of SGD in batches of 50" in " ".join(str(model.statement_).split())
