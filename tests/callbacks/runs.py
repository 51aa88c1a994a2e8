"""Runs on a thousand records, and what dp-accounting says they cost."""

import dp_accounting
import keras
import numpy as np
from dp_accounting.pld import PLDAccountant

import tfdp
from tests.optimizers import tiny

SIZE = 1000
X = np.random.default_rng(3).standard_normal((SIZE, 3)).astype("float32")
Y = np.random.default_rng(4).standard_normal((SIZE, 1)).astype("float32")


def model_with(noise_multiplier=2.0, **arguments) -> keras.Model:
    optimizer = tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=noise_multiplier)
    return tiny.private(optimizer, **arguments)


def fit(model, *callbacks, epochs=50, batch_size=50, **arguments) -> keras.callbacks.History:
    return model.fit(X, Y, batch_size=batch_size, epochs=epochs, verbose=0, callbacks=list(callbacks), **arguments)


def spent(*lines, delta=1e-5, accountant=PLDAccountant) -> float:
    """Of (rate, noise, steps), by dp-accounting driven directly."""
    counted = accountant()
    for rate, noise, steps in lines:
        if steps:
            gaussian = dp_accounting.GaussianDpEvent(noise)
            event = gaussian if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, gaussian)
            counted.compose(event, steps)
    return counted.get_epsilon(delta)
