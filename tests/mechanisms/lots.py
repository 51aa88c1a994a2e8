"""Lots of gradients that are made up, for mechanisms without a model."""

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import Materialised
from tfdp.gradients.engine import LotGradients

SHAPES = [(3, 4), (5,)]
SIZE = 17


def weights() -> list[keras.Variable]:
    return [keras.Variable(np.zeros(shape, "f4"), name=f"w{i}") for i, shape in enumerate(SHAPES)]


def lot_of(gradients) -> LotGradients:
    parts = [Materialised(tf.constant(g), shape) for g, shape in zip(gradients, SHAPES, strict=True)]
    return LotGradients(parts, weights(), tf.shape(gradients[0])[0], 1.0)


def flat(parts) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in parts]).astype("f8")


def shaped(values) -> list[tf.Tensor]:
    """The way back from ``flat``."""
    first = int(np.prod(SHAPES[0]))
    values = np.asarray(values, "f4")
    return [tf.constant(values[:first].reshape(SHAPES[0])), tf.constant(values[first:])]


def as_tensors(state) -> dict[str, list[tf.Tensor]]:
    return {name: [tf.constant(value) for value in values] for name, values in state.items()}
