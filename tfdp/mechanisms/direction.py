"""Which coordinates matter, and how much: what a user says of it, by a name, by arrays or by a function of a weight."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

FULL_GRADIENT, ONES = "full_gradient", "ones"

Direction = str | Sequence[Any] | Callable


def checked_direction(direction: Direction, names: Sequence[str]) -> Direction:
    """One of the names, a list of arrays or a function of a weight.

    Raises:
        ValueError: it is none of these.
    """
    if callable(direction) or (isinstance(direction, str) and direction in names):
        return direction
    if isinstance(direction, np.ndarray) or tf.is_tensor(direction):
        direction = [direction]
    if not isinstance(direction, list | tuple):
        raise ValueError(
            f"direction must be {', '.join(map(repr, names))}, a list of arrays (one for each trainable weight) or a "
            f"function of a weight, not {direction!r}."
        )
    return [_array(part) for part in direction]


def importances_of(direction: Sequence[np.ndarray] | Callable, weights: Sequence[keras.Variable]) -> list[np.ndarray]:
    """Arrays or a function spread over the weights. Only their ratios count: scaled to a geometric mean of 1."""
    given = [direction(w) for w in weights] if callable(direction) else direction
    if len(given) != len(weights):
        raise ValueError(
            f"direction has {len(given)} arrays, but the model has {len(weights)} trainable weights: one for each, in "
            "the order of model.trainable_variables."
        )
    found = []
    for part, weight in zip(given, weights, strict=True):
        part = _array(part)
        if not (np.all(np.isfinite(part)) and np.all(part > 0)):
            raise ValueError(f"direction for {weight.path} must hold positive finite numbers: importances.")
        try:
            found.append(np.log(np.broadcast_to(part, weight.shape), dtype=np.float64))
        except ValueError as error:
            raise ValueError(
                f"direction for {weight.path} has shape {part.shape}, which can't be spread over the weight's "
                f"{tuple(weight.shape)}."
            ) from error
    middle = sum(part.sum() for part in found) / sum(part.size for part in found)
    return [np.exp(part - middle).astype(np.float32) for part in found]


def loaded_direction(direction: Any) -> Any:
    """As it was given, from what Keras saves of it: arrays and functions are saved as objects."""
    if isinstance(direction, list):
        return [loaded_direction(part) for part in direction]
    return keras.saving.deserialize_keras_object(direction) if isinstance(direction, dict) else direction


def _array(importances: Any) -> np.ndarray:
    try:
        return np.asarray(importances, np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"direction must hold arrays of numbers, not {importances!r}.") from None
