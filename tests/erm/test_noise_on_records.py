"""The methods that put noise on the records: "input" and "dbdp"."""

import math

import numpy as np
import pytest

from tests.erm import problems
from tfdp.accounting import Relation, Status
from tfdp.accounting.claims import FEATURES, LABEL, MEMBERSHIP, RECORD
from tfdp.erm import PrivateLogisticRegression


def by_what(statement) -> dict:
    return {(claim.protects, claim.status): claim for claim in statement.claims}


def test_features_are_proven_and_labels_are_not():
    x, y = problems.blobs(4000, features=3)
    model = PrivateLogisticRegression("input", epsilon=8.0, delta=1e-5).fit(x, y)
    claims = by_what(model.statement_)
    features = claims[FEATURES, Status.PROVEN]
    assert 7.99 < features.epsilon <= 8.0
    assert features.neighbours is Relation.REPLACE_ONE
    assert (LABEL, Status.NONE) in claims
    assert model.statement_.epsilon is None


def test_with_randomized_labels_the_record_is_proven():
    x, y = problems.blobs(4000, features=3, classes=3)
    model = PrivateLogisticRegression("input", epsilon=8.0, delta=1e-5, randomized_response=0.1, classes=[0, 1, 2]).fit(
        x, y
    )
    assert by_what(model.statement_)[RECORD, Status.PROVEN].epsilon == pytest.approx(model.statement_.epsilon)
    assert 0 < model.statement_.epsilon <= 8.0
    assert model.coef_.shape == (3, 3)


def test_a_fit_on_noisy_records_finds_the_direction_of_the_truth():
    """Noise on features shrinks weights and leaves their direction, for centres along the first axis."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=30_000)
    x = np.zeros((30_000, 3))
    x[:, 0] = 2 * y - 1
    model = PrivateLogisticRegression("input", epsilon=8.0, delta=1e-5, regularization=1e-6).fit(x, y)
    assert model.coef_[0, 0] > 10 * np.abs(model.coef_[0, 1:]).max()
    # of x +- 1 and noise of variance s^2, the logistic regression's best weight is 2 / s^2
    assert model.coef_[0, 0] == pytest.approx(2 / model.statement_.release.stddev**2, rel=0.1)


def test_the_papers_noise_is_as_published_and_by_its_formula():
    """eq. 9 at T = 50, G = sqrt(2), Delta = 0.01, n = 1000."""
    x, y = problems.blobs(1000)
    model = PrivateLogisticRegression(
        "input", epsilon=0.1, delta=1e-5, regularization=0.01, as_published=True, steps=50
    ).fit(x, y)
    stddev = math.sqrt(2 * 50 * math.log(1e5) / (1000 * 999 * 0.1) / 0.01)
    assert model.statement_.release.stddev == pytest.approx(stddev)
    published = by_what(model.statement_)[MEMBERSHIP, Status.AS_PUBLISHED]
    assert (published.epsilon, published.delta) == (0.1, 1e-5)
    assert model.statement_.epsilon is None
    assert "the penalty's own gradient" in str(published.reasons)


def test_the_papers_noise_of_several_fits_is_for_the_longest_gradient_of_all_together():
    """Three fits' gradients at 0 are half a record long each, so together sqrt(3) times as long as one: so is G, and the noise."""
    stddevs = []
    for classes in (2, 3):
        x, y = problems.blobs(100, classes=classes)
        model = PrivateLogisticRegression("input", as_published=True, steps=1, classes=range(classes)).fit(x, y)
        stddevs.append(model.statement_.release.stddev)
    assert stddevs[1] / stddevs[0] == pytest.approx(math.sqrt(3))


def test_gradient_steps_without_noise_to_speak_of_come_to_the_optimum():
    x, y = problems.blobs(500)
    model = PrivateLogisticRegression(
        "input", epsilon=1e4, delta=1e-5, regularization=0.1, as_published=True, steps=300, learning_rate=2.0
    ).fit(x, y)
    assert model.optimality_gap(x, y) < 1e-4


def test_dbdp_starts_at_the_optimum_and_proves_nothing():
    x, y = problems.blobs(200)
    model = PrivateLogisticRegression("dbdp", epsilon=5.0, delta=1e-4, steps=20, learning_rate=0.01).fit(x, y)
    assert set(by_what(model.statement_)) == {
        (MEMBERSHIP, Status.NONE),
        (RECORD, Status.NONE),
        (MEMBERSHIP, Status.AS_PUBLISHED),
    }
    assert model.statement_.epsilon is None
    assert "Everything: nothing is proven" in str(model.statement_)
    assert 0 <= model.optimality_gap(x, y) < 0.05
