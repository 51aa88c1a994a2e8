"""The Gaussian mechanism on a grid: releases whose last bits say nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from tfdp.accounting import Event, GaussianEvent, GaussianOnGridEvent
from tfdp.gradients import Ellipsoid
from tfdp.mechanisms.gaussian import GaussianMechanism, State
from tfdp.mechanisms.grid_noise import LARGEST_STDDEV, rounded_normals
from tfdp.mechanisms.secret_generator import SecretGenerator

_SHARE = 2.0**-10  # of the clip: what rounding may add to a record's contribution
_WORTH_COMPILING = 100_000  # numbers in a weight


@keras.saving.register_keras_serializable("tfdp")
class GaussianOnGridMechanism(GaussianMechanism):
    """Clip and sum as ``GaussianMechanism`` does, round the sum to a grid, add noise of the same grid.

    Formal guarantee: let C be the clip, g the grid, d the number of weights, S the sum that ``bounded_sum`` returns, as floats, and
    suppose that two neighbouring lots' differ by at most C. Rounded to whole multiples of g they differ by at most
    C' = C + g sqrt(d): a coordinate's difference grows by at most g. Noise is g round(stddev Z / g), with Z true
    standard normals (``grid_noise``) and stddev = ``noise_multiplier`` C'. Because the rounded sum is a whole multiple k g,

        k g + g round(stddev Z / g) = g round((k g + stddev Z) / g):

    what is released is the real-valued Gaussian mechanism with noise multiplier ``noise_multiplier``, on contributions of
    norm C', rounded. So it costs what ``GaussianMechanism`` costs, and in the floats that are released nothing else is left: sums of
    whole numbers below 2^53 are exact in float64, and scaling and rounding to float32 come after the noise.

    g is a power of two and so small that C' is at most 1.001 C (for extreme noise a coarser one, and then C' is what it is). It depends on clip, noise multiplier
    and number of weights alone.

    What it does not mend: S itself. That neighbouring sums differ by at most C is true in exact arithmetic (see ``GaussianMechanism``).

    Args:
        l2_norm_clip, noise_multiplier: as of ``GaussianMechanism``.
    """

    def __init__(self, l2_norm_clip: float, noise_multiplier: float | None = None):
        super().__init__(l2_norm_clip, noise_multiplier)
        self._weights: int | None = None

    def event(self, state: State | None = None) -> Event:
        event = super().event(state)
        return GaussianOnGridEvent(event.noise_multiplier) if isinstance(event, GaussianEvent) else event

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        """It remembers nothing; but now it knows how many weights there are."""
        self._weights = sum(math.prod(v.shape) for v in weights)
        return {}

    @property
    def grid(self) -> float:
        """g; known from the moment that weights and noise are.

        Raises:
            ValueError: so much noise on so many weights that no grid keeps it within 32 bits.
        """
        if self._weights is None or self.noise_multiplier is None:
            raise ValueError("The grid depends on the number of weights and on the noise: build the optimizer first.")
        root = math.sqrt(self._weights)
        fine = self.l2_norm_clip * _SHARE / root
        # noise_multiplier (C + g root) / g is at most LARGEST_STDDEV, also after g was halved to a power of two.
        room = LARGEST_STDDEV / 2 - self.noise_multiplier * root
        if room <= 0:
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier:g} over {self._weights:,} weights is more noise than whole numbers of 32 "
                "bits hold. Leave out grid."
            )
        return 2.0 ** math.floor(math.log2(max(fine, self.noise_multiplier * self.l2_norm_clip / room)))

    @property
    def contribution(self) -> float:
        """C': the most by which one record moves the rounded sum. The noise is ``noise_multiplier`` times this."""
        return self.l2_norm_clip + self.grid * math.sqrt(self._weights)

    def privatise(
        self,
        sums: list[tf.Tensor],
        expected_lot_size: float,
        generator: SecretGenerator,
        ellipsoid: Ellipsoid | None = None,
    ) -> list[tf.Tensor]:
        """``(g round(sum / g) + g round(noise / g)) / expected_lot_size``, float32."""
        if not self.noise_multiplier:
            return super().privatise(sums, expected_lot_size, generator, ellipsoid)
        shapes = [s.shape for s in sums]
        with tf.control_dependencies(sums if self._weights > 2**20 else []):
            noise = rounded_normals(generator, shapes, self.noise_multiplier * self.contribution / self.grid)
        return [
            (_added_by_xla if s.shape.num_elements() >= _WORTH_COMPILING else _added)(
                self.grid, expected_lot_size, s, n
            )
            for s, n in zip(sums, noise, strict=True)
        ]

    @property
    def is_a_noised_sum(self) -> bool:
        return True

    def unit_of_release(self, expected_lot_size: float) -> float:
        return self.contribution / expected_lot_size

    def copy(self) -> GaussianOnGridMechanism:
        other = super().copy()
        other._weights = self._weights
        return other


def _added(grid: float, expected_lot_size: float, total: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    whole = tf.round(total / grid)  # exact but for the rounding: g is a power of two
    whole = tf.cast(whole, tf.float64) + tf.cast(noise, tf.float64)
    return tf.cast(whole * grid / expected_lot_size, tf.float32)


_added_by_xla = tf.function(_added, jit_compile=True, autograph=False)  # one loop
