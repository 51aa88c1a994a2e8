"""Influence functions: how far leaving out one record would move the weights of a trained model (Koh and Liang 2017)."""

from __future__ import annotations

import keras
import numpy as np
import scipy.linalg
from scipy.sparse import linalg

from tfdp.accounting import checks
from tfdp.data.perturbation.model_derivatives import ModelDerivatives

MOST_EXACT = 2000
_TOLERANCE = 1e-6


class Influence:
    """The contributions of records to weights at an optimum: ``theta_{-z} - theta = H^-1 grad l(z, theta) / n`` (Kang et al. 2020, data
    perturbation, eq. 14), to first order in 1 / n.

    H is the loss's second derivative, penalties included, at the weights the model has when this is made, plus ``damping`` times the
    identity: exact and inverted once for up to 2,000 weights; above, conjugate gradients on its products with vectors.

    Example:

    >>> moves = tfdp.data.Influence(model, x, y).contributions(x[:10], y[:10])  # [10, weights]

    Args:
        model: built and compiled; its weights minimise the loss on x and y, or nearly so.
        x, y: all records it was trained on.
        damping: added to H's diagonal. Needed where H is not positive definite, as in networks away from a minimum.

    Raises:
        ValueError: H is not positive definite.
    """

    def __init__(self, model: keras.Model, x: np.ndarray, y: np.ndarray, damping: float = 0.0):
        self.derivatives = ModelDerivatives(model)
        self._damping = checks.non_negative(
            "damping", damping, "write what is added to the Hessian's diagonal, such as 0.01"
        )
        self._x, self._y = checked_arrays(x, y)
        self._factor, self._pretrained = None, model.get_weights()
        if self.derivatives.weights <= MOST_EXACT:
            hessian = self.derivatives.hessian(self._x, self._y) + self._damping * np.eye(self.derivatives.weights)
            try:
                self._factor = scipy.linalg.cho_factor(hessian)
            except np.linalg.LinAlgError:
                raise ValueError(_NOT_DEFINITE) from None

    def contributions(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """``[records, weights]``: where each record's absence would move the weights, at the weights the model has now."""
        gradients = self.derivatives.record_gradients(x, y) / len(self._x)
        if self._factor is not None:
            return scipy.linalg.cho_solve(self._factor, gradients.T).T
        with self.derivatives.at(self._pretrained):
            return np.stack([self._solved(gradient) for gradient in gradients])

    def _solved(self, gradient: np.ndarray) -> np.ndarray:
        def product(vector: np.ndarray) -> np.ndarray:
            found = self.derivatives.hessian_product(self._x, self._y, vector) + self._damping * vector
            if vector.any() and found @ vector <= 0:
                raise ValueError(_NOT_DEFINITE)
            return found

        operator = linalg.LinearOperator((len(gradient), len(gradient)), matvec=product, dtype=np.float64)
        found, unfinished = linalg.cg(operator, gradient, rtol=_TOLERANCE, maxiter=10 * len(gradient))
        if unfinished:
            raise ValueError(
                "Conjugate gradients did not converge: the Hessian is too close to singular. Give a larger damping=."
            )
        return found


_NOT_DEFINITE = (
    "The Hessian is not positive definite: the weights are no strict minimum of the loss. Train further, add a penalty on weights, or "
    "give a larger damping=."
)


def checked_arrays(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finite float32 features and labels, one row a record."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype.kind not in "fiub":
        raise ValueError(f"x must hold numbers, not {x.dtype}.")
    x = x.astype(np.float32)
    if x.ndim < 2 or not len(x):
        raise ValueError(f"x must hold at least one record, one row each, not an array of shape {x.shape}.")
    if len(x) != len(y):
        raise ValueError(f"x and y must have one row a record, not {len(x)} and {len(y)}.")
    if not np.isfinite(x).all() or (y.dtype.kind == "f" and not np.isfinite(y).all()):
        raise ValueError("x and y must not hold NaN or infinity.")
    return x, y
