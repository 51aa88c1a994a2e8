"""Input perturbation: noise on the records, once, and an ordinary fit on what comes out (Kang et al. 2020, input perturbation).

Proven is the privacy of the noisy records themselves (``tfdp.data.InputPerturbation``): the fit is post-processing, whatever it does.
The paper's own noise is far smaller, and claims the privacy of the model only, without a proof that holds.
"""

from __future__ import annotations

import numpy as np

from tfdp.data import InputPerturbation, PerturbationStatement
from tfdp.erm.logistic import gradients, minimised
from tfdp.erm.records import signs_of
from tfdp.erm.setting import Setting


def trained(
    setting: Setting,
    features: np.ndarray,
    signs: np.ndarray,
    *,
    has_intercept: bool,
    randomized_response: float,
    as_published: bool,
    steps: int,
    learning_rate: float,
) -> tuple[np.ndarray, PerturbationStatement]:
    """Weights ``[fits, weights]`` of the fit on noisy records, and the statement of those.

    The intercept's feature is public and gets no noise; the others are at most 1 long. As published, the fit is ``steps`` gradient
    steps on all records, which the noise is made for; else it is exact.
    """
    own = features[:, :-1] if has_intercept else features
    classes = np.arange(max(2, len(signs)))
    labels = (signs[0] > 0).astype(int) if len(signs) == 1 else signs.argmax(axis=0)
    labels_too = {"randomized_response": randomized_response, "classes": len(classes)} if randomized_response else {}
    if as_published:
        perturbation = InputPerturbation.as_published(
            setting.epsilon, setting.delta, steps, len(features), setting.radius, setting.penalty, **labels_too
        )
    else:
        perturbation = InputPerturbation.proven(setting.epsilon, setting.delta, **labels_too)
    noisy, labels = perturbation.on_arrays(own, labels)
    noisy = np.hstack([noisy, features[:, own.shape[1] :]]).astype(np.float64)
    return _fitted(
        setting, noisy, signs_of(labels, classes), steps if as_published else None, learning_rate
    ), perturbation.statement()


def _fitted(
    setting: Setting, features: np.ndarray, signs: np.ndarray, steps: int | None, learning_rate: float
) -> np.ndarray:
    weights = np.zeros((len(signs), features.shape[1]))
    regularization = setting.records * setting.penalty
    if steps is None:
        return minimised(features, signs, regularization, weights, setting.gradient_norm)
    for _ in range(steps):
        weights = weights - learning_rate / setting.records * gradients(
            weights, features, signs, regularization, np.zeros_like(weights)
        )
    return weights
