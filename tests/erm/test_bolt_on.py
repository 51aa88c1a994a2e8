"""Bolt-on SGD: how far a record moves its last weights."""

import functools

import numpy as np
import pytest

from tests.erm import problems
from tests.erm.moved import assert_within_the_sensitivity, hundred_records, moved_by_its_opposite
from tfdp.accounting import Status
from tfdp.erm import BoltOnSGD, OutputPerturbation, PrivateLogisticRegression


@pytest.mark.parametrize(
    ("penalty", "passes", "batch_size"), [(0.001, 2, 1), (0.1, 3, 7), (10.0, 1, 10), (0.01, 5, 100)]
)
def test_no_record_moves_the_last_weights_by_more_than_the_sensitivity(penalty, passes, batch_size):
    """100 records, each left out (its features 0 in its place of the order), two fits of three classes."""
    features, signs, setting = hundred_records(penalty=penalty)
    mechanism = BoltOnSGD.calibrated(setting, passes=passes, batch_size=batch_size)
    assert_within_the_sensitivity(mechanism, features, signs, np.zeros_like)


def test_a_replaced_record_under_a_strong_penalty_nearly_reaches_it():
    one_step = functools.partial(BoltOnSGD.calibrated, passes=1, batch_size=1)
    assert 0.45 < moved_by_its_opposite(one_step, penalty=1e3) <= 1


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
