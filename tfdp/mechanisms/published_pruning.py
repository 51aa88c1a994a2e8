"""Pruned gradients with error feedback as Xiang et al. 2021 (section 6.1) publish them. Nothing is proven of them."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfdp.accounting import Event
from tfdp.gradients import Ellipsoid, LotGradients
from tfdp.mechanisms.gaussian import GaussianMechanism, State
from tfdp.mechanisms.pruning import RESIDUAL, checked_ratio, kept, largest, zeros_like
from tfdp.mechanisms.published import PublishedMechanism, published_scales
from tfdp.mechanisms.secret_generator import SecretGenerator

_REASON = (
    "Which coordinates are kept is chosen by gradients without noise, and what is pruned is carried to later steps without "
    "noise: neither is paid for."
)


@keras.saving.register_keras_serializable("tfdp")
class PrunedPublishedMechanism(PublishedMechanism):
    """``PublishedMechanism`` on the largest coordinates of the private gradient, with the rest added to the next step.

    The residual of the step before is added to each example's gradient before the clip (algorithm 1, between lines 8 and 9).
    The mean of the clipped sums is pruned by magnitude, noise goes to what is kept (problem (8) in these coordinates alone), and
    the rest is the next residual (Karimireddy et al. 2019, algorithm 2).

    Formal guarantee: none. The selection shows which coordinates of the un-noised gradient are large. The residual is private
    data: a record in it contributes to later steps, of whose lots it is no member, and a coordinate that is kept every k-th
    step has a sensitivity of k clips. So it is in no file and in no ``optimizer.variables``, and is 0 after a load.

    Args:
        pruning_ratio: the share of all coordinates that is pruned: 0.9 keeps the largest tenth.
        l2_norm_clip, noise_multiplier, **published: those of ``PublishedMechanism``, but for ``sigma_floor``: a least noise on
            the kept coordinates would bound nothing.
    """

    unsaved = (RESIDUAL,)

    def __init__(
        self, l2_norm_clip: float, noise_multiplier: float | None = None, *, pruning_ratio: float, **published
    ):
        super().__init__(l2_norm_clip, noise_multiplier, **published)
        self.pruning_ratio = checked_ratio(pruning_ratio)
        if self.sigma_floor is not None:
            raise ValueError(
                "sigma_floor= bounds nothing where pruning_ratio= is as published: what is pruned gets no noise at all. Leave one "
                "of the two out, or take pruning without as_published=True, which is proven."
            )

    def event(self, state: State | None = None) -> Event:
        return self._claimed(_REASON, None)

    def realised_worst_case_mu(self, state: State | None = None) -> float:
        return float("inf")

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        return {**super().initial_state(weights), RESIDUAL: zeros_like(weights)}

    def ellipsoid(self, state: State) -> Ellipsoid:
        """The ball around minus the residual: ``g - centre`` is the gradient with the residual added."""
        return Ellipsoid([tf.ones_like(e) for e in state[RESIDUAL]], [-e for e in state[RESIDUAL]])

    def bounded_sum(
        self, lot: LotGradients, present: tf.Tensor, ellipsoid: Ellipsoid | None = None
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        return GaussianMechanism.bounded_sum(self, lot, present, ellipsoid)

    def release(
        self,
        state: State,
        sums: list[tf.Tensor],
        ellipsoid: Ellipsoid,
        expected_lot_size: float,
        generator: SecretGenerator,
    ) -> tuple[list[tf.Tensor], State]:
        mean = [s / expected_lot_size for s in sums]
        masks = largest(mean, self.pruning_ratio)
        importances = self.importances(state) or [tf.ones_like(part) for part in mean]
        noise = Ellipsoid(published_scales(kept(masks, importances), 1.0, 1.0))
        released = self.privatise(kept(masks, sums), expected_lot_size, generator, noise)
        return released, {RESIDUAL: kept([~mask for mask in masks], mean)}

    def get_config(self) -> dict:
        config = {**super().get_config(), "pruning_ratio": self.pruning_ratio}
        config.pop("sigma_floor")
        return config
