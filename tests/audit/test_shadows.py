"""Likelihood ratios by shadow models, against scipy, numpy and simulation."""

import numpy as np
import pytest
from scipy import stats

from tests.optimizers.tiny import X, Y, linear
from tfdp.audit import Shadows, membership_inference, train_shadows
from tfdp.audit.membership import area_under_curve

MEMBERS, OTHERS = (X[:4], Y[:4]), (X[4:], Y[4:])


def model():
    made = linear()
    made.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    return made


def halves(shadows: int, records: int, random) -> np.ndarray:
    rows = [random.permutation(records) < records // 2 for _ in range(shadows // 2)]
    return np.array([half for row in rows for half in (row, ~row)])


def test_ratios_are_those_of_normal_densities():
    random = np.random.default_rng(1)
    included = halves(6, 10, random)
    seen, target = random.standard_normal((6, 10)), random.standard_normal(10)
    spread = []
    for which in (included, ~included):
        left = [seen[which[:, record], record] for record in range(10)]
        spread.append(np.sqrt(np.mean([np.var(values, ddof=1) for values in left])))
    expected = [
        stats.norm(seen[included[:, r], r].mean(), spread[0]).logpdf(target[r])
        - stats.norm(seen[~included[:, r], r].mean(), spread[1]).logpdf(target[r])
        for r in range(10)
    ]
    np.testing.assert_allclose(Shadows(seen, included).likelihood_ratios(target), expected, rtol=1e-9)


def test_where_records_differ_in_difficulty_they_find_what_the_loss_does_not():
    """Training on a record raises its confidence by 2, and records differ by 10."""
    random = np.random.default_rng(2)
    records, shadows = 400, 16
    difficulty = 10 * random.standard_normal(records)
    included = halves(shadows, records, random)
    seen = difficulty + 2 * included + random.standard_normal((shadows, records))
    target = difficulty + 2 * (np.arange(records) < 200) + random.standard_normal(records)
    ratios = Shadows(seen, included).likelihood_ratios(target)
    assert area_under_curve(-target[:200], -target[200:]) < 0.65
    best = stats.norm.cdf(np.sqrt(2))  # of N(2, 1) against N(0, 1)
    assert abs(area_under_curve(-ratios[:200], -ratios[200:]) - best) < 0.05


def test_shadows_are_trained_on_complementary_halves_and_keep_the_logits_of_the_right_label():
    models = []

    def make_model():
        models.append(model())
        return models[-1]

    shadows = train_shadows(make_model, MEMBERS, OTHERS, count=4, seed=3, batch_size=2, epochs=1)
    np.testing.assert_array_equal(shadows.included.sum(1), 4)
    np.testing.assert_array_equal(shadows.included[::2], ~shadows.included[1::2])
    for trained, confidences in zip(models, shadows.confidences, strict=True):
        kernel, bias = trained.get_weights()
        probability = np.exp(-np.square(X @ kernel + bias - Y)[:, 0])
        np.testing.assert_allclose(confidences, np.log(probability / (1 - probability)), rtol=1e-3, atol=1e-4)
    found = membership_inference(models[0], MEMBERS, OTHERS, shadows=shadows)
    ratios = shadows.likelihood_ratios(shadows.confidences[0])
    assert found.auc == area_under_curve(-ratios[:4], -ratios[4:])
    assert str(found).startswith("Membership by the likelihood ratio")


def test_bad_arguments():
    for count, message in ((3, "at least 4"), (5, "count must be even")):
        with pytest.raises(ValueError, match=message):
            train_shadows(lambda: pytest.fail("a model was made"), MEMBERS, OTHERS, count=count)
    with pytest.raises(ValueError, match="for the same records"):
        membership_inference(model(), MEMBERS, MEMBERS, shadows=Shadows(np.zeros((4, 9)), np.zeros((4, 9), bool)))
