"""Encoded gradients and noise of any family (Nasr et al. 2020, algorithms 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from tfdp.accounting import (
    Budget,
    Codebook,
    EncodedEvent,
    Event,
    Ledger,
    MicrobatchedEvent,
    NotPrivateEvent,
    Sampling,
    check_noise,
    checks,
)
from tfdp.gradients import Ellipsoid, LotGradients
from tfdp.mechanisms.encoding import Encoder
from tfdp.mechanisms.gaussian import GaussianMechanism, State
from tfdp.mechanisms.noise_samplers import noise_draws
from tfdp.mechanisms.secret_generator import SecretGenerator
from tfdp.noise import Noise, StudentT

_DEFAULT_NOISE = StudentT(df=9, stddev=1.0)


@keras.saving.register_keras_serializable("tfdp")
class EncodedMechanism(GaussianMechanism):
    """Cut each example's gradient to the magnitudes of a public codeword, sum, add noise of any family.

    Formal guarantee: let S be the sum that ``bounded_sum`` returns, in units of ``l2_norm_clip``. For two lots of which one has
    one example more, or in which one example's content is replaced by nothing (a row that is not present), S differs by one
    vector that lies, in some order of its coordinates, under one codeword (``Encoder``: exactly, in floating point too). What
    is released is S plus independent draws of ``noise`` (times ``noise_multiplier``) in every coordinate, rescaled by public
    numbers: an ``EncodedEvent`` of that noise and codebook.

    With ``microbatch_size`` above 1 nothing of this holds, and nothing is proven: one record more or less changes which
    examples share a group, and so several groups' vectors, each under a codeword in an order of its own.

    | case                                          | what happens                                                |
    |-----------------------------------------------|-------------------------------------------------------------|
    | an example with a NaN or Inf in its gradient  | contributes exactly 0; the step is noised as ever           |
    | an empty lot                                  | noise alone is released                                     |
    | ``noise_multiplier=0``                        | no noise, no privacy: an infinite line in the ledger        |

    Args:
        l2_norm_clip: the unit of codewords and noise. Codewords have this l2 norm at most.
        noise_multiplier: by how much ``noise`` is multiplied. None leaves it to be found for a ``target_epsilon``.
        noise: of one coordinate, in units of ``l2_norm_clip``. One that no accountant prices is refused
            (``tfdp.accounting.check_noise``).
        codebook_size: how many codewords there are.
        microbatch_size: how many examples' mean gradient is encoded as one. Above 1 only with ``as_published``.
        as_published: the paper's algorithm, microbatches and all, whose claim does not follow.
    """

    sum_dtype = tf.float64

    def __init__(
        self,
        l2_norm_clip: float,
        noise_multiplier: float | None = None,
        noise: Noise = _DEFAULT_NOISE,
        codebook_size: int = 1000,
        microbatch_size: int = 1,
        as_published: bool = False,
    ):
        super().__init__(l2_norm_clip, noise_multiplier)
        if not isinstance(noise, Noise):
            raise ValueError(f"noise must be a tfdp.noise.Noise such as StudentT(df=9, stddev=1.0), not {noise!r}.")
        check_noise(noise)
        self.noise = noise
        self.check_noise()
        self.codebook_size = checks.count("codebook_size", codebook_size, "write the number of codewords", at_least=1)
        self.microbatch_size = checks.count(
            "microbatch_size", microbatch_size, "write 1, or how many examples are encoded as one", at_least=1
        )
        self.as_published = checks.true_or_false("as_published", as_published)
        if self.microbatch_size > 1 and not as_published:
            raise ValueError(
                f"microbatch_size={microbatch_size!r}: the paper's claim does not hold for gradients that are encoded together, and "
                "nothing else is proven. Leave it out, or give as_published=True, and the statement says so."
            )
        self._codebook: Codebook | None = None

    @property
    def codebook(self) -> Codebook:
        """The description of the codewords; known from the moment that the weights are."""
        if self._codebook is None:
            raise ValueError("The codebook is as long as the model has weights: build the optimizer first.")
        return self._codebook

    @property
    def scaled_noise(self) -> Noise:
        """What is added to each coordinate, in units of ``l2_norm_clip``."""
        return self.noise.scaled(self.noise_multiplier)

    @property
    def noise_unit(self) -> float:
        return self.noise.unit if "noise" in self.__dict__ else 1.0

    def check_target(self, target_epsilon: float | None, delta: float | None, accountant: str) -> None:
        if self.microbatch_size > 1 and target_epsilon is not None:
            raise ValueError(
                f"microbatch_size={self.microbatch_size}: nothing is proven of such a run, so no target can be kept "
                f"(target_epsilon={target_epsilon:g}). Leave out target_epsilon= and give noise=, or leave out microbatch_size=."
            )

    def calibrate(self, budget: Budget, sampling: Sampling, steps: int, spent: Ledger) -> None:
        self.noise_multiplier = budget.noise_multiplier(
            sampling, steps, spent, lambda factor: EncodedEvent(self.noise.scaled(factor), self.codebook)
        )

    def event(self, state: State | None = None) -> Event:
        if self.noise_multiplier == 0:
            return NotPrivateEvent("noise_multiplier is 0: encoded gradients were released without noise")
        if self.microbatch_size > 1:
            return MicrobatchedEvent(self.scaled_noise, self.codebook, self.microbatch_size)
        return EncodedEvent(self.scaled_noise, self.codebook)

    @property
    def settled(self) -> dict[str, object]:
        return {"codebook_size": self.codebook_size}

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        """It remembers nothing; but now it knows how long a codeword is."""
        self._codebook = Codebook(sum(math.prod(v.shape) for v in weights), self.codebook_size)
        return {}

    def bounded_sum(
        self, lot: LotGradients, present: tf.Tensor, ellipsoid: Ellipsoid | None = None
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The sum of the encoded gradients, in units of ``l2_norm_clip``, float64: see ``Encoder.sum_of``."""
        codebook = Codebook(sum(math.prod(v.shape) for v in lot.variables), self.codebook_size)
        return Encoder(codebook).sum_of(lot, present, self.l2_norm_clip, self.microbatch_size)

    def noised(
        self, sums: list[tf.Tensor], generator: SecretGenerator, ellipsoid: Ellipsoid | None = None
    ) -> list[tf.Tensor]:
        if not self.noise_multiplier:
            return sums
        with tf.control_dependencies(sums):
            draws = noise_draws(self.scaled_noise, generator, [s.shape for s in sums])
        return [s + z for s, z in zip(sums, draws, strict=True)]

    def privatise(
        self,
        sums: list[tf.Tensor],
        expected_lot_size: float,
        generator: SecretGenerator | None,
        ellipsoid: Ellipsoid | None = None,
    ) -> list[tf.Tensor]:
        """``l2_norm_clip * (sum + noise) / expected_lot_size``; it is rounded to float32 after the noise was added.

        With microbatches, the expected number of those stands for the lot's size. Without a generator the noise is in the
        sums already.
        """
        if generator is not None:
            sums = self.noised(sums, generator)
        unit = self.unit_of_release(expected_lot_size)
        return [tf.cast(s * unit, tf.float32) for s in sums]

    @property
    def works_on_parts(self) -> bool:
        """Parts would cut microbatches in two."""
        return self.microbatch_size == 1 and super().works_on_parts

    @property
    def is_a_noised_sum(self) -> bool:
        return True

    @property
    def noise_of_release(self) -> Noise | None:
        return self.scaled_noise if self.noise_multiplier else None

    def unit_of_release(self, expected_lot_size: float) -> float:
        return self.l2_norm_clip * self.microbatch_size / expected_lot_size

    def copy(self) -> EncodedMechanism:
        other = super().copy()
        other._codebook = self._codebook
        return other

    def get_config(self) -> dict:
        own = ("codebook_size", "microbatch_size", "as_published")
        return {
            **super().get_config(),
            "noise": self.noise.get_config(),
            **{name: getattr(self, name) for name in own},
        }

    @classmethod
    def from_config(cls, config: dict) -> EncodedMechanism:
        if isinstance(config.get("noise"), dict):
            config = {**config, "noise": Noise.from_config(config["noise"])}
        return cls(**config)
