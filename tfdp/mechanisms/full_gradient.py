"""The private full gradient: the mean of all records' clipped gradients, as a release of its own."""

import dataclasses

from tfdp.accounting import Budget, Ledger, Sampling
from tfdp.mechanisms.gaussian import GaussianMechanism


class FullGradient(GaussianMechanism):
    """What a mechanism wants of a pass over all records: how each is bounded, the sum noised, and how often.

    A mechanism that has one as its ``full_gradient`` is given what was released (``with_full_gradient``) before the first
    step, and again after every ``every`` steps. Whoever runs the pass hands the sum of ``bounded_sum`` over all records, made of
    physical batches of any size, to ``privatise``, with the public number of records in the place of a lot's expected size.

    Formal guarantee: a record is in exactly one physical batch, where it contributes ``min(1, C / ||g||) g`` (0 if g is not
    finite), of l2 norm at most C = ``l2_norm_clip``; the weights are the same in all of them, and no other record's
    contribution depends on it. So for two data sets of which one has one record more, or in which one record's content is
    replaced by nothing, the sums S differ by at most C in l2 norm. What is released is
    S + N(0, (noise_multiplier * C)^2 I), divided by a public number: the Gaussian mechanism with noise multiplier
    ``noise_multiplier``, without any sampling (``FullBatch``). That holds at weights and scales that earlier releases have
    led to: the clip is the ball, whatever shape the steps' ellipsoid has.

    Physical batches are added up in float64, and so is the noise: rounding to float32 comes after it. Within a batch sums are
    float32, as in a step (``GaussianMechanism``).

    Args:
        l2_norm_clip: C.
        noise_multiplier: standard deviation of the noise in units of C; None until it is found for a target.
        every: how many steps lie between two of them; None: as many lots as make up the records once, ceil(n / batch size).
        share: of a ``target_epsilon``, what all of them together may cost by themselves.
    """

    def __init__(
        self, l2_norm_clip: float, noise_multiplier: float | None = None, every: int | None = None, share: float = 1 / 8
    ):
        super().__init__(l2_norm_clip, noise_multiplier)
        self.every, self.share = every, share

    def calibrate(self, budget: Budget, sampling: Sampling, steps: int, spent: Ledger) -> None:
        """So much noise that so many releases cost ``share`` of the target by themselves; what was ``spent`` is the steps' concern."""
        own = dataclasses.replace(budget, target_epsilon=self.share * budget.target_epsilon, order=None)
        super().calibrate(own, sampling, steps, Ledger())

    def get_config(self) -> dict:
        return {**super().get_config(), "every": self.every, "share": self.share}
