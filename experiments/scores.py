"""How good a classifier is on records it has not seen."""

from __future__ import annotations

import keras
import numpy as np
import scipy.special

Features = np.ndarray | dict[str, np.ndarray]


def accuracy(model: keras.Model, x: Features, y: np.ndarray) -> float:
    """In per cent."""
    return 100 * float(np.mean(np.argmax(model.predict(x, batch_size=1024, verbose=0), axis=1) == y))


def rmse(model: keras.Model, x: Features, y: np.ndarray) -> float:
    """Root mean square error of the expected class."""
    logits = model.predict(x, batch_size=4096, verbose=0)
    expected = scipy.special.softmax(logits, axis=1) @ np.arange(logits.shape[1])
    return float(np.sqrt(np.mean((expected - y) ** 2)))


SCORES = {"accuracy": accuracy, "rmse": rmse}
