"""What an attacker makes of a run: one score for each canary, larger for those that seem to be in.

Any score that is a function of what was released gives a valid audit; a better one gives a larger lower bound.
"""

from __future__ import annotations

import abc
import math

import keras
import numpy as np
import tensorflow as tf

from tfdp.accounting import EncodedEvent, Event, GaussianEvent, Poisson
from tfdp.audit.canaries import Planted
from tfdp.audit.losses import losses_of, record_losses
from tfdp.mechanisms.denoising import LAPLACIAN

_CHUNK = 32


class Attack(keras.callbacks.Callback, abc.ABC):
    """Sees the weights after every step, as a privacy claim lets everybody do, and no metric."""

    def __init__(self, planted: Planted):
        super().__init__()
        self.planted = planted

    @abc.abstractmethod
    def scores(self) -> np.ndarray:
        """Of the canaries, after training."""


class FinalLosses(Attack):
    """Black box: minus the canary's loss under the final model."""

    def scores(self):
        planted = self.planted
        return -losses_of(planted.model, planted.x[-planted.count :], planted.y[-planted.count :])


class OwnWeights(Attack):
    """White box, for gradient canaries: the moves of the canary's own weights.

    With plain SGD a move is the released gradient in the canary's direction, times the learning rate. Where noise of a known
    size was added to Poisson lots the score is the likelihood ratio of all moves (``log_likelihood_ratio``), elsewhere their sum.
    What ``denoise="laplacian"`` smoothed is made as it was.
    """

    def on_train_begin(self, logs=None):
        self._seen = [self._weights()]

    def on_train_batch_end(self, batch, logs=None):
        self._seen.append(self._weights())

    def scores(self):
        moves = self._moves()
        lines = list(self.planted.model.optimizer.ledger)
        noise = _noise_of(lines[0].event) if len(lines) == 1 and isinstance(lines[0].sampling, Poisson) else None
        if noise is None:
            return moves.sum(axis=0)
        moves = moves[np.std(moves, axis=1) > 0]  # steps that were taken
        return log_likelihood_ratio(moves, noise, lines[0].sampling.sampling_rate)

    def _moves(self) -> np.ndarray:
        """``[steps, canaries]``: along each canary's direction."""
        moves = np.diff(self._seen, axis=0)
        if self.planted.model.optimizer.denoise == LAPLACIAN:
            moves = 3 * moves - np.roll(moves, 1, axis=2) - np.roll(moves, -1, axis=2)  # I - L; ends are not exact
        if self.planted.directions is not None:
            return moves[:, 0] @ self.planted.directions.T
        return moves.sum(axis=1) / np.sqrt(moves.shape[1])

    def _weights(self) -> np.ndarray:
        """``[layers, weights]``."""
        return np.array([code.get_weights()[0][:, 0] for code in self.planted.codes], np.float64)


def _noise_of(event: Event) -> float | None:
    """Its standard deviation in units of the clip; None where that is not what tells canaries."""
    if isinstance(event, GaussianEvent):
        return event.noise_multiplier
    if isinstance(event, EncodedEvent) and math.isfinite(event.noise.variance):
        return math.sqrt(event.noise.variance)
    return None


def log_likelihood_ratio(moves: np.ndarray, noise_multiplier: float, sampling_rate: float) -> np.ndarray:
    """Of each canary being in against being out, by its moves, ``[steps, canaries]``.

    In units of the noise's standard deviation a move of a canary that is out is N(0, 1); of one that is in it is that, and with
    probability q, if it was in the lot, N(1 / sigma, 1). The unit of each step, and its 0, are found from the mean and the
    spread of all canaries' moves, of which a share of q / 2 is expected to have been in the lot.
    """
    share, shift = sampling_rate / 2, 1 / noise_multiplier
    unit = np.std(moves, axis=1, keepdims=True) / np.sqrt(1 + share * (1 - share) * shift**2)
    moves = (moves - np.mean(moves, axis=1, keepdims=True)) / unit + share * shift
    return sampled_log_ratio(moves, shift, sampling_rate).sum(axis=0)


def sampled_log_ratio(moves: np.ndarray, shift: float, sampling_rate: float) -> np.ndarray:
    """ln of (1 - q) N(0, 1) + q N(shift, 1) over N(0, 1)."""
    with np.errstate(divide="ignore"):
        absent, present = np.log1p(-sampling_rate), np.log(sampling_rate)
    return np.logaddexp(absent, present + moves * shift - shift**2 / 2)


class ReleasedGradients(Attack):
    """White box: the sum over steps of the released gradient's product with the direction of the canary's own.

    The released gradient is read off the weights before and after the step: with plain SGD their difference is that gradient
    times the learning rate. With another inner optimizer it is what that makes of it, and the attack is weaker, not wrong.
    """

    def __init__(self, planted: Planted):
        super().__init__(planted)
        self._scores = np.zeros(planted.count)
        self._project = tf.function(self._projections)

    def on_train_begin(self, logs=None):
        self._before = self._weights()

    def on_train_batch_end(self, batch, logs=None):
        after, planted = self._weights(), self.planted
        released = [b - a for a, b in zip(after, self._before, strict=True)]
        for start in range(0, planted.count, _CHUNK):
            rows = slice(len(planted.x) - planted.count + start, len(planted.x) - planted.count + start + _CHUNK)
            rows = slice(rows.start, min(rows.stop, len(planted.x)))
            found = self._project(planted.x[rows], planted.y[rows], self._before, released)
            self._scores[start : start + _CHUNK] += found.numpy()
        self._before = after

    def scores(self):
        return self._scores

    def _weights(self) -> list[tf.Tensor]:
        return [tf.identity(v.value) for v in self.planted.model.trainable_variables]

    def _projections(self, x, y, weights, released) -> tf.Tensor:
        """``<released, g_i> / ||g_i||``, with g_i the gradient of record i's loss at these weights."""
        model = self.planted.model
        with tf.GradientTape() as tape:
            tape.watch(weights)
            y_pred, _ = model.stateless_call(weights, model.non_trainable_variables, x, training=False)
            losses = record_losses(model, y, y_pred)
        gradients = tape.jacobian(losses, weights, unconnected_gradients="zero")
        products, squares = 0.0, 0.0
        for g, r in zip(gradients, released, strict=True):
            rows = tf.reshape(g, [tf.shape(g)[0], -1])
            products += tf.linalg.matvec(rows, tf.reshape(r, [-1]))
            squares += tf.reduce_sum(tf.square(rows), 1)
        return tf.math.divide_no_nan(products, tf.sqrt(squares))
