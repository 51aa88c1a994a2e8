"""Input perturbation: noise on the records, once, and an ordinary fit on what comes out (Kang et al. 2020, input perturbation).

Proven is the privacy of the noisy records themselves (``tfdp.data.InputPerturbation``): the fit is post-processing, whatever it does.
The paper's own noise is far smaller, and claims the privacy of the model only, without a proof that holds.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp.accounting import Status
from tfdp.data import InputPerturbation, PerturbationStatement
from tfdp.erm.logistic import gradients, minimised
from tfdp.erm.records import signs_of
from tfdp.erm.setting import Setting

_PENALTY = (
    "The Lipschitz constant is that of the losses alone: the penalty's own gradient, lambda times the weights, is left out, since nothing "
    "bounds the weights"
)


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
        lipschitz = (
            math.sqrt(setting.fits) * setting.radius
        )  # of the sum of all fits' losses: their gradients stand side by side
        perturbation = InputPerturbation.as_published(
            setting.epsilon, setting.delta, steps, len(features), lipschitz, setting.penalty, **labels_too
        )
    else:
        perturbation = InputPerturbation.proven(setting.epsilon, setting.delta, **labels_too)
    noisy, labels = perturbation.on_arrays(own, labels)
    noisy = np.hstack([noisy, features[:, own.shape[1] :]]).astype(np.float64)
    weights = _fitted(setting, noisy, signs_of(labels, classes), steps if as_published else None, learning_rate)
    return weights, _without_the_penalty(perturbation.statement())


def _without_the_penalty(statement: PerturbationStatement) -> PerturbationStatement:
    """The same, with what the paper's G leaves out among the reasons."""
    claims = (
        dataclasses.replace(claim, reasons=(*claim.reasons, _PENALTY)) if claim.status is Status.AS_PUBLISHED else claim
        for claim in statement.claims
    )
    return dataclasses.replace(statement, claims=tuple(claims))


def _fitted(
    setting: Setting, features: np.ndarray, signs: np.ndarray, steps: int | None, learning_rate: float
) -> np.ndarray:
    weights = np.zeros((len(signs), features.shape[1]))
    regularization = setting.records * setting.penalty
    if steps is None:
        return minimised(features, signs, regularization, weights, setting.gradient_norm)
    with np.errstate(over="ignore", invalid="ignore"):  # weights that diverge are refused by who called
        for _ in range(steps):
            slope = gradients(weights, features, signs, regularization, np.zeros_like(weights))
            weights = weights - learning_rate / setting.records * slope
    return weights
