"""How far one record moves the sum of a lot's clipped gradients, by tfdp's own plan and bound, in units of the clip."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.brute_force import flat_weights
from tfdp.gradients import Plan, lot_gradients, prove
from tfdp.mechanisms import GaussianMechanism

ROUNDING = 1e-5  # of a clip
LOT = 32  # that models are proved for: 256 takes longer
SECRET = (20, 11)  # what random numbers are made of


def specs(*parts: Any) -> tuple:
    """Of records ``(x, y)``, whose arrays may be nested."""
    return keras.tree.map_structure(lambda a: tf.TensorSpec([None, *a.shape[1:]], tf.as_dtype(a.dtype)), parts)


def proved(model: keras.Model, *parts: Any, lot_size: int = LOT) -> Plan:
    """The plan of a compiled model."""
    return prove(model, specs(*parts), keras.tree.map_structure(lambda a: a[:8], parts), lot_size)


def bounded_sum_of(model: keras.Model, plan: Plan, *parts: Any, clip: float) -> Callable[..., np.ndarray]:
    """The sum of a lot's clipped gradients over the clip, all weights side by side: of (x, y) and perhaps a secret."""
    mechanism = GaussianMechanism(clip, 1.0)

    @tf.function(input_signature=[specs(*parts), tf.TensorSpec([2], tf.int64)], autograph=False)
    def summed(record, secret):
        found = lot_gradients(model, plan, *(*record, None, None)[:3], secret=secret)
        return mechanism.bounded_sum(found.gradients, tf.ones([found.gradients.batch], tf.bool))[0]

    def of_a_lot(*parts, secret=SECRET) -> np.ndarray:
        sums = summed(keras.tree.map_structure(tf.constant, parts), tf.constant(secret, tf.int64))
        return np.concatenate([np.float64(s.numpy()).ravel() for s in sums]) / clip

    return of_a_lot


def clips_moved(summed: Callable, parts: tuple, records: Iterable[int]) -> float:
    """The most by which any of these records, taken out of the lot, moves the sum."""
    whole = summed(*parts)
    return max(
        np.linalg.norm(whole - summed(*keras.tree.map_structure(lambda a, r=r: np.delete(a, r, 0), parts)))
        for r in records
    )


def moves(model: keras.Model, train: Callable[[], Any]) -> np.ndarray:
    """By how much training moves the weights, which are put back."""
    start = model.get_weights()
    before = flat_weights(model)
    train()
    change = flat_weights(model) - before
    model.set_weights(start)
    return change
