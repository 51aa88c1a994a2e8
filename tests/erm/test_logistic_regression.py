"""The estimator: scikit-learn's conventions, its arguments, and what it states."""

import copy
import json
import math
import pickle
import warnings

import numpy as np
import pytest
import sklearn.base
import sklearn.exceptions
import sklearn.linear_model
import sklearn.model_selection
from sklearn.utils.estimator_checks import check_estimator

from tests.erm import problems
from tfdp.accounting import Status
from tfdp.erm import PrivateLogisticRegression
from tfdp.erm.logistic_regression import NotFittedError

AT_ONCE = ["objective", "output"]


def fitted(method="objective", classes=2, records=300, **arguments):
    x, y = problems.blobs(records, classes=classes)
    model = PrivateLogisticRegression(method, epsilon=5.0, classes=list(range(classes)), **arguments)
    return model.fit(x, y), x, y


@pytest.mark.parametrize("method", AT_ONCE)
@pytest.mark.parametrize("classes", [2, 3])
def test_many_records_and_much_epsilon_give_the_weights_of_no_privacy(method, classes):
    x, y = problems.blobs(100_000, classes=classes)
    ours = PrivateLogisticRegression(method, epsilon=20.0, regularization=1e-2, clip_norm=10.0).fit(x, y)
    x = x / 10
    for k in range(len(ours.coef_)):
        theirs = sklearn.linear_model.LogisticRegression(C=1 / (100_000 * 1e-2), solver="liblinear", tol=1e-8)
        theirs.fit(x, y == (1 if classes == 2 else k))
        np.testing.assert_allclose(ours.coef_[k], theirs.coef_[0] / 10, atol=2e-3)
        np.testing.assert_allclose(ours.intercept_[k], theirs.intercept_[0], atol=1e-2)


@pytest.mark.parametrize("method", AT_ONCE)
def test_two_fits_differ_by_their_noise(method):
    assert not np.isclose(fitted(method)[0].coef_, fitted(method)[0].coef_).any()


@pytest.mark.parametrize("classes", [2, 4])
def test_shapes_and_probabilities(classes):
    model, x, y = fitted(classes=classes)
    fits = 1 if classes == 2 else classes
    assert model.coef_.shape == (fits, 4)
    assert model.intercept_.shape == (fits,)
    assert model.n_features_in_ == 4
    np.testing.assert_array_equal(model.classes_, range(classes))
    probabilities = model.predict_proba(x)
    assert probabilities.shape == (300, classes)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(x), probabilities.argmax(axis=1))
    assert model.decision_function(x).shape == ((300,) if classes == 2 else (300, classes))
    assert model.score(x, y) == (model.predict(x) == y).mean()


def test_scores_are_those_of_clipped_features_under_the_coefficients():
    model, x, _ = fitted(clip_norm=0.7)
    clipped = x * np.minimum(1, 0.7 / np.linalg.norm(x, axis=1, keepdims=True))
    np.testing.assert_allclose(model.decision_function(x), clipped @ model.coef_[0] + model.intercept_[0])


def test_classes_may_be_words():
    x, y = problems.blobs(50)
    names = np.array(["no", "yes"])
    assert set(PrivateLogisticRegression(epsilon=5.0).fit(x, names[y]).predict(x)) <= {"no", "yes"}


def test_without_an_intercept_there_is_none():
    model, *_ = fitted(fit_intercept=False)
    np.testing.assert_array_equal(model.intercept_, [0.0])


@pytest.mark.parametrize("method", AT_ONCE)
def test_the_optimality_gap_is_that_of_scikit_learns_optimum(method):
    model, x, y = fitted(method, fit_intercept=False, regularization=0.05)
    x = x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    theirs = sklearn.linear_model.LogisticRegression(C=1 / (300 * 0.05), fit_intercept=False, tol=1e-10).fit(x, y)

    def loss(weights):
        return np.log1p(np.exp(-(2 * y - 1) * (x @ weights))).mean() + 0.05 / 2 * weights @ weights

    gap = loss(model.coef_[0]) - loss(theirs.coef_[0])
    assert gap > 0
    assert model.optimality_gap(x, y) == pytest.approx(gap, abs=1e-7)


@pytest.mark.parametrize("method", AT_ONCE)
@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one"])
def test_what_is_proven_is_what_was_asked_for(method, neighbours):
    model, *_ = fitted(method, neighbours=neighbours, delta=1e-4)
    (claim,) = model.statement_.claims
    assert (claim.status, claim.neighbours, claim.delta) == (Status.PROVEN, neighbours, 1e-4)
    assert model.statement_.epsilon == 5.0


def test_delta_is_the_largest_power_of_ten_below_one_record_by_default():
    assert fitted(records=300)[0].statement_.delta == 1e-3
    assert fitted(records=1000)[0].statement_.delta == 1e-4


@pytest.mark.parametrize("method", AT_ONCE)
def test_seeded_noise_repeats_and_proves_nothing(method):
    first, second = (fitted(method, noise_seed=7)[0] for _ in range(2))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert first.statement_.epsilon is None
    assert first.statement_.claims[0].status is Status.NONE
    assert math.isinf(first.statement_.claims[0].epsilon)


@pytest.mark.parametrize("method", AT_ONCE)
def test_what_no_minimiser_can_reach_is_not_released(method):
    with pytest.raises(FloatingPointError, match=r"Give a larger tol. Nothing was released"):
        fitted(method, tol=1e-30)


@pytest.mark.parametrize("method", AT_ONCE)
def test_the_statement_says_what_was_released_and_under_which_neighbours(method):
    text = " ".join(str(fitted(method)[0].statement_).split())
    assert f"{method} perturbation" in text
    assert "PROVEN: epsilon = 5 at delta = 0.001" in text
    assert "one record's content is replaced by nothing" in text
    assert "PROVEN: whoever accuses people" in text
    assert "they were read from the labels" not in text
    assert max(map(len, str(fitted(method)[0].statement_).splitlines())) <= 100


READ_FROM_LABELS = "Which classes there are: they were read from the labels"


@pytest.mark.parametrize(
    "arguments", [{}, {"method": "gradient", "epochs": 1}, {"method": "input"}, {"method": "dbdp", "steps": 10}]
)
def test_classes_that_were_read_from_labels_are_named_as_not_protected(arguments):
    x, y = problems.blobs(50)
    model = PrivateLogisticRegression(**arguments).fit(x, y)
    assert READ_FROM_LABELS in " ".join(str(model.statement_).split())
    assert READ_FROM_LABELS in model.statement_.to_json()


def test_classes_that_were_given_are_not():
    x, y = problems.blobs(50)
    for method in ("output", "input"):
        model = PrivateLogisticRegression(method, classes=[0, 1]).fit(x, y)
        assert READ_FROM_LABELS not in " ".join(str(model.statement_).split())


def test_the_statement_for_machines_is_strict_json_without_records():
    for arguments in ({}, {"noise_seed": 7}):
        content = json.loads(fitted(**arguments)[0].statement_.to_json())
        assert content["claims"][0]["epsilon"] == ("infinity" if arguments else 5.0)
        assert content["neighbours"] == "zero_out"
        assert content["records"] == 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "magic"}, "method must be one of 'objective', 'output', 'gradient', 'input', 'dbdp'"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": math.nan}, "epsilon must be a finite number"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1"),
        ({"regularization": 0.0}, "regularization must be positive"),
        ({"clip_norm": -1.0}, "clip_norm must be positive"),
        ({"intercept_scaling": 0.0}, "fit_intercept=False"),
        ({"fit_intercept": "yes"}, "fit_intercept must be True or False"),
        ({"neighbours": "add_or_remove"}, "neighbours must be 'zero_out' or 'replace_one'"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"noise_seed": -1}, "noise_seed must be at least 0"),
        ({"classes": [0]}, "at least two"),
        ({"epochs": 3}, "epochs is an argument of method='gradient'"),
        ({"method": "output", "batch_size": 5}, "batch_size goes with passes="),
        ({"method": "output", "passes": 0}, "passes must be at least 1"),
        ({"method": "output", "gradient_steps": 0}, "gradient_steps must be at least 1"),
        ({"method": "output", "gradient_steps": 5, "passes": 2}, "not both"),
        ({"method": "output", "gradient_steps": 5, "batch_size": 2}, "batch_size goes with passes="),
        ({"gradient_steps": 5}, "gradient_steps is an argument of method='output'"),
        ({"method": "dbdp", "steps": 15}, "multiple of local_steps"),
        ({"method": "input", "neighbours": "zero_out"}, "neighbours must be 'replace_one'"),
        ({"method": "input", "steps": 10}, "as_published=True"),
        ({"method": "input", "randomized_response": 2.0}, "must not exceed 1"),
        ({"method": "gradient", "neighbours": "replace_one"}, "neighbours must be 'zero_out'"),
        ({"method": "gradient", "noise_seed": 1}, "noise_seed"),
        ({"method": "gradient", "batch_size": 0}, "batch_size must be at least 1"),
        ({"method": []}, "method must be one of"),
        ({"neighbours": np.array(["zero_out"])}, "neighbours must be"),
        ({"epsilon": 5e-324}, "epsilon must lie between 1e-30 and 1e"),
        ({"epsilon": 1e308}, "epsilon must lie between"),
        ({"delta": 1e-300}, "delta=1e-300 is beyond"),
        ({"method": "output", "regularization": 1e-310}, "regularization must lie between"),
        ({"method": "gradient", "regularization": 1e300}, "regularization must lie between"),
        ({"method": "dbdp", "epsilon": 1e300}, "epsilon must lie between"),
        ({"clip_norm": 1e-308}, "clip_norm must lie between"),
        ({"tol": 1e308}, "tol must lie between"),
        ({"intercept_scaling": 1e160}, "intercept_scaling must lie between"),
        ({"method": "input", "as_published": True, "steps": 10**400}, "steps must be at most"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_fitted(arguments, message):
    x, y = problems.blobs(20)
    model = PrivateLogisticRegression(**arguments)
    with pytest.raises(ValueError, match=message):
        model.fit(x, y)
    assert not hasattr(model, "statement_")


def test_nothing_is_predicted_before_fit():
    with pytest.raises(NotFittedError, match="not fitted yet") as raised:
        PrivateLogisticRegression().predict([[0.0]])
    assert isinstance(raised.value, sklearn.exceptions.NotFittedError)


def test_a_fit_that_diverges_says_so_and_that_it_counts():
    """A penalty of 10 at a learning rate of 1e30 makes weights 1e31 times as large a step."""
    x, y = problems.blobs(20)
    model = PrivateLogisticRegression("input", as_published=True, steps=20, learning_rate=1e30, regularization=10.0)
    with pytest.raises(ValueError, match=r"diverged.*which counts"):
        model.fit(x, y)
    assert not hasattr(model, "statement_")


def test_labels_outside_of_the_fitted_classes_have_no_optimality_gap():
    model, x, y = fitted()
    with pytest.raises(ValueError, match="not in classes"):
        model.optimality_gap(x, y + 5)


def test_parameters_are_got_set_and_cloned():
    model = PrivateLogisticRegression("output", epsilon=2.0)
    assert model.get_params()["epsilon"] == 2.0
    assert model.set_params(epsilon=3.0) is model
    assert sklearn.base.clone(model).get_params() == model.get_params()
    assert repr(model) == "PrivateLogisticRegression(method='output', epsilon=3.0)"
    with pytest.raises(ValueError, match="Invalid parameter 'sigma'"):
        model.set_params(sigma=1)


def test_a_fitted_model_is_copied_and_pickled_with_its_statement():
    model, x, _ = fitted()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(twin.predict(x), model.predict(x))
        assert str(twin.statement_) == str(model.statement_)


def test_scikit_learn_can_search_with_it():
    x, y = problems.blobs(200)
    search = sklearn.model_selection.GridSearchCV(
        PrivateLogisticRegression(epsilon=5.0), {"regularization": [0.01, 1.0]}, cv=2
    )
    assert search.fit(x, y).best_params_["regularization"] in (0.01, 1.0)


NOT_APPLICABLE = {
    "check_classifiers_one_label": "one class is no classification: classes are public",
    "check_non_transformer_estimators_n_iter": "n_iter_ depends on the records and carries no noise",
    "check_supervised_y_2d": "a column of labels is refused, not guessed",
}


def test_scikit_learns_own_checks_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not inherit from BaseEstimator, and needs not
        model = PrivateLogisticRegression(epsilon=20.0, delta=1e-5, noise_seed=0)  # checks compare fits with fits
        results = check_estimator(model, expected_failed_checks=NOT_APPLICABLE, on_fail="warn")
    assert len(results) > 40
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert failed == {}
