"""Each record's own loss under a compiled model, with Keras's losses alone: an audit must not lean on what it audits."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

_ROWS = 256


def record_losses(model: keras.Model, y: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """``[B]``: the model's loss of each record, without regularisers."""
    loss = keras.losses.get(model.loss)
    elementwise = loss.call if isinstance(loss, keras.losses.Loss) else loss
    if len(y.shape) == len(y_pred.shape) - 1 and y_pred.shape[-1] == 1:
        y = y[..., None]
    values = tf.convert_to_tensor(elementwise(y, y_pred))
    if values.shape.rank == 0:
        raise ValueError("The model's loss makes one number of a batch, and so says nothing of one record.")
    return tf.reduce_mean(tf.reshape(values, [tf.shape(values)[0], -1]), axis=1)


def losses_of(model: keras.Model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of many records, as the model is used after training (``training=False``)."""
    parts = [
        record_losses(
            model, tf.convert_to_tensor(y[start : start + _ROWS]), model(x[start : start + _ROWS], training=False)
        )
        for start in range(0, len(x), _ROWS)
    ]
    return np.concatenate([part.numpy().astype(np.float64) for part in parts])


def check_one_loss(model: keras.Model, what_for: str) -> None:
    """Raises ValueError unless the model's loss is one function of one output."""
    one = isinstance(model.loss, str | keras.losses.Loss) or callable(model.loss)
    if not one or type(model).compute_loss is not keras.Model.compute_loss:
        raise ValueError(
            f"{what_for} needs a model with one output, compiled with one loss (a name, a function or a keras.losses.Loss) and "
            f"without a compute_loss of its own; {model.name!r} has loss={model.loss!r}."
        )
