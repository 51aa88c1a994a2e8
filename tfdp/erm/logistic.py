"""The regularised logistic loss of several fits at once, its exact optimum, and a minimiser to a stated gradient norm.

One fit is ``F(w) = sum_i log(1 + exp(-y_i w.z_i)) + regularization / 2 ||w||^2 + linear.w``: a sum over records, not a mean.
Fits share the features z and differ in the signs y (one class against the rest) and in the linear term (noise).
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, special

CURVATURE = 0.25  # the largest second derivative of log(1 + exp(-t))
_AT_ONCE = 2 * 10**7  # numbers in the largest array that is made
_HALVINGS = 30  # a shorter step would have to shrink the gradient by less than rounding moves it
_MOST_STEPS = 2_000  # only where rounding is in the way: ten are usual


def gradients(weights: np.ndarray, features: np.ndarray, signs: np.ndarray, regularization: float, linear: np.ndarray):
    """``[fits, weights]``."""
    slopes = -signs * special.expit(-signs * (weights @ features.T))
    return slopes @ features + regularization * weights + linear


def minimised(
    features: np.ndarray,
    signs: np.ndarray,
    regularization: float,
    linear: np.ndarray,
    tolerance: float,
) -> np.ndarray:
    """Weights ``[fits, weights]`` with gradients of at most ``tolerance`` (an l2 norm).

    Formal guarantee: F grows at least by ``regularization / 2 ||w - w*||^2`` around its minimiser w*, so
    ``||w - w*|| <= tolerance / regularization``. Newton's method that halves its step until the gradient shrinks gets
    there on any data, neighbours included (Boyd and Vandenberghe 2004, 10.3.3: the equations' derivative is never singular, its
    eigenvalues lie between regularization and regularization + n radius^2 / 4). It goes on until it does: an end after so many
    steps, wherever it is then, would be another mechanism. Ten steps are usual.

    Raises:
        FloatingPointError: rounding kept it from getting there.
    """
    at_once = max(1, _AT_ONCE // max(1, features.size))
    weights = []
    for first in range(0, len(linear), at_once):
        rows = slice(first, first + at_once)
        weights.append(_newton(features, signs[rows], regularization, linear[rows], tolerance))
    return np.concatenate(weights)


def _newton(features, signs, regularization, linear, tolerance) -> np.ndarray:
    weights = np.zeros_like(linear)
    gradient = gradients(weights, features, signs, regularization, linear)
    for _ in range(_MOST_STEPS):
        norms = np.linalg.norm(gradient, axis=1)
        unfinished = norms > tolerance
        if not unfinished.any():
            return weights
        direction = np.zeros_like(weights)
        hessian = _hessians(weights[unfinished], features, regularization)
        direction[unfinished] = -np.linalg.solve(hessian, gradient[unfinished][:, :, None])[:, :, 0]
        step = np.ones((len(weights), 1))
        for _ in range(_HALVINGS):
            trial = weights + step * direction
            gradient = gradients(trial, features, signs, regularization, linear)
            shrunk = np.linalg.norm(gradient, axis=1) <= (1 - 1e-4 * step[:, 0]) * norms
            if (shrunk | ~unfinished).all():
                break
            step[~shrunk & unfinished] /= 2
        else:
            break
        weights = trial
    raise FloatingPointError(
        f"Rounding keeps the minimiser from a gradient of {tolerance:.3g}. Give a larger tol. Nothing was released."
    )


def _hessians(weights: np.ndarray, features: np.ndarray, regularization: float) -> np.ndarray:
    """``[fits, weights, weights]``: signs do not matter, the second derivative is even."""
    scores = weights @ features.T
    curvatures = special.expit(scores) * special.expit(-scores)
    scaled = curvatures[:, :, None] * features[None]
    return features.T @ scaled + regularization * np.eye(features.shape[1])


def mean_loss(weights: np.ndarray, features: np.ndarray, signs: np.ndarray, penalty: float) -> float:
    """``1/n sum_i loss_i + penalty / 2 ||w||^2``, summed over the fits: the L of the papers."""
    losses = np.logaddexp(0.0, -signs * (weights @ features.T))
    return float(losses.mean(axis=1).sum() + penalty / 2 * (weights**2).sum())


def smallest_mean_loss(features: np.ndarray, signs: np.ndarray, penalty: float) -> float:
    """L*, without any privacy: scipy's minimiser, fit by fit."""
    return sum(_smallest(features, row, penalty) for row in signs)


def _smallest(features: np.ndarray, signs: np.ndarray, penalty: float) -> float:
    def value_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        row, both = weights[None], signs[None]
        slope = gradients(row, features, both, 0.0, np.zeros_like(row))[0] / len(features) + penalty * weights
        return mean_loss(row, features, both, penalty), slope

    start = np.zeros(features.shape[1])
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-10}
    return float(optimize.minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).fun)
