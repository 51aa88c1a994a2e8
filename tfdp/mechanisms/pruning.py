"""Directional noise on pruned gradients, in two forms that hold.

Xiang et al. 2021 (section 6.1) prune gradients by their magnitude before the noise, and carry what is pruned to the next step
(error feedback, Karimireddy et al. 2019, arXiv:1901.09847). What the selection and the residual reveal is not noised
(``tfdp.mechanisms.published_pruning``). Here both are functions of what was released.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import Ellipsoid
from tfdp.mechanisms.directional import DirectionalMechanism
from tfdp.mechanisms.gaussian import State, number
from tfdp.mechanisms.secret_generator import SecretGenerator

RESIDUAL = "residual"
_SUPPORT, _DENSE, _SINCE = "support", "dense", "since"


def largest(values: Sequence[tf.Tensor], pruning_ratio: float) -> list[tf.Tensor]:
    """Masks of the ``1 - pruning_ratio`` of all coordinates, taken together, that are largest in magnitude.

    At least one; where several are as large as the last of them, all of these.
    """
    sizes = tf.concat([tf.reshape(tf.abs(value), [-1]) for value in values], 0)
    pruned = min(round(pruning_ratio * sizes.shape[0]), sizes.shape[0] - 1)
    sizes = tf.where(tf.math.is_nan(sizes), 0.0, sizes)  # which have no order
    # A selection, where top_k sorts: a million numbers take 12 ms in place of 60.
    least = tf.raw_ops.NthElement(input=sizes, n=pruned)
    return [tf.abs(value) >= least for value in values]


def kept(masks: Sequence[tf.Tensor], values: Sequence[tf.Tensor], otherwise: float = 0.0) -> list[tf.Tensor]:
    """The values where the masks are True, ``otherwise`` in their place elsewhere."""
    return [tf.where(mask, value, otherwise) for mask, value in zip(masks, values, strict=True)]


def checked_ratio(pruning_ratio: float) -> float:
    ratio = number("pruning_ratio", pruning_ratio, positive=True)
    if ratio >= 1:
        raise ValueError(f"pruning_ratio must be below 1, not {pruning_ratio!r}: 0.9 keeps the largest tenth.")
    return ratio


@keras.saving.register_keras_serializable("tfdp")
class CompressedMechanism(DirectionalMechanism):
    """Directional noise, and of what was released the largest coordinates: top-k with error feedback after the noise.

    Formal guarantee: that of ``DirectionalMechanism``, for the dense sum is clipped, noised and released as there. Everything
    after it is post-processing: weights move by the largest coordinates of the release plus the residual, and the rest
    is the next residual. So the residual is a function of releases, too; it is saved and may be published.

    Args:
        pruning_ratio: the share of all coordinates by which weights do not move in a step: 0.9 keeps the largest tenth.
        l2_norm_clip, noise_multiplier, **directional: those of ``DirectionalMechanism``.
    """

    def __init__(
        self, l2_norm_clip: float, noise_multiplier: float | None = None, *, pruning_ratio: float, **directional
    ):
        super().__init__(l2_norm_clip, noise_multiplier, **directional)
        self.pruning_ratio = checked_ratio(pruning_ratio)

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        return {**super().initial_state(weights), RESIDUAL: zeros_like(weights)}

    def release(
        self,
        state: State,
        sums: list[tf.Tensor],
        ellipsoid: Ellipsoid | None,
        expected_lot_size: float,
        generator: SecretGenerator,
    ) -> tuple[list[tf.Tensor], State]:
        released, remembered = super().release(state, sums, ellipsoid, expected_lot_size, generator)
        corrected = [g + e for g, e in zip(released, state[RESIDUAL], strict=True)]
        masks = largest(corrected, self.pruning_ratio)
        residual = kept([~mask for mask in masks], corrected)
        return kept(masks, corrected), {**remembered, RESIDUAL: residual}

    def get_config(self) -> dict:
        return {**super().get_config(), "pruning_ratio": self.pruning_ratio}


@keras.saving.register_keras_serializable("tfdp")
class SupportMechanism(DirectionalMechanism):
    """Directional noise on a support: the coordinates that were largest in earlier releases.

    Every ``support_steps``-th step, the first among them, is dense: one of ``DirectionalMechanism``. In the steps between,
    coordinates outside of the support are left out of every example's gradient before it is clipped, get no noise and do
    not move. There is no error feedback: what was left out was not released.

    Formal guarantee: let K be the support of a step and s its scales. An example contributes g restricted to K, times
    ``min(1, C / ||g_K / s_K||)``; the norm is computed with scales of infinity outside of K. So for two neighbouring lots
    sums on K, divided by s_K, differ by at most C, and what is released is the Gaussian mechanism with noise multiplier
    ``noise_multiplier`` on K, the constant 0 elsewhere. That holds for any K and s that are fixed before the lot is drawn; both
    are functions of earlier releases. The cost is that of NoisySGD.

    The support is of the largest coordinates of a running mean of the dense releases. The running means that s is made of
    are of dense releases, too.

    Args:
        pruning_ratio: the share of all coordinates that is left out between dense steps.
        support_steps: from one dense step to the next.
        l2_norm_clip, noise_multiplier, **directional: those of ``DirectionalMechanism``.
    """

    def __init__(
        self,
        l2_norm_clip: float,
        noise_multiplier: float | None = None,
        *,
        pruning_ratio: float,
        support_steps: int = 10,
        **directional,
    ):
        super().__init__(l2_norm_clip, noise_multiplier, **directional)
        self.pruning_ratio = checked_ratio(pruning_ratio)
        if isinstance(support_steps, bool) or not isinstance(support_steps, int | np.integer) or support_steps < 2:
            raise ValueError(
                f"support_steps must be a whole number of at least 2, not {support_steps!r}: steps from one dense release to the "
                "next. With 1 nothing would be pruned: leave out pruning_ratio."
            )
        self.support_steps = int(support_steps)

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        everything = [np.ones(tuple(w.shape), np.float32) for w in weights]
        own = {_SUPPORT: everything, _DENSE: zeros_like(weights), _SINCE: [np.zeros((), np.float32)]}
        return {**super().initial_state(weights), **own}

    def ellipsoid(self, state: State) -> Ellipsoid:
        """With infinite scales outside of the support."""
        whole = super().ellipsoid(state)
        scales = [tf.ones_like(part) for part in state[_SUPPORT]] if whole is None else whole.scales
        dense = self._is_dense(state)
        return Ellipsoid(kept([dense | (part > 0) for part in state[_SUPPORT]], scales, np.inf))

    def _is_dense(self, state: State) -> tf.Tensor:
        return tf.equal(state[_SINCE][0], 0)

    def release(
        self,
        state: State,
        sums: list[tf.Tensor],
        ellipsoid: Ellipsoid,
        expected_lot_size: float,
        generator: SecretGenerator,
    ) -> tuple[list[tf.Tensor], State]:
        """Sums and noise outside of the support end here: sums were not bounded there."""
        masks = [tf.math.is_finite(scale) for scale in ellipsoid.scales]
        inside = Ellipsoid(kept(masks, ellipsoid.scales))
        released = self.privatise(kept(masks, sums), expected_lot_size, generator, inside)
        return released, self.next_state(state, released, inside, expected_lot_size)

    def next_state(
        self, state: State, released: list[tf.Tensor], ellipsoid: Ellipsoid, expected_lot_size: float
    ) -> State:
        """Learns from dense releases alone."""
        dense, since = self._is_dense(state), state[_SINCE][0]
        scaled = None if self._is_a_sphere else ellipsoid
        learnt = super().next_state(state, released, scaled, expected_lot_size)
        learnt[_DENSE] = [m + (1 - self.decay) * (g - m) for m, g in zip(state[_DENSE], released, strict=True)]
        learnt = {
            name: [tf.where(dense, new, old) for new, old in zip(values, state[name], strict=True)]
            for name, values in learnt.items()
        }

        def largest_of_dense() -> list[tf.Tensor]:
            return [tf.cast(mask, tf.float32) for mask in largest(learnt[_DENSE], self.pruning_ratio)]

        support = tf.cond(dense, largest_of_dense, lambda: [tf.identity(part) for part in state[_SUPPORT]])
        return {**learnt, _SUPPORT: support, _SINCE: [tf.math.floormod(since + 1, float(self.support_steps))]}

    def get_config(self) -> dict:
        own = {"pruning_ratio": self.pruning_ratio, "support_steps": self.support_steps}
        return {**super().get_config(), **own}


def zeros_like(weights: Sequence[keras.Variable]) -> list[np.ndarray]:
    return [np.zeros(tuple(w.shape), np.float32) for w in weights]
