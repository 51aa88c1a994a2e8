"""Made-up records of the shapes that real ones have."""

from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.real_models.catalogue import Draw


def images(height: int, width: int | None = None, channels: int = 3) -> Draw:
    return reals_between(0, 1, height, width or height, channels)


def reals_between(low: float, high: float, *shape: int) -> Draw:
    return lambda random, rows: random.uniform(low, high, (rows, *shape)).astype("float32")


def normals(*shape: int) -> Draw:
    return lambda random, rows: random.normal(size=(rows, *shape)).astype("float32")


def whole(below: int, *shape: int, least: int = 0) -> Draw:
    """Labels, tokens, masks."""
    return lambda random, rows: random.integers(least, below, (rows, *shape)).astype("int32")


def tokens(words: int, length: int) -> Draw:
    """Words as often as in a text; 0, the padding, does not occur."""
    return lambda random, rows: np.minimum(words ** random.random((rows, length)), words - 1).astype("int32")


def texts(*words: str) -> Draw:
    return lambda random, rows: tf.constant(random.choice(words, (rows, 1)))  # Keras takes no strings of numpy


def several(*of: Draw) -> Draw:
    """Several inputs, or several outputs."""
    return lambda random, rows: [draw(random, rows) for draw in of]


def named(**of: Draw) -> Draw:
    def draw(random: np.random.Generator, rows: int) -> dict[str, Any]:
        return {name: one(random, rows) for name, one in of.items()}

    return draw
