"""Lots of gradients that are made up, for mechanisms without a model."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import Ellipsoid, Materialised
from tfdp.gradients.engine import LotGradients

SHAPES = [(3, 4), (5,)]
SIZE = 17


def weights() -> list[keras.Variable]:
    return [keras.Variable(np.zeros(shape, "f4"), name=f"w{i}") for i, shape in enumerate(SHAPES)]


def lot_of(gradients) -> LotGradients:
    gradients = [tf.convert_to_tensor(g) for g in gradients]
    parts = [Materialised(g, shape) for g, shape in zip(gradients, SHAPES, strict=True)]
    return LotGradients(parts, [tf.zeros(shape) for shape in SHAPES], tf.shape(gradients[0])[0], 1.0)


def traced_sums(bounded_sum: Callable) -> Callable[..., np.ndarray]:
    """A mechanism's sum for many random lots, traced once: of gradients, who is present, scales and centre."""

    @tf.function(autograph=False)
    def sums(gradients, present, scales, centre):
        ellipsoid = () if scales is None else (Ellipsoid(scales, centre),)
        return bounded_sum(lot_of(gradients), present, *ellipsoid)[0]

    def of(gradients, present, scales=None, centre=None) -> np.ndarray:
        given = [None if part is None else _tensors(part) for part in (gradients, scales, centre)]
        return flat(sums(given[0], tf.constant(present), *given[1:]))

    return of


def draws_of(release: Callable[[], Sequence[tf.Tensor]], times: int) -> np.ndarray:
    """So many releases, one a row: drawn eagerly, they would take most of the time of a test."""
    traced = tf.function(release, autograph=False)
    return np.array([flat(traced()) for _ in range(times)])


def _tensors(parts) -> list[tf.Tensor]:
    return [tf.constant(part) for part in parts]


def flat(parts) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in parts]).astype("f8")


def shaped(values) -> list[tf.Tensor]:
    """The way back from ``flat``."""
    first = int(np.prod(SHAPES[0]))
    values = np.asarray(values, "f4")
    return [tf.constant(values[:first].reshape(SHAPES[0])), tf.constant(values[first:])]


def as_tensors(state) -> dict[str, list[tf.Tensor]]:
    return {name: [tf.constant(value) for value in values] for name, values in state.items()}
