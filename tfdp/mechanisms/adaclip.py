"""AdaClip (Pichapati et al. 2019, arXiv:1908.07643): clip and noise around earlier releases, by their spread."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import Ellipsoid
from tfdp.mechanisms.gaussian import GaussianMechanism, State
from tfdp.mechanisms.ranges import number

_CENTRE, _VARIANCE = "centre", "variance"
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-24, 1e12  # squares of scales and their inverses stay within float32
_MANY_WEIGHTS = 1e10
_FARTHEST_CENTRE = 10.0  # clips: sums of (g - a) / b then lose no more to rounding than a lot ten times as large


@keras.saving.register_keras_serializable("tfdp")
class AdaClipMechanism(GaussianMechanism):
    """Clip each example's ``(g - a) / b`` to a ball, with a and b made of earlier releases.

    Formal guarantee: an example contributes ``c (g - a)`` with ``||c (g - a) / b|| <= C``, one that is not there contributes 0
    (where the paper's algorithm 1 would have it contribute the clipped ``-a / b``). So for two neighbouring lots sums divided
    by b differ by at most C in l2 norm, and ``sum + b * N(0, (noise_multiplier * C)^2 I)`` is the Gaussian mechanism with
    noise multiplier ``noise_multiplier``, whatever a and b are, if they are fixed before the lot is drawn. They are functions of
    earlier releases. The centre comes back times the *expected* lot size: the realised one is private.

    The least total variance of the noise, ``sum b_i^2``, for gradients whose ``(g - a) / b`` have mean square 1 (theorem 2):

        a = E g,     b_i^2 = v_i^(1/2) sum_j v_j^(1/2),     v_i the variance of coordinate i.

    a is the running mean of the releases, drawn in to ``||a / b|| <= 10 C`` (far from 0, ``g - a`` is lost in rounding); v that of ``(release - a)^2`` less the noise's variance, within
    [``variance_min``, ``variance_max``], which lie in 1e-24 to 1e12. As in the paper that stands for the variance of the *examples'* gradients, which sums do
    not show. b is 1 before the first release.

    Args:
        l2_norm_clip: C, in units in which ``(g - a) / b`` is about 1 long: below 1 most examples are clipped.
        noise_multiplier: standard deviation of the noise in units of ``l2_norm_clip * b``.
        variance_min, variance_max: h1 and h2 of the paper's algorithm 1.
        mean_decay, variance_decay: of the running means, beta_1 and beta_2.
    """

    def __init__(
        self,
        l2_norm_clip: float,
        noise_multiplier: float | None = None,
        variance_min: float = 1e-12,
        variance_max: float = 10.0,
        mean_decay: float = 0.99,
        variance_decay: float = 0.9,
    ):
        super().__init__(l2_norm_clip, noise_multiplier)
        self.variance_min = number("variance_min", variance_min, positive=True)
        self.variance_max = number("variance_max", variance_max, positive=True)
        if not _LEAST_VARIANCE <= self.variance_min <= self.variance_max <= _MOST_VARIANCE:
            raise ValueError(
                f"variance_min={variance_min!r} and variance_max={variance_max!r} must be in this order, between "
                f"{_LEAST_VARIANCE:g} and {_MOST_VARIANCE:g}."
            )
        self.check_noise()
        self.mean_decay = number("mean_decay", mean_decay, positive=False)
        self.variance_decay = number("variance_decay", variance_decay, positive=False)
        for name in ("mean_decay", "variance_decay"):
            if getattr(self, name) >= 1:
                raise ValueError(
                    f"{name} must be below 1, not {getattr(self, name)!r}: a mean over 1 / (1 - {name}) steps."
                )

    @property
    def scale_bounds(self) -> tuple[float, float]:
        """b_i^2 is at least v_i, and at most the largest v times the number of weights."""
        if "variance_max" not in self.__dict__:
            return 1.0, 1.0
        least, largest = self.variance_min**0.5, (self.variance_max * _MANY_WEIGHTS) ** 0.5
        return min(least, 1.0), max(largest, 1.0)

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        shapes = [tuple(w.shape) for w in weights]
        size = sum(int(np.prod(shape)) for shape in shapes)
        return {
            _CENTRE: [np.zeros(shape, np.float32) for shape in shapes],
            _VARIANCE: [np.full(shape, 1 / size, np.float32) for shape in shapes],  # b = 1
        }

    def ellipsoid(self, state: State) -> Ellipsoid:
        roots = [tf.sqrt(v) for v in state[_VARIANCE]]
        total = tf.add_n([tf.reduce_sum(root) for root in roots])
        scales = [tf.sqrt(root * total) for root in roots]
        squares = [tf.reduce_sum(tf.square(a / b)) for a, b in zip(state[_CENTRE], scales, strict=True)]
        length = tf.sqrt(tf.add_n(squares))
        share = tf.minimum(1.0, _FARTHEST_CENTRE * self.l2_norm_clip / tf.maximum(length, 1e-30))
        return Ellipsoid(scales, [share * a for a in state[_CENTRE]])

    def next_state(
        self, state: State, released: list[tf.Tensor], ellipsoid: Ellipsoid, expected_lot_size: float
    ) -> State:
        stddev = self.noise_multiplier * self.l2_norm_clip / expected_lot_size
        centres, variances = [], []
        for g, a, v, b in zip(released, state[_CENTRE], state[_VARIANCE], ellipsoid.scales, strict=True):
            seen = tf.square(g - a) - tf.square(stddev * b)
            seen = tf.where(tf.math.is_finite(seen), seen, self.variance_max)
            seen = tf.clip_by_value(seen, self.variance_min, self.variance_max)
            centres.append(self.mean_decay * a + (1 - self.mean_decay) * tf.where(tf.math.is_finite(g), g, 0.0))
            variances.append(self.variance_decay * v + (1 - self.variance_decay) * seen)
        return {_CENTRE: centres, _VARIANCE: variances}

    def get_config(self) -> dict:
        own = ("variance_min", "variance_max", "mean_decay", "variance_decay")
        return {**super().get_config(), **{name: getattr(self, name) for name in own}}
