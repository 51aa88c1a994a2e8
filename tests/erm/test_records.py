"""Every record within a ball, whatever the data are."""

import numpy as np
import pytest

from tfdp.erm.records import Ball, checked_classes, checked_features, checked_labels, signs_of

HARD = np.array([[0.0, 0.0], [1e308, 1e308], [1e-320, 0.0], [3.0, 4.0], [-0.1, 0.2], [2.0**62, 1.0]])


@pytest.mark.parametrize("clip_norm", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("intercept_scaling", [None, 0.5, 2.0])
def test_no_record_is_longer_than_the_radius(clip_norm, intercept_scaling):
    ball = Ball(clip_norm, intercept_scaling)
    inside = ball.inside(HARD)
    assert np.isfinite(inside).all()
    assert np.linalg.norm(inside, axis=1).max() <= ball.radius * (1 + 1e-12)
    assert ball.radius == pytest.approx(np.sqrt(1 + (intercept_scaling or 0) ** 2))


def test_short_records_are_only_scaled_and_long_ones_keep_their_direction():
    inside = Ball(10.0, None).inside(np.array([[3.0, 4.0], [30.0, 40.0]]))
    np.testing.assert_allclose(inside, [[0.3, 0.4], [0.6, 0.8]])


def test_a_record_does_not_depend_on_the_others():
    ball = Ball(1.0, 1.0)
    np.testing.assert_array_equal(np.vstack([ball.inside(row[None]) for row in HARD]), ball.inside(HARD))


def test_unscaled_weights_give_the_same_scores():
    ball, rng = Ball(7.0, 0.5), np.random.default_rng(0)
    features, weights = rng.uniform(-2, 2, size=(5, 3)), rng.normal(size=(2, 4))
    coefficients, intercepts = ball.unscaled(weights)
    np.testing.assert_allclose(features @ coefficients.T + intercepts, ball.inside(features) @ weights.T)


def test_signs_are_one_row_for_two_classes_and_one_a_class_for_more():
    np.testing.assert_array_equal(signs_of(np.array(["b", "a"]), np.array(["a", "b"])), [[1, -1]])
    np.testing.assert_array_equal(signs_of(np.array([2, 0]), np.array([0, 1, 2])), [[-1, 1], [-1, -1], [1, -1]])


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([[1.0, np.nan]], "NaN or infinity"),
        ([[1.0, np.inf]], "NaN or infinity"),
        ([1.0, 2.0], "one row a record"),
        (np.zeros((2, 2, 2)), "one row a record"),
        (np.zeros((0, 3)), "holds no record"),
        (np.zeros((3, 0)), "holds no feature"),
        ([["a", "b"]], "must hold numbers"),
        ([[1j]], "Complex"),
        ([[10**400]], "up to 1.8e308"),
        (np.array([["2020-01-01"]], "datetime64[D]"), "times as numbers"),
        (np.array([[5]], "timedelta64[s]"), "times as numbers"),
        (np.zeros((2, 2), [("a", float)]), "fields"),
        (np.ma.masked_greater([[1.0, 9.0]], 5), "masked"),
    ],
)
def test_bad_features_are_named(features, message):
    with pytest.raises(ValueError, match=message):
        checked_features(features)


def test_another_number_of_features_than_in_fit_is_named():
    with pytest.raises(ValueError, match="X has 2 features, but PrivateLogisticRegression is expecting 3"):
        checked_features([[1.0, 2.0]], 3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "one label a record"),
        ([[0], [1]], "ravel"),
        (np.zeros((2, 2)), "vector"),
        ([0, 1, 1], "2 rows and 3 labels"),
        ([0.0, np.nan], "NaN"),
        ([0.5, 1.0], "fractions"),
        (np.array([0, np.nan], object), "missing"),
        (["a", None], "missing"),
        (["a", np.nan], "missing"),
        (np.array(["2020-01-01", "NaT"], "datetime64[D]"), "missing"),
        ([0, "a"], "words"),
        (np.ma.masked_equal([0, 1], 1), "masked"),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        checked_labels(labels, 2)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (None, "one class only"),
        ([1], "at least two"),
        ([1, 1], "different"),
        ([0, 2], "3 labels that are not in classes"),
        ([0, 1, None], "missing"),
        (np.array([1, (2,)], object), "no order"),
    ],
)
def test_bad_classes_are_named(classes, message):
    with pytest.raises(ValueError, match=message):
        checked_classes(classes, np.array([1, 1, 1]))


def test_a_class_that_does_not_occur_is_a_class():
    np.testing.assert_array_equal(checked_classes(["no", "yes", "maybe"], np.array(["no"])), ["maybe", "no", "yes"])


@pytest.mark.parametrize("labels", [["a", "b"], np.array(["a", "b"], object), np.array([0, 1], object), [True, False]])
def test_words_and_objects_may_be_labels(labels):
    found = checked_labels(labels, 2)
    assert checked_classes(None, found).tolist() == sorted(labels)
