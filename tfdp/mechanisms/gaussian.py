"""The Gaussian mechanism on a lot's gradients (Bu et al. 2019, algorithms 1 and 2, arXiv:1911.11607)."""

import copy
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfdp.accounting import Budget, Event, GaussianEvent, Ledger, NotPrivateEvent, Sampling
from tfdp.gradients import Ellipsoid, LotGradients
from tfdp.mechanisms import ranges
from tfdp.mechanisms.normals import standard_normals
from tfdp.mechanisms.secret_generator import SecretGenerator
from tfdp.noise import Gaussian, Noise

# float32 arithmetic may bring a clipped gradient above the clip in its last digits: clip that much below it.
ROUNDING = 1 - 2.0**-20
_MANY_WEIGHTS = 2**20
_MOST_STEPS = 10**6  # counted in float32

State = dict[str, list]  # what a mechanism remembers of its releases: lists of tensors, by name


@keras.saving.register_keras_serializable("tfdp")
class GaussianMechanism:
    """Clip each example's gradient to an l2 ball, sum, add Gaussian noise, divide by the expected lot size.

    Formal guarantee: let S be the sum that ``bounded_sum`` returns. For two lots of which one has one example more, or in
    which one example's content is replaced by nothing (a row that is not present), S differs by at most ``l2_norm_clip`` in
    l2 norm over all weights jointly; what is released is S + N(0, (noise_multiplier * l2_norm_clip)^2 I), rescaled by
    public numbers. So one step is the Gaussian mechanism with noise multiplier ``noise_multiplier``.

    That is in exact arithmetic. Sums are float32: where the sum is longer than the clip, its rounding moves S by up to
    about lot size * 2^-23 * ``l2_norm_clip`` more where it was measured (2e-5 of the clip at 256 equal gradients, 3e-4 at 4,096),
    and by the lot size times that if all roundings went one way (docs/threat_model.md).

    | case                                          | what happens                                                |
    |-----------------------------------------------|-------------------------------------------------------------|
    | an example with a NaN or Inf in its gradient  | contributes exactly 0; the step is noised as ever           |
    | an empty lot                                  | noise alone is released                                     |
    | ``noise_multiplier=0``                        | no noise, no privacy: an infinite line in the ledger        |

    Args:
        l2_norm_clip: the largest l2 norm an example's contribution may have, between 1e-20 and 1e20.
        noise_multiplier: standard deviation of the noise in units of ``l2_norm_clip``. None leaves it to be found for a
            ``target_epsilon``. What float32 can't hold is refused (``tfdp.mechanisms.ranges``).
    """

    calibrated = ("noise_multiplier",)  # the settings that are found for a ``target_epsilon``
    full_gradient = None  # what it wants of all records between two steps, and how often: a ``FullGradient``
    has_own_accounting = False  # whether its target is a claim of its own, which no accountant prices
    sum_dtype = tf.float32  # of ``bounded_sum``
    microbatch_size = 1  # how many examples, side by side in a lot, are bounded as one
    l2_norm_clip = ranges.Setting(ranges.clip, or_infinite=True)
    noise_multiplier = ranges.Setting(ranges.noise_or_none)
    unsaved: tuple[str, ...] = ()  # what it remembers of more than releases: private, never saved, 0 after a load

    def __init__(self, l2_norm_clip: float, noise_multiplier: float | None = None):
        self.l2_norm_clip = l2_norm_clip
        self.noise_multiplier = noise_multiplier

    @property
    def scale_bounds(self) -> tuple[float, float]:
        """Between which the scales of its ellipsoids lie."""
        return 1.0, 1.0

    @property
    def noise_unit(self) -> float:
        """The size of the noise that ``noise_multiplier`` multiplies, in units of the clip."""
        return 1.0

    def check_noise(self) -> None:
        """Called whenever clip or noise are assigned, and before each fit.

        Raises:
            ValueError: float32 would read the clip or the noise as 0 or infinity.
        """
        ranges.clip("l2_norm_clip", self.l2_norm_clip)
        if (noise := getattr(self, "noise_multiplier", None)) is not None:
            noise *= self.noise_unit
            ranges.check_stddev("noise_multiplier", noise, self.l2_norm_clip, self.scale_bounds)

    def check_target(self, target_epsilon: float | None, delta: float | None, accountant: str) -> None:
        """Raises ValueError for a target that it can't be held to; None is no target."""

    def calibrate(self, budget: Budget, sampling: Sampling, steps: int, spent: Ledger) -> None:
        """Give each of so many steps the noise with which all of them together keep to the budget."""
        self.noise_multiplier = budget.noise_multiplier(sampling, steps, spent)

    def event(self, state: State | None = None) -> Event:
        """What one step releases, for the ledger. ``state`` is None if it remembers nothing."""
        if self.noise_multiplier == 0:
            return NotPrivateEvent("noise_multiplier is 0: gradients were released without noise")
        return GaussianEvent(self.noise_multiplier)

    @property
    def settled(self) -> dict[str, object]:
        """The settings that ``initial_state`` was made with, by name: once the weights are known they can't change."""
        return {}

    # What it remembers of its releases, and makes of that. The private step keeps it in variables of the optimizer.

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        """Before the first release."""
        return {}

    def ellipsoid(self, state: State) -> Ellipsoid | None:
        """Where examples' gradients are clipped to, in units of ``l2_norm_clip``. None: the ball around 0."""
        return None

    def next_state(
        self, state: State, released: list[tf.Tensor], ellipsoid: Ellipsoid | None, expected_lot_size: float
    ) -> State:
        """After a release. It may depend on nothing but releases and public numbers, for what depends on it is not noised;
        what it leaves out stays as it is."""
        return {}

    def with_full_gradient(self, state: State, released: list[tf.Tensor], size: tf.Tensor) -> State:
        """After a release of its ``full_gradient``, the mean over so many records; what it leaves out stays as it is."""
        return {}

    # A step.

    def bounded_sum(
        self, lot: LotGradients, present: tf.Tensor, ellipsoid: Ellipsoid | None = None
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The sum of the clipped gradients of the examples that are present, and how many of them were not finite.

        Example i contributes ``c_i (g_i - a)`` with ``c_i = min(1, C / ||(g_i - a) / s||)``, a the ellipsoid's centre and s its
        scales (0 and 1 without one). Norms are upper bounds (``gradients/factored.py``), so the contribution divided by s
        has norm at most C; a gradient that is not finite has coefficient 0, which takes its factors out before any product.
        """
        squared = lot.squared_norms(ellipsoid)
        finite = tf.math.is_finite(squared)
        coefficients = tf.minimum(1.0, ROUNDING * self.l2_norm_clip / tf.maximum(tf.sqrt(squared), 1e-37))
        coefficients = tf.where(finite & present, coefficients, 0.0)
        not_finite = tf.reduce_sum(tf.cast(present & ~finite, tf.int64))
        sums = lot.weighted_sum(coefficients)
        if ellipsoid is not None and ellipsoid.centre is not None:
            sums = [s - tf.reduce_sum(coefficients) * a for s, a in zip(sums, ellipsoid.centre, strict=True)]
        return sums, not_finite

    def noised(
        self, sums: list[tf.Tensor], generator: SecretGenerator, ellipsoid: Ellipsoid | None = None
    ) -> list[tf.Tensor]:
        """``sum + s * noise``: what is released, but for a rescaling by public numbers."""
        if not self.noise_multiplier:
            return sums
        stddev = self.noise_multiplier * self.l2_norm_clip
        shapes = [s.shape for s in sums]
        # Noise depends on nothing, so that idle cores draw it during the pass; the noise of many weights would lie
        # beside the pass's own tensors all the while.
        with tf.control_dependencies(sums if sum(s.num_elements() for s in shapes) > _MANY_WEIGHTS else []):
            noise = standard_normals(generator, shapes, stddev if ellipsoid is None else 1.0)
        if ellipsoid is not None:  # in this order nothing underflows that `ranges` let pass
            noise = [stddev * (s * z) for s, z in zip(ellipsoid.scales, noise, strict=True)]
        return [s + tf.cast(z, s.dtype) for s, z in zip(sums, noise, strict=True)]

    def privatise(
        self,
        sums: list[tf.Tensor],
        expected_lot_size: float,
        generator: SecretGenerator | None,
        ellipsoid: Ellipsoid | None = None,
    ) -> list[tf.Tensor]:
        """``(sum + s * noise) / expected_lot_size + a``: the realised size of the lot would be a release of its own.

        Without a generator the noise is in the sums already.
        """
        if generator is not None:
            sums = self.noised(sums, generator, *if_any(ellipsoid))
        released = [s / expected_lot_size for s in sums]
        if ellipsoid is None or ellipsoid.centre is None:
            return released
        return [g + a for g, a in zip(released, ellipsoid.centre, strict=True)]

    def release(
        self,
        state: State,
        sums: list[tf.Tensor],
        ellipsoid: Ellipsoid | None,
        expected_lot_size: float,
        generator: SecretGenerator | None,
    ) -> tuple[list[tf.Tensor], State]:
        """From the sum of a lot to the gradient that weights are moved by, and what is remembered from now on."""
        released = self.privatise(sums, expected_lot_size, generator, *if_any(ellipsoid))
        return released, self.next_state(state, released, ellipsoid, expected_lot_size)

    @property
    def works_on_parts(self) -> bool:
        """Whether parts of a lot may be bounded apart, on several devices, and summed with the noise among them: all that
        ``release`` does depends on the noised sum alone."""
        return type(self).release is GaussianMechanism.release and noise_is_apart(type(self))

    @property
    def is_a_noised_sum(self) -> bool:
        """Whether all coordinates of a release have the same noise, in units of clip and scales, and nothing else is done."""
        return type(self).release is GaussianMechanism.release and type(self).privatise is GaussianMechanism.privatise

    @property
    def noise_of_release(self) -> Noise | None:
        """That noise; None without any."""
        return Gaussian(self.noise_multiplier) if self.noise_multiplier else None

    def unit_of_release(self, expected_lot_size: float) -> float:
        """One clip of the sum, in a release."""
        return self.l2_norm_clip / expected_lot_size

    def get_config(self) -> dict:
        return {"l2_norm_clip": self.l2_norm_clip, "noise_multiplier": self.noise_multiplier}

    @classmethod
    def from_config(cls, config: dict) -> "GaussianMechanism":
        return cls(**config)

    def copy(self) -> "GaussianMechanism":
        """Another one that does the same."""
        return type(self).from_config(copy.deepcopy(self.get_config()))


def noise_is_apart(mechanism: type[GaussianMechanism]) -> bool:
    """A class that has its own ``privatise`` has its own ``noised`` as well."""
    definers = [next(c for c in mechanism.__mro__ if name in c.__dict__) for name in ("noised", "privatise")]
    return definers[0] is definers[1]


def if_any(part: Ellipsoid | State | None) -> tuple:
    """A mechanism that overrides a part of a step, and has no ellipsoid or state, need not know of them."""
    return (part,) if part else ()


def steps_between(name: str, value: int, at_least: int) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not at_least <= value <= _MOST_STEPS:
        raise ValueError(
            f"{name} must be a whole number of at least {at_least} (and at most {_MOST_STEPS:,}), not {value!r}: steps from one to "
            "the next."
        )
    return int(value)
