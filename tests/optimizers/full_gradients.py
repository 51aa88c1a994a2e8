"""Runs with full gradients, and what dp-accounting says they cost."""

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant

import tfdp
from tfdp.accounting import FullBatch, Ledger, Poisson

SIZE, BATCH, CLIP = 100, 20, 1.5
X = (np.random.default_rng(3).standard_normal((SIZE, 3)) * [1.0, 30.0, 0.01]).astype("float32")
Y = np.random.default_rng(4).standard_normal((SIZE, 1)).astype("float32")
EPOCH = SIZE // BATCH


def full(learning_rate=0.01, *, optimizer=tfdp.DirectionalDPSGD, **arguments) -> tfdp.DirectionalDPSGD:
    noise = {"noise_multiplier": 3.0, "direction_noise_multiplier": 20.0}
    noise = {} if "target_epsilon" in arguments else noise
    return optimizer(learning_rate, **{"l2_norm_clip": CLIP, "direction": "full_gradient"} | noise | arguments)


def noiseless(learning_rate=0.01, **arguments) -> tfdp.DirectionalDPSGD:
    return full(learning_rate, noise_multiplier=0.0, direction_noise_multiplier=0.0, **arguments)


def fit(model, x=X, y=Y, **arguments):
    return model.fit(x, y, **{"batch_size": BATCH, "epochs": 2, "verbose": 0} | arguments)


def counts(model) -> list[int]:
    """[full gradients, steps] of the ledger."""
    full_gradients, steps = 0, 0
    for line in model.optimizer.ledger:
        if isinstance(line.sampling, FullBatch):
            full_gradients += line.steps
        else:
            steps += line.steps
    return [full_gradients, steps]


def direction_of(model) -> np.ndarray:
    parts = model.optimizer.state_of_mechanism["full_gradient"]
    return np.concatenate([np.ravel(part.numpy()) for part in parts])


def spent(ledger: Ledger, accountant=PLDAccountant, only=None) -> float:
    """Of full and Poisson lots, by dp-accounting driven directly."""
    counted = accountant()
    for line in ledger:
        event = dp_accounting.GaussianDpEvent(line.event.noise_multiplier)
        if isinstance(line.sampling, Poisson):
            event = dp_accounting.PoissonSampledDpEvent(line.sampling.sampling_rate, event)
        if only is None or isinstance(line.sampling, only):
            counted.compose(event, line.steps)
    return counted.get_epsilon(1e-5)
