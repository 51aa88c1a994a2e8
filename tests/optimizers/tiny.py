"""Linear regression on a few records, and what numpy says private SGD makes of it."""

import contextlib
from collections.abc import Iterator

import keras
import numpy as np

import tfdp

SIZE = 8
X = np.random.default_rng(1).standard_normal((SIZE, 3)).astype("float32")
Y = np.random.default_rng(2).standard_normal((SIZE, 1)).astype("float32")
CLIP = 1.5  # some of the gradients are longer, some shorter


def linear(**arguments) -> keras.Sequential:
    """Three features, one output; the same weights every time."""
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, **arguments)])
    model.set_weights([np.array([[0.3], [-0.2], [0.5]], "float32"), np.array([0.1], "float32")])
    return model


def noiseless(learning_rate=0.1, **arguments) -> tfdp.NoisySGD:
    return tfdp.NoisySGD(learning_rate, l2_norm_clip=CLIP, noise_multiplier=0.0, **arguments)


def noisy(learning_rate=0.1, **arguments) -> tfdp.NoisySGD:
    return tfdp.NoisySGD(learning_rate, l2_norm_clip=CLIP, noise_multiplier=1.0, **arguments)


def private(optimizer=None, model=None, **arguments) -> keras.Model:
    """A compiled private model."""
    model = linear() if model is None else model
    model.compile(optimizer=noiseless() if optimizer is None else optimizer, loss="mse", **arguments)
    return model


def train(model, x=X, y=Y, *, steps=1, **arguments) -> keras.callbacks.History:
    """Steps at rate 1: every record takes part in every one."""
    return model.fit(x, y, **{"batch_size": len(x), "steps_per_epoch": steps, "verbose": 0} | arguments)


def clipped_gradients(weights, x=X, y=Y, *, clip=CLIP, sample_weight=1.0) -> np.ndarray:
    """Of every record's squared error: [kernel, bias] side by side, clipped."""
    kernel, bias = (np.float64(w) for w in weights)
    residuals = 2 * (np.float64(x) @ kernel + bias - y) * np.reshape(sample_weight, (-1, 1))
    gradients = residuals * np.hstack([x, np.ones((len(x), 1))])
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * clip / np.maximum(norms, clip) if np.isfinite(clip) else gradients


def after_sgd(weights, x=X, y=Y, *, steps=1, learning_rate=0.1, lot=None, **arguments) -> list[np.ndarray]:
    """The weights of `linear()` after noiseless private SGD at rate 1."""
    kernel, bias = (np.float64(w) for w in weights)
    for _ in range(steps):
        mean = clipped_gradients([kernel, bias], x, y, **arguments).sum(0) / (lot or len(x))
        kernel, bias = kernel - learning_rate * mean[:3, None], bias - learning_rate * mean[3:]
    return [kernel, bias]


def assert_weights(model: keras.Model, expected: list[np.ndarray], rtol=1e-5) -> None:
    for got, wanted in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-6)


@contextlib.contextmanager
def nothing_moves(model: keras.Model) -> Iterator[None]:
    """Neither weights nor ledger nor optimizer, whatever is raised inside."""
    optimizer = model.optimizer
    before = [model.get_weights(), [keras.ops.convert_to_numpy(v) for v in optimizer.variables], optimizer.ledger]
    yield
    assert optimizer.ledger == before[2]
    for old, new in zip(before[0], model.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)
    for old, new in zip(before[1], optimizer.variables, strict=False):  # a refused fit may have built more of them
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(new), old)
