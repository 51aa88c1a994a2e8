"""DBDP-ERM with contributions (Kang et al. 2020, data perturbation, algorithm 2), from the exact optimum: nothing is proven."""

from __future__ import annotations

import keras
import numpy as np

from tfdp.data import InfluencePerturbation
from tfdp.erm.gradient import model_of
from tfdp.erm.logistic import minimised
from tfdp.erm.setting import Setting
from tfdp.erm.statement import ConvexStatement
from tfdp.report.not_protected import Limit

_EVERYTHING = Limit("everything", "Everything: nothing is proven of this training.")


def trained(
    setting: Setting, features: np.ndarray, signs: np.ndarray, *, steps: int, learning_rate: float
) -> tuple[np.ndarray, ConvexStatement]:
    """Weights ``[fits, weights]`` after ``steps`` steps on one record each, in rounds of ten, and what the paper claims of them.

    Noise is on the intercept's feature too, as on every other: the algorithm knows one vector a record.
    """
    linear = np.zeros((setting.fits, setting.weights))
    regularization = setting.records * setting.penalty
    optimum = minimised(features, signs, regularization, linear, setting.gradient_norm)
    model = model_of(setting)
    model.compile(keras.optimizers.SGD(), loss=keras.losses.BinaryCrossentropy(from_logits=True))
    model.set_weights([optimum.T])
    perturbation = InfluencePerturbation(model, setting.epsilon, setting.delta, lipschitz=setting.radius)
    targets = (signs.T > 0).astype(np.float32)
    result = perturbation.train(features, targets, steps, learning_rate * setting.fits)
    statement = ConvexStatement(
        claims=result.claims,
        delta=setting.delta,
        relation=setting.relation,
        records=setting.records,
        released=f"weights after {steps:,} draws of one record each, {result.noisy_steps:,} of them with noise on it, from the exact optimum",
        not_protected=(_EVERYTHING,),
        tradeoff=None,
        missing_tails=0.0,
    )
    (kernel,) = model.get_weights()
    return kernel.T.astype(np.float64), statement
