"""Per-example gradients the slow way, and what one private step without noise must make of them.

For each example a batch of one and one GradientTape over the model's own `compute_loss`. No tfdp is used.
Weight regularisers do not depend on the data: they are left out of the examples' gradients and added after.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class BruteForce:
    """A row for each example: all trainable weights side by side, in the order of the model."""

    gradients: np.ndarray
    regulariser_gradient: np.ndarray

    @property
    def norms(self) -> np.ndarray:
        return np.linalg.norm(self.gradients, axis=1)

    def update(self, l2_norm_clip: float) -> np.ndarray:
        """(sum over i of g_i min(1, C / |g_i|)) / n + gradient of the weight regularisers."""
        factors = l2_norm_clip / np.maximum(self.norms, l2_norm_clip)  # min(1, C / |g|), also where g is 0
        return factors @ self.gradients / len(self.gradients) + self.regulariser_gradient


def brute_force(model: keras.Model, x: Any, y: Any = None, sample_weight: Any = None, class_weight=None) -> BruteForce:
    """The gradients of a compiled model's loss, example by example."""
    if class_weight is not None:
        sample_weight = sample_weight_of_classes(y, class_weight)
    size = len(keras.tree.flatten(x)[0])
    with without_weight_regularisers(model) as regularisers:
        rows = [_gradient(model, *(rows_of(data, i, i + 1) for data in (x, y, sample_weight))) for i in range(size)]
    return BruteForce(np.stack(rows), _regulariser_gradient(model, regularisers))


def expected_weights_after_one_step(
    model: keras.Model, examples: BruteForce, l2_norm_clip: float, learning_rate: float = 1.0
) -> list[np.ndarray]:
    """The trainable weights after one noiseless step of plain SGD at sampling rate 1."""
    change = split_by_weight(model, -learning_rate * examples.update(l2_norm_clip))
    return [
        keras.ops.convert_to_numpy(w).astype("float64") + c
        for w, c in zip(model.trainable_weights, change, strict=True)
    ]


def batch_gradient(
    model: keras.Model, x: Any, y: Any = None, sample_weight: Any = None, class_weight=None
) -> np.ndarray:
    """Keras's own gradient: of the loss of all examples at once, without the weight regularisers."""
    if class_weight is not None:
        sample_weight = sample_weight_of_classes(y, class_weight)
    with without_weight_regularisers(model):
        return _gradient(model, x, y, sample_weight)


def _gradient(model: keras.Model, x: Any, y: Any, sample_weight: Any) -> np.ndarray:
    x, y, sample_weight = keras.tree.map_structure(_to_tensor, (x, y, sample_weight))
    with tf.GradientTape() as tape:
        y_pred = model(x, training=True)
        loss = model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
    return _flat(tape.gradient(loss, [w.value for w in model.trainable_weights]), model)


def _regulariser_gradient(model: keras.Model, regularisers: list) -> np.ndarray:
    with tf.GradientTape() as tape:
        penalty = tf.zeros(())
        for weight, regulariser in zip(model.trainable_weights, regularisers, strict=True):
            if regulariser is not None:
                penalty += regulariser(weight.value)
    return _flat(tape.gradient(penalty, [w.value for w in model.trainable_weights]), model)


def _flat(gradients: list, model: keras.Model) -> np.ndarray:
    dense = [
        np.zeros(w.shape) if g is None else tf.convert_to_tensor(g).numpy()
        for g, w in zip(gradients, model.trainable_weights, strict=True)
    ]
    return np.concatenate([g.astype("float64").ravel() for g in dense])


def split_by_weight(model: keras.Model, flat: np.ndarray) -> list[np.ndarray]:
    """The inverse of laying all trainable weights side by side."""
    sizes = [int(np.prod(w.shape)) for w in model.trainable_weights]
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    return [part.reshape(w.shape) for part, w in zip(parts, model.trainable_weights, strict=True)]


def flat_weights(model: keras.Model) -> np.ndarray:
    """All trainable weights side by side, in float64."""
    return np.concatenate([np.ravel(keras.ops.convert_to_numpy(w)).astype("float64") for w in model.trainable_weights])


def rows_of(data: Any, start: int, stop: int) -> Any:
    """Some rows of every array of a structure, which is kept."""
    return keras.tree.map_structure(lambda array: None if array is None else array[start:stop], data)


def sample_weight_of_classes(y: np.ndarray, class_weight: dict[int, float]) -> np.ndarray:
    """Keras's `class_weight` as sample weights: a class that is not listed counts 1."""
    if y.ndim > 1:
        y = np.argmax(y, axis=-1) if y.shape[-1] > 1 else y[:, 0]
    return np.array([class_weight.get(int(label), 1.0) for label in y], dtype="float32")


@contextlib.contextmanager
def without_weight_regularisers(model: keras.Model) -> Iterator[list]:
    """Takes the regularisers off the weights, hands them over, and puts them back."""
    weights = model.trainable_weights
    regularisers = [w.regularizer for w in weights]
    try:
        for weight in weights:
            weight.regularizer = None
        yield regularisers
    finally:
        for weight, regulariser in zip(weights, regularisers, strict=True):
            weight.regularizer = regulariser


def _to_tensor(array: Any) -> Any:
    return None if array is None else tf.convert_to_tensor(array)
