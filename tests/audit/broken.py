"""Private training with a mistake in it: what audits and tests are there to find."""

import keras
import numpy as np
import tensorflow as tf

from tfdp.mechanisms import GaussianMechanism


def norm(tensors, axes=None) -> tf.Tensor:
    """Of all numbers together; with numbers of any size."""
    largest = tf.reduce_max([tf.reduce_max(tf.abs(t)) for t in tensors])
    unit = tf.where((largest > 0) & tf.math.is_finite(largest), largest, 1.0)
    return unit * tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(t / unit), axes) for t in tensors]))


@keras.saving.register_keras_serializable("tests")
class TooQuiet(GaussianMechanism):
    """Says one noise and adds a twentieth of it."""

    def privatise(self, sums, expected_lot_size, generator, ellipsoid=None):
        quiet = GaussianMechanism(self.l2_norm_clip, self.noise_multiplier / 20)
        return quiet.privatise(sums, expected_lot_size, generator, ellipsoid)


@keras.saving.register_keras_serializable("tests")
class NoNoiseOnTheLast(GaussianMechanism):
    """Leaves the noise out in the model's last weight."""

    def privatise(self, sums, expected_lot_size, generator, ellipsoid=None):
        return [*super().privatise(sums[:-1], expected_lot_size, generator), sums[-1] / expected_lot_size]


@keras.saving.register_keras_serializable("tests")
class EachWeightByItself(GaussianMechanism):
    """Clips the gradient of each weight to the clip: nothing bounds all of them jointly."""

    def bounded_sum(self, lot, present, ellipsoid=None):
        finite = present & tf.math.is_finite(lot.squared_norms())
        return [self._clipped(g, finite) for g in lot.materialise()], tf.zeros([], tf.int64)

    def _clipped(self, gradients, finite):
        rows = tf.where(finite[:, None], tf.reshape(gradients, [tf.shape(gradients)[0], -1]), 0.0)
        factor = tf.minimum(1.0, self.l2_norm_clip / tf.maximum(norm([rows], 1), 1e-37))
        return tf.reshape(tf.linalg.matvec(rows, factor, transpose_a=True), gradients.shape[1:])


@keras.saving.register_keras_serializable("tests")
class MeanOfTheLot(GaussianMechanism):
    """Clips the mean gradient of the lot, not each example's."""

    def bounded_sum(self, lot, present, ellipsoid=None):
        finite = present & tf.math.is_finite(lot.squared_norms())
        rows = tf.maximum(tf.reduce_sum(tf.cast(finite, tf.float32)), 1.0)
        means = [g / rows for g in lot.weighted_sum(tf.cast(finite, tf.float32))]
        factor = tf.minimum(1.0, self.l2_norm_clip / tf.maximum(norm(means), 1e-37))
        return [rows * factor * g for g in means], tf.zeros([], tf.int64)


def realised_lot_size(expected: int):
    """``bounded_sum`` of a step that is divided by how many records there were, in place of how many were expected."""
    whole = GaussianMechanism.bounded_sum

    def bounded_sum(self, lot, present, ellipsoid=None):
        sums, not_finite = whole(self, lot, present, ellipsoid)
        there = tf.maximum(tf.reduce_sum(tf.cast(present, tf.float32)), 1.0)
        return [s * expected / there for s in sums], not_finite

    return bounded_sum


def shuffled(self, generator: np.random.Generator) -> list[np.ndarray]:
    """``PoissonLots._several`` that deals all records out, each to one lot of an epoch."""
    return [np.sort(part) for part in np.array_split(generator.permutation(self.size), round(1 / self.rate))]
