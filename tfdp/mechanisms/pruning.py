"""Pruning of what directional noise released: top-k with error feedback.

Xiang et al. 2021 (section 6.1) prune gradients by their magnitude before the noise, and carry what is pruned to the next step
(error feedback, Karimireddy et al. 2019, arXiv:1901.09847). What the selection and the residual reveal is not noised
(``tfdp.mechanisms.published_pruning``). Here both are functions of what was released; ``tfdp.mechanisms.support`` prunes before
the noise, by what was released earlier.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import Ellipsoid
from tfdp.mechanisms.directional import DirectionalMechanism
from tfdp.mechanisms.gaussian import State, noise_is_apart
from tfdp.mechanisms.ranges import number
from tfdp.mechanisms.secret_generator import SecretGenerator

RESIDUAL = "residual"


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
        generator: SecretGenerator | None,
    ) -> tuple[list[tf.Tensor], State]:
        released, remembered = super().release(state, sums, ellipsoid, expected_lot_size, generator)
        corrected = [g + e for g, e in zip(released, state[RESIDUAL], strict=True)]
        masks = largest(corrected, self.pruning_ratio)
        residual = kept([~mask for mask in masks], corrected)
        return kept(masks, corrected), {**remembered, RESIDUAL: residual}

    @property
    def works_on_parts(self) -> bool:
        """Pruning comes after the noise."""
        return type(self).release is CompressedMechanism.release and noise_is_apart(type(self))

    def get_config(self) -> dict:
        return {**super().get_config(), "pruning_ratio": self.pruning_ratio}


def zeros_like(weights: Sequence[keras.Variable]) -> list[np.ndarray]:
    return [np.zeros(tuple(w.shape), np.float32) for w in weights]
