"""w of Xiang et al. 2021 (algorithm 1, lines 2 to 5): the gradient of all records, clipped as a whole and noised."""

import tensorflow as tf

from tfdp.accounting import Budget, Event, GaussianEvent, Ledger, Sampling
from tfdp.accounting.published import published_noise_multiplier
from tfdp.gradients import Ellipsoid, LotGradients
from tfdp.mechanisms.full_gradient import FullGradient
from tfdp.mechanisms.gaussian import State
from tfdp.mechanisms.secret_generator import SecretGenerator


class PublishedDirection(FullGradient):
    """Before every step: the mean of all records' gradients, clipped to norm C as one vector, plus N(0, (noise_multiplier * C)^2 I).

    ``noise_multiplier`` is what the paper finds (w = 1, no sampling) for the share of its epsilon and delta that goes to w.

    Formal guarantee: whatever one record's gradient is, two clipped means differ by at most 2 C in l2 norm, twice what the paper
    counts: both lie in the ball. So a release is the Gaussian mechanism with noise multiplier ``noise_multiplier / 2``, without
    any sampling.
    """

    def __init__(self, l2_norm_clip: float, noise_multiplier: float | None = None, share: float = 1 / 8):
        super().__init__(l2_norm_clip, noise_multiplier, every=1, share=share)

    def calibrate(self, budget: Budget, sampling: Sampling, steps: int, spent: Ledger) -> None:
        epsilon, delta = self.share * budget.target_epsilon, self.share * budget.delta
        self.noise_multiplier = published_noise_multiplier(epsilon, delta, 1.0, steps)

    def event(self, state: State | None = None) -> Event:
        """In units of the 2 C by which it moves."""
        return GaussianEvent(self.noise_multiplier / 2)

    def bounded_sum(
        self, lot: LotGradients, present: tf.Tensor, ellipsoid: Ellipsoid | None = None
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Of gradients as they are: it is their mean over all records that is bounded."""
        finite = tf.math.is_finite(lot.squared_norms())
        not_finite = tf.reduce_sum(tf.cast(present & ~finite, tf.int64))
        return lot.weighted_sum(tf.cast(present & finite, tf.float32)), not_finite

    def privatise(
        self,
        sums: list[tf.Tensor],
        expected_lot_size: float,
        generator: SecretGenerator,
        ellipsoid: Ellipsoid | None = None,
    ) -> list[tf.Tensor]:
        """Divided by the number of records, clipped, then noised."""
        mean = [s / expected_lot_size for s in sums]
        norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(part)) for part in mean]))
        factor = tf.minimum(self.l2_norm_clip / tf.maximum(norm, 1e-37), 1.0)
        return super().privatise([factor * part for part in mean], 1.0, generator)
