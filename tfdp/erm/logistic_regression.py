"""The estimator: records in, a private classifier and its privacy statement out."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np
from scipy import special

from tfdp.accounting import Relation
from tfdp.erm import dbdp, gradient
from tfdp.erm import input as noise_on_records
from tfdp.erm.arguments import NEIGHBOURS, check_arguments, own_arguments
from tfdp.erm.bolt_on import BoltOnSGD
from tfdp.erm.gradient_descent import GradientDescent
from tfdp.erm.logistic import mean_loss, smallest_mean_loss
from tfdp.erm.noise import SecretNormals
from tfdp.erm.objective import ObjectivePerturbation
from tfdp.erm.output import OutputPerturbation
from tfdp.erm.records import Ball, checked_classes, checked_features, checked_labels, signs_of
from tfdp.erm.setting import Setting
from tfdp.erm.statement import statement_of, with_classes_of_the_labels

_AT_ONCE = ("objective", "output")
_IN_STEPS = {"gradient": gradient, "input": noise_on_records, "dbdp": dbdp}


class PrivateLogisticRegression:
    """Logistic regression with differential privacy, in scikit-learn's conventions.

    More than two classes are fitted one against the rest, and all fits together cost ``epsilon``.

    Example:

    >>> model = tfdp.erm.PrivateLogisticRegression(method="objective", epsilon=1.0, classes=[0, 1]).fit(x_train, y_train)
    >>> model.score(x_test, y_test)
    >>> print(model.statement_)

    Args:
        method: "objective" (a random linear term in the loss, the most accurate of them as a rule), "output" (noise on the
            minimiser), "gradient" (noisy SGD), "input" (noise on the records themselves: a stronger guarantee, and much noise) or "dbdp"
            (noise on records of large influence: nothing is proven).
        epsilon: what the fit may cost.
        delta: the probability with which that may fail. None: the largest power of ten below 1 / (number of records).
        regularization: lambda in ``1/n sum of losses + lambda / 2 ||w||^2``, the intercept being one of the weights; n is public.
            "objective" raises it where the proof needs more (``regularization_``).
        clip_norm: each record's features are clipped to this l2 norm, in ``fit`` and ever after. Scale features so that few are
            longer, by what is publicly known of them. Weights are regularised in units of it.
        fit_intercept: whether there is one.
        intercept_scaling: the intercept's feature, in units of ``clip_norm``. A larger one is regularised less, and makes every record
            longer.
        classes: all labels there may be, known to the public. None: those that occur in ``y``, taken to be public.
        neighbours: "zero_out" (one record's content is replaced by nothing, as everywhere in tfdp; the default) or "replace_one" (by
            another record: about twice the noise). "gradient" has the first only, "input" and "dbdp" the second.
        tol: the minimiser stops at a gradient of this norm, in units of the largest that one record can have. Noise covers what is
            left to the minimum.
        passes, batch_size: of "output" (None, 50): in place of the exact minimiser, so many passes of SGD (bolt-on SGD, Wu et al. 2017):
            the same noise, for more weights than a matrix of their squares can hold.
        gradient_steps: of "output" (None): in place of the exact minimiser, so many steps of gradient descent from 0 (Zhang et al. 2017):
            no more noise, less for few steps, and any number of weights.
        epochs, batch_size, learning_rate, denoise: of "gradient" (20, 256, 1.0, None): passes over the data, expected lot
            size, learning rate, and "laplacian" for DP-LSSGD (Wang et al. 2019) or "ks".
        randomized_response: of "input" (0.0): the share of labels that are drawn anew. Without it labels are not protected, and
            epsilon is about the features alone.
        as_published: of "input" (False): the paper's noise in place of the proven one, for ``steps`` gradient steps (100) of
            ``learning_rate`` (1.0).
        steps, learning_rate: of "dbdp" (1000, 0.1): steps on one record each, a multiple of ten.
        noise_seed: reproducible noise of "objective" and "output", for tests: the statement then claims nothing.

    Attributes:
        classes_, coef_, intercept_, n_features_in_: as in scikit-learn. ``coef_`` is for features that are clipped.
        statement_: what the fit cost, and what is not covered. ``.epsilon`` is None where nothing is proven.
        regularization_: lambda as used.
    """

    _estimator_type = "classifier"

    def __init__(
        self,
        method: str = "objective",
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        regularization: float = 1e-3,
        clip_norm: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        classes: Any = None,
        neighbours: str | None = None,
        tol: float = 1e-6,
        passes: int | None = None,
        gradient_steps: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        denoise: str | None = None,
        randomized_response: float | None = None,
        as_published: bool | None = None,
        steps: int | None = None,
        noise_seed: int | None = None,
    ):
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.regularization = regularization
        self.clip_norm = clip_norm
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.classes = classes
        self.neighbours = neighbours
        self.tol = tol
        self.passes = passes
        self.gradient_steps = gradient_steps
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.denoise = denoise
        self.randomized_response = randomized_response
        self.as_published = as_published
        self.steps = steps
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: Any) -> PrivateLogisticRegression:
        """Fits once, and costs ``epsilon`` once. Fitting the same records again costs it again."""
        check_arguments(self.get_params())
        features = checked_features(X)
        labels = checked_labels(y, len(features))
        classes = checked_classes(self.classes, labels)
        ball, signs = self._ball(), signs_of(labels, classes)
        inside = ball.inside(features)
        setting = self._setting(inside, signs, ball)
        weights, statement, regularization = self._trained(setting, inside, signs)
        _check_finite(weights, statement)
        self.regularization_ = regularization
        self.statement_ = with_classes_of_the_labels(statement) if self.classes is None else statement
        self.classes_ = classes
        self.n_features_in_ = features.shape[1]
        self.coef_, self.intercept_ = ball.unscaled(weights)
        self._fitted_ball, self._weights = ball, weights
        return self

    def _trained(self, setting: Setting, inside: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, Any, float]:
        """(weights, statement, lambda as used)"""
        own = own_arguments(self.get_params())
        if self.method in _AT_ONCE:
            normals, mechanism = SecretNormals(own["noise_seed"]), self._mechanism(setting, own)
            weights = mechanism.release(inside, signs, normals)
            statement = statement_of(mechanism, normals.seeded)
            return weights, statement, mechanism.regularization / setting.records
        if self.method == "input":
            own["has_intercept"] = self.fit_intercept
        return *_IN_STEPS[self.method].trained(setting, inside, signs, **own), setting.penalty

    def _mechanism(self, setting: Setting, own: dict[str, Any]) -> ObjectivePerturbation | OutputPerturbation:
        if self.method == "objective":
            return ObjectivePerturbation.calibrated(setting)
        if own["passes"] is not None:
            return BoltOnSGD.calibrated(setting, passes=own["passes"], batch_size=own["batch_size"])
        if own["gradient_steps"] is not None:
            return GradientDescent.calibrated(setting, gradient_steps=own["gradient_steps"])
        return OutputPerturbation.calibrated(setting)

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores ``[records]`` for two classes (positive: the second one), else ``[records, classes]``."""
        self._check_fitted()
        scores = self._fitted_ball.inside(checked_features(X, self.n_features_in_)) @ self._weights.T
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """``[records, classes]``: of one class against the rest, scaled to sum to 1."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack([special.expit(-scores), special.expit(scores)], axis=1)
        return special.softmax(special.log_expit(scores), axis=1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of records that are classified correctly. On training records it is not private."""
        return float(np.average(self.predict(X) == checked_labels(y, len(X)), weights=sample_weight))

    def optimality_gap(self, X: Any, y: Any) -> float:
        """L(w) - L*, with ``L = 1/n sum of losses + regularization / 2 ||w||^2`` (summed over the fits) on these records, L* its exact
        minimum. It is not private, and not covered by the statement."""
        self._check_fitted()
        features = self._fitted_ball.inside(checked_features(X, self.n_features_in_))
        signs = signs_of(checked_classes_of(self.classes_, checked_labels(y, len(features))), self.classes_)
        loss = mean_loss(self._weights, features, signs, self.regularization)
        return loss - smallest_mean_loss(features, signs, self.regularization)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> PrivateLogisticRegression:
        unknown = sorted(set(params) - set(self._names()))
        if unknown:
            raise ValueError(
                f"Invalid parameter {unknown[0]!r} for PrivateLogisticRegression. It has {', '.join(self._names())}."
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn wants to know of an estimator. Nobody else asks."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        target, classifier = TargetTags(required=True), ClassifierTags()
        return Tags(
            estimator_type="classifier",
            target_tags=target,
            classifier_tags=classifier,
            non_deterministic=self.noise_seed is None,
        )

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = {name: value for name, value in self.get_params().items() if value is not defaults[name].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def _ball(self) -> Ball:
        return Ball(float(self.clip_norm), float(self.intercept_scaling) if self.fit_intercept else None)

    def _setting(self, inside: np.ndarray, signs: np.ndarray, ball: Ball) -> Setting:
        records = len(inside)
        return Setting(
            records=records,
            fits=len(signs),
            weights=inside.shape[1],
            radius=ball.radius,
            relation=Relation(self.neighbours or NEIGHBOURS[self.method][0]),
            epsilon=float(self.epsilon),
            delta=float(f"1e-{len(str(records))}") if self.delta is None else float(self.delta),
            penalty=float(self.regularization),
            tolerance=float(self.tol),
        )

    def _check_fitted(self) -> None:
        if not hasattr(self, "statement_"):
            raise _not_fitted_error()(
                "This PrivateLogisticRegression instance is not fitted yet. Call fit(X, y) first."
            )


class NotFittedError(ValueError, AttributeError):
    """``predict`` and the like before ``fit``. It is scikit-learn's own too, where that is imported."""


def _not_fitted_error() -> type[NotFittedError]:
    theirs = sys.modules.get("sklearn.exceptions")
    if theirs is None:
        return NotFittedError
    return type("NotFittedError", (NotFittedError, theirs.NotFittedError), {})


def _check_finite(weights: np.ndarray, statement: Any) -> None:
    """After training: that it diverged says something of the records, so that what the statement claims counts all the same."""
    if not np.isfinite(weights).all():
        spent = "without a proven epsilon" if statement.epsilon is None else f"at epsilon = {statement.epsilon:.4g}"
        raise ValueError(
            f"The fit diverged: its weights are not finite. It read the records, {spent}, which counts. Write a smaller learning_rate."
        )


def checked_classes_of(classes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The labels, all of which are of the classes that were fitted."""
    checked_classes(classes, labels)
    return labels
