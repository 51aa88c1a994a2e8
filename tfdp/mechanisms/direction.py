"""Which coordinates matter, and how much: what a user says of it, by a name, by arrays or by a function of a weight."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

FULL_GRADIENT, ONES = "full_gradient", "ones"

_WIDEST_RATIO = 1e30  # float32 holds these and their squares' roots
Public = Sequence[Any] | Callable  # known to everyone: not computed from the records
Direction = str | Public


def checked_direction(direction: Direction, names: Sequence[str], where: str = "") -> Direction:
    """One of the names, a list of arrays or a function of a weight; `where` says in an error where it must be that.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(direction, str) and direction in names:
        return direction
    return checked_public(f"direction{where}", direction, names)


def checked_public(argument: str, given: Public, names: Sequence[str] = ()) -> Public:
    """A list of arrays or a function of a weight."""
    if callable(given):
        return given
    if isinstance(given, np.ndarray) or tf.is_tensor(given):
        given = [given]
    if not isinstance(given, list | tuple):
        wanted = (*map(repr, names), "a list of arrays (one for each trainable weight)")
        raise ValueError(f"{argument} must be {', '.join(wanted)} or a function of a weight, not {given!r}.")
    return [_array(argument, part) for part in given]


def spread_over(weights: Sequence[keras.Variable], argument: str, given: Public) -> list[np.ndarray]:
    """Arrays or a function spread over the weights. Only their ratios count: scaled to a geometric mean of 1."""
    given = [given(w) for w in weights] if callable(given) else given
    if len(given) != len(weights):
        raise ValueError(
            f"{argument} has {len(given)} arrays, but the model has {len(weights)} trainable weights: one for each, in "
            "the order of model.trainable_variables."
        )
    found = []
    for part, weight in zip(given, weights, strict=True):
        part = _array(argument, part)
        if not (np.all(np.isfinite(part)) and np.all(part > 0)):
            raise ValueError(f"{argument} for {weight.path} must hold positive finite numbers.")
        try:
            found.append(np.log(np.broadcast_to(part, weight.shape), dtype=np.float64))
        except ValueError as error:
            raise ValueError(
                f"{argument} for {weight.path} has shape {part.shape}, which can't be spread over the weight's "
                f"{tuple(weight.shape)}."
            ) from error
    widest = max(part.max() for part in found) - min(part.min() for part in found)
    if widest > np.log(_WIDEST_RATIO):
        raise ValueError(
            f"{argument}: its numbers may differ by a factor of {_WIDEST_RATIO:g} at most, not {np.exp(widest):.2g}."
        )
    middle = sum(part.sum() for part in found) / sum(part.size for part in found)
    return [np.exp(part - middle).astype(np.float32) for part in found]


def loaded(given: Any) -> Any:
    """As it was given, from what Keras saves of it: arrays and functions are saved as objects."""
    if isinstance(given, list):
        return [loaded(part) for part in given]
    return keras.saving.deserialize_keras_object(given) if isinstance(given, dict) else given


def _array(argument: str, numbers: Any) -> np.ndarray:
    try:
        return np.asarray(numbers, np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must hold arrays of numbers, not {numbers!r}.") from None
