"""Records, a perturbation of them, and what is read of data sets."""

import numpy as np
import tensorflow as tf

from tfdp.data import InputPerturbation
from tfdp.data.perturbation import fingerprints

KEY = bytes(range(32))
SIZE = 300
X = np.random.default_rng(0).normal(size=(SIZE, 5)).astype(np.float32)
Y = np.arange(SIZE) % 3


def perturbation(**changed) -> InputPerturbation:
    return InputPerturbation(**({"stddev": 0.5, "key": KEY} | changed))


def in_another_process(**changed) -> InputPerturbation:
    """That knows nothing of what was released here."""
    fingerprints._shared.clear()
    return perturbation(**changed)


def records(x=X, y=Y) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, y))


def features(dataset) -> np.ndarray:
    return np.stack([x.numpy() for x, *_ in dataset])


def swapped(x, y):
    return y, x


def interleaved(**order) -> tf.data.Dataset:
    """Two records for each of four files, so to say."""
    files = tf.data.Dataset.range(4)
    return files.interleave(
        lambda file: tf.data.Dataset.from_tensor_slices((X[:2], Y[:2])), num_parallel_calls=2, **order
    )


def in_any_order() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = False
    return options


def flat(structure) -> np.ndarray:
    """All leaves side by side."""
    return np.concatenate([np.asarray(x).reshape(len(x), -1).astype(float) for x in tf.nest.flatten(structure)], axis=1)


def clipped(x: np.ndarray, norm: float) -> np.ndarray:
    flat = x.astype(np.float64)
    return flat * np.minimum(1, norm / np.linalg.norm(flat, axis=1, keepdims=True))
