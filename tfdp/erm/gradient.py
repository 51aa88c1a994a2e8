"""Gradient perturbation: noisy SGD of tfdp on a Keras model of one layer (Bassily et al. 2014, Abadi et al. 2016).

Lots are Poisson samples and the epsilon is the ledger's, as in every other training with tfdp. The gradients of a logistic loss on
features in a ball are bounded, so nothing is cut by a clip of that bound.
"""

from __future__ import annotations

import math

import keras
import numpy as np

from tfdp.erm.setting import Setting
from tfdp.optimizers import NoisySGD
from tfdp.report import Statement, privacy_statement


def trained(
    setting: Setting,
    features: np.ndarray,
    signs: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    denoise: str | None,
) -> tuple[np.ndarray, Statement]:
    """Weights ``[fits, weights]`` after all steps, and the statement of the model they were trained in.

    Keras takes the mean over the fits where this room takes the sum: learning rate, penalty and clip are scaled to it. The penalty's
    gradient holds no record and is added after the noise.
    """
    fits, model = setting.fits, model_of(setting)
    optimizer = NoisySGD(
        learning_rate * fits,
        l2_norm_clip=setting.radius / math.sqrt(fits),
        target_epsilon=setting.epsilon,
        delta=setting.delta,
        denoise=denoise,
    )
    model.compile(optimizer=optimizer, loss=keras.losses.BinaryCrossentropy(from_logits=True))
    targets = (signs.T > 0).astype(np.float32)
    model.fit(features.astype(np.float32), targets, batch_size=min(batch_size, len(features)), epochs=epochs, verbose=0)
    (kernel,) = model.get_weights()
    return kernel.T.astype(np.float64), privacy_statement(model)


def model_of(setting: Setting) -> keras.Model:
    """One layer, a row of scores a record. The intercept is a feature."""
    penalty = keras.regularizers.L2(setting.penalty / 2 / setting.fits)
    layer = keras.layers.Dense(setting.fits, use_bias=False, kernel_initializer="zeros", kernel_regularizer=penalty)
    return keras.Sequential([keras.Input((setting.weights,)), layer])
