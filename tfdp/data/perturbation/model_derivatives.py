"""Derivatives of a compiled Keras model's loss, record by record and of all records, flat over the trainable weights.

The loss is the model's own `compute_loss`, a mean over records plus penalties, with `training=False`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

_ROWS = 256
_TURNS = 20  # of the power iteration


class ModelDerivatives:
    """Of one model at the weights it has when a method is called."""

    def __init__(self, model: keras.Model):
        if not isinstance(model, keras.Model) or not model.built or not model.compiled:
            raise ValueError(
                "model must be a keras.Model that is built and compiled with its loss: its derivatives are those of that loss."
            )
        self._model = model
        self._variables = model.trainable_variables
        self._shapes = [tuple(variable.shape) for variable in self._variables]
        self.weights = sum(int(np.prod(shape)) for shape in self._shapes)
        self._record_gradient = tf.function(self._record_gradient, reduce_retracing=True)
        self._hessian_of_rows = tf.function(self._hessian_of_rows, reduce_retracing=True)
        self._product_of_rows = tf.function(self._product_of_rows, reduce_retracing=True)

    def read(self) -> np.ndarray:
        return np.concatenate([np.ravel(variable.numpy()) for variable in self._variables])

    @contextlib.contextmanager
    def at(self, weights: list[np.ndarray]) -> Iterator[None]:
        """Derivatives at other weights, as ``model.get_weights()`` gave them. The model gets its own back whatever happens."""
        own = self._model.get_weights()
        try:
            self._model.set_weights(weights)
            yield
        finally:
            self._model.set_weights(own)

    def split(self, flat: tf.Tensor) -> list[tf.Tensor]:
        parts = tf.split(flat, [int(np.prod(shape)) for shape in self._shapes])
        return [tf.reshape(part, shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def record_gradients(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """``[records, weights]`` of each record's own loss, without penalties on weights."""
        return np.stack([self._record_gradient(x[i : i + 1], y[i : i + 1]).numpy() for i in range(len(x))]).astype(
            np.float64
        )

    def hessian(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Second derivatives ``[weights, weights]`` of the loss of all records."""
        total = sum(
            len(rows) * self._hessian_of_rows(rows, labels).numpy().astype(np.float64) for rows, labels in _parts(x, y)
        )
        return (total + total.T) / (2 * len(x))

    def hessian_product(self, x: np.ndarray, y: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """The same times a vector, without ever holding it."""
        direction = tf.constant(vector, tf.float32)
        total = sum(
            len(rows) * self._product_of_rows(rows, labels, direction).numpy().astype(np.float64)
            for rows, labels in _parts(x, y)
        )
        return total / len(x)

    def gradient(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Of the loss of these records, penalties included. Differentiable."""
        with tf.GradientTape() as tape:
            loss = self._loss(x, y)
        return self._flat(tape.gradient(loss, self._values()))

    def mixed_norm(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """The l2 norm of grad_x grad_w of one record's loss: the largest singular value, by power iteration.

        It starts from a pseudo-random direction, always the same: no model takes just that one to 0, as layers do with constant records.
        """
        start = tf.random.stateless_normal(tf.shape(x), seed=(1, 2), dtype=x.dtype)
        direction = start / tf.norm(start)
        norm = tf.zeros((), x.dtype)
        for _ in tf.range(_TURNS):
            with tf.autodiff.ForwardAccumulator(x, direction) as forward:
                gradient = self.gradient(x, y)
            moved = forward.jvp(gradient)
            moved = tf.zeros_like(gradient) if moved is None else moved
            norm = tf.norm(moved)
            with tf.GradientTape() as tape:
                tape.watch(x)
                product = tf.reduce_sum(self.gradient(x, y) * tf.stop_gradient(moved))
            back = tape.gradient(product, x, unconnected_gradients="zero")
            direction = tf.math.divide_no_nan(back, tf.norm(back))
        return norm

    def _loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return self._model.compute_loss(x=x, y=y, y_pred=self._model(x, training=False), training=False)

    def _penalty(self) -> tf.Tensor:
        penalised = [variable.regularizer(variable) for variable in self._variables if variable.regularizer is not None]
        return tf.add_n(penalised) if penalised else tf.zeros(())

    def _values(self) -> list[tf.Variable]:
        return [variable.value for variable in self._variables]

    def _flat(self, gradients: list[tf.Tensor | None]) -> tf.Tensor:
        parts = [
            tf.zeros(shape) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, shape in zip(gradients, self._shapes, strict=True)
        ]
        return tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)

    def _record_gradient(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = self._loss(x, y) - self._penalty()
        return self._flat(tape.gradient(loss, self._values()))

    def _hessian_of_rows(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            gradient = self.gradient(x, y)
        columns = tape.jacobian(gradient, self._values(), unconnected_gradients="zero")
        return tf.concat([tf.reshape(column, [self.weights, -1]) for column in columns], axis=1)

    def _product_of_rows(self, x: tf.Tensor, y: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            product = tf.reduce_sum(self.gradient(x, y) * vector)
        return self._flat(tape.gradient(product, self._values(), unconnected_gradients="zero"))


def _parts(x: np.ndarray, y: np.ndarray):
    for start in range(0, len(x), _ROWS):
        yield x[start : start + _ROWS], y[start : start + _ROWS]
