"""Directional noise: the Gaussian mechanism in an ellipsoid (after Xiang et al. 2021, IEEE TDSC).

The paper shapes the noise of gradients that are clipped to a ball. In a ball no shape is better than a sphere
(docs/directional.md). Here the clip has the shape of the noise.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import Ellipsoid
from tfdp.mechanisms.direction import (
    FULL_GRADIENT,
    ONES,
    Direction,
    Public,
    checked_direction,
    checked_public,
    loaded,
    spread_over,
)
from tfdp.mechanisms.full_gradient import FullGradient
from tfdp.mechanisms.gaussian import GaussianMechanism, State, steps_between
from tfdp.mechanisms.ranges import number

NOISY_GRADIENT = "noisy_gradient"
_MEAN, _SQUARE, _NOISE, _RELEASES = "mean", "square", "noise", "releases"
_IMPORTANCE, _MOMENT = "importance", "moment"  # as they were given
_FULL, _FULL_NOISE = "full_gradient", "full_gradient_noise"  # the last one released, and its noise's standard deviation
_LITTLE = 1e-12  # of the mean moment: what stands for 0
_LEAST_SCALE, _LARGEST_SCALE = 1e-6, 1e6  # squares of scales and their inverses stay within float32
_LARGEST_DECAY = 0.99999  # 1 - decay is a float32


@keras.saving.register_keras_serializable("tfdp")
class DirectionalMechanism(GaussianMechanism):
    """Clip and noise each coordinate on a scale of its own.

    Formal guarantee: let s be the positive scales of a step, one for each coordinate, and S the sum that ``bounded_sum``
    returns. An example contributes ``min(1, C / ||g / s||) g``, so for two neighbouring lots S / s differs by at most C in
    l2 norm. What is released is S + s * N(0, (noise_multiplier * C)^2 I): divided by s, which is known, it is the Gaussian
    mechanism with noise multiplier ``noise_multiplier`` on S / s. That holds for *any* s that is fixed before the lot is drawn;
    these are functions of earlier releases and of public numbers alone (``next_state`` and ``with_full_gradient`` see nothing
    else).

    How s is chosen is a matter of accuracy, not of privacy. With importances w and second moments m of the coordinates, the
    noise that matters, ``sum w_i s_i``, is least at a given size of the clipped gradients, ``sum m_i / s_i^2``, for

        s_i = c (m_i / w_i)^(1/3),     c such that sum m_i / s_i^2 = sum m_i, as if all s_i were 1,

    which is equation 11 of the paper with m_i in place of the square of its Delta_i. Lagrange: w_i = 2 lambda m_i / s_i^3.

    - m: the mean square of the released gradients less that of their noise. It stands for the moment of the *examples'*
      gradients, which sums do not show. Or what ``moments`` says.
    - w: the mean of the released gradients, the last full gradient that was released, or what ``direction`` says.
    - Means of releases are running means with weights falling by ``decay`` a step. m and w are no less than the standard
      deviation that the noise leaves in them. Where noise is all there is, every s_i is the same; and s_i is always in
      [s_min, s_max].

    The full gradient is a release of its own, with a guarantee and a price of its own: ``FullGradient``.

    Args:
        l2_norm_clip: C, the largest norm of an example's contribution divided by s.
        noise_multiplier: standard deviation of the noise in units of ``l2_norm_clip * s``.
        direction: where w comes from: "noisy_gradient", "full_gradient", "ones", a list with an array of positive numbers for
            each trainable weight, or a function that is given such a weight (a ``keras.Variable``) and returns one (or a number). Arrays and
            functions are public knowledge: they must not be computed from the records.
        moments: m, if it is public knowledge: as ``direction``, a list of arrays or a function of a weight. Only ratios count.
        s_min, s_max: the bounds of s: 0.1 and 10, with ``moments`` 0.001 and 1000, if not given. With both 1 this is the
            mechanism of NoisySGD, to the last bit.
        decay: of the running means.
        direction_noise_multiplier: for "full_gradient", the noise of that release in units of ``l2_norm_clip``: needed with
            ``noise_multiplier``, found with it otherwise.
        direction_budget: for "full_gradient", the share of a ``target_epsilon`` that all these releases cost by themselves.
        direction_steps: for "full_gradient", the steps from one to the next; None: ceil(n / batch size), an epoch.
    """

    calibrated = ("noise_multiplier", "direction_noise_multiplier")

    def __init__(
        self,
        l2_norm_clip: float,
        noise_multiplier: float | None = None,
        direction: Direction = NOISY_GRADIENT,
        moments: Public | None = None,
        s_min: float | None = None,
        s_max: float | None = None,
        decay: float = 0.99,
        direction_noise_multiplier: float | None = None,
        direction_budget: float = 1 / 8,
        direction_steps: int | None = None,
    ):
        super().__init__(l2_norm_clip, noise_multiplier)
        self.direction = checked_direction(direction, (NOISY_GRADIENT, FULL_GRADIENT, ONES))
        self.moments = None if moments is None else checked_public("moments", moments)
        widest = 10.0 if moments is None else 1000.0
        self.s_min = 1 / widest if s_min is None else number("s_min", s_min, positive=True)
        self.s_max = widest if s_max is None else number("s_max", s_max, positive=True)
        if not _LEAST_SCALE <= self.s_min <= 1 <= self.s_max <= _LARGEST_SCALE:
            raise ValueError(
                f"s_min={s_min!r} and s_max={s_max!r}: 1, the scale of a sphere, must lie between them, and they between "
                f"{_LEAST_SCALE:g} and {_LARGEST_SCALE:g}."
            )
        self.check_noise()
        self.decay = number("decay", decay, positive=True)
        if self.decay > _LARGEST_DECAY:
            raise ValueError(
                f"decay must be at most {_LARGEST_DECAY}, not {decay!r}: means over 1 / (1 - decay) steps."
            )
        self.full_gradient = self._full_gradient(direction_noise_multiplier, direction_budget, direction_steps)

    def _full_gradient(self, noise_multiplier, share, every) -> FullGradient | None:
        wanted = isinstance(self.direction, str) and self.direction == FULL_GRADIENT
        share = number("direction_budget", share, positive=True)
        settings = {"direction_noise_multiplier": noise_multiplier, "direction_steps": every}
        given = [name for name, value in settings.items() if value is not None]
        if not wanted:
            if given or share != 1 / 8:
                name = (*given, "direction_budget")[0]
                raise ValueError(
                    f"{name}= goes with direction={FULL_GRADIENT!r}: leave it out, or give that direction."
                )
            return None
        if self.is_a_sphere:
            raise ValueError(
                f"direction={FULL_GRADIENT!r} would pay for a direction of which s_min=s_max=1 makes nothing. Give other "
                "bounds, or leave out direction."
            )
        if not share < 1:
            raise ValueError(f"direction_budget is a share of target_epsilon: between 0 and 1, not {share!r}.")
        every = None if every is None else steps_between("direction_steps", every, 1)
        if (self.noise_multiplier is None) != (noise_multiplier is None):
            raise ValueError(
                f"direction={FULL_GRADIENT!r} is a release of its own. With noise_multiplier= give its noise as well, "
                "direction_noise_multiplier= (in units of l2_norm_clip, without any sampling: 20.0 is a usual start); with "
                "target_epsilon= neither of the two: direction_budget= says which share of the target it may cost."
            )
        if noise_multiplier is not None:
            noise_multiplier = number("direction_noise_multiplier", noise_multiplier, positive=False)
        return FullGradient(self.l2_norm_clip, noise_multiplier, every, share)

    @property
    def scale_bounds(self) -> tuple[float, float]:
        own = self.__dict__
        return own.get("s_min", 1.0), own.get("s_max", 1.0)

    @property
    def is_a_sphere(self) -> bool:
        return self.s_min == self.s_max == 1

    @property
    def settled(self) -> dict[str, object]:
        return {"direction": self.direction, "moments": self.moments, "s_min = s_max = 1": self.is_a_sphere}

    @property
    def public_moments(self) -> Public | None:
        """None: to be learnt."""
        return self.moments

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        public = {_MOMENT: ("moments", self.public_moments)} if self.public_moments is not None else {}
        if not isinstance(self.direction, str):
            public[_IMPORTANCE] = ("direction", self.direction)
        state: State = {name: spread_over(weights, *given) for name, given in public.items()}
        if self.is_a_sphere:
            return {}
        learnt = [] if _MOMENT in state else [_SQUARE, _NOISE]
        learnt += {NOISY_GRADIENT: [_MEAN, _NOISE], FULL_GRADIENT: [_FULL]}.get(self._named_direction, [])
        for name in learnt:
            state[name] = [np.zeros(tuple(w.shape), np.float32) for w in weights]
        if _NOISE in state:
            state[_RELEASES] = [np.zeros((), np.float32)]
        if _FULL in state:
            state[_FULL_NOISE] = [np.zeros((), np.float32)]
        return state

    @property
    def _named_direction(self) -> str | None:
        return self.direction if isinstance(self.direction, str) else None

    def ellipsoid(self, state: State) -> Ellipsoid | None:
        return None if self.is_a_sphere else Ellipsoid(self.scales(state))

    def scales(self, state: State) -> list[tf.Tensor]:
        """s, for each weight in its shape."""
        moments = self._moments(state)
        total = _sum(moments)
        smallest = _LITTLE * total / sum(m.shape.num_elements() for m in moments)
        moments = [tf.maximum(m, smallest) for m in moments]
        importances = self._importances(state, moments, tf.sqrt(smallest))
        shapes = [
            tf.pow(m / tf.maximum(w, tf.sqrt(smallest)), 1 / 3) for m, w in zip(moments, importances, strict=True)
        ]
        factor = tf.sqrt(_sum([m / tf.square(s) for m, s in zip(moments, shapes, strict=True)]) / total)
        return [self._within_bounds(factor * s) for s in shapes]

    def _within_bounds(self, scale: tf.Tensor) -> tf.Tensor:
        # Before the first release, and wherever numbers have run out of range, a sphere.
        return tf.clip_by_value(tf.where(tf.math.is_finite(scale), scale, 1.0), self.s_min, self.s_max)

    def _moments(self, state: State) -> list[tf.Tensor]:
        if _MOMENT in state:
            return state[_MOMENT]
        # The square of a normal of variance n has variance 2 n^2.
        share = tf.sqrt(2 * self._spread(state))
        pairs = zip(state[_SQUARE], state[_NOISE], strict=True)
        return [self._corrected(state, tf.maximum(square - noise, share * noise)) for square, noise in pairs]

    def _importances(self, state: State, moments: list[tf.Tensor], smallest: tf.Tensor) -> list[tf.Tensor]:
        if _IMPORTANCE in state:
            return state[_IMPORTANCE]
        if self.direction == ONES:
            return [tf.ones_like(m) for m in moments]
        if _FULL in state:
            least = tf.maximum(state[_FULL_NOISE][0], smallest)
            return [tf.maximum(tf.abs(w), least) for w in state[_FULL]]
        spread = self._spread(state)
        pairs = [
            [self._corrected(state, part) for part in both] for both in zip(state[_MEAN], state[_NOISE], strict=True)
        ]
        return [tf.maximum(tf.maximum(tf.abs(mean), tf.sqrt(spread * noise)), smallest) for mean, noise in pairs]

    def _spread(self, state: State) -> tf.Tensor:
        """The variance of a running mean of independent values of variance 1."""
        left = tf.pow(self.decay, state[_RELEASES][0])
        return (1 - self.decay) / (1 + self.decay) * (1 + left) / (1 - left)

    def _corrected(self, state: State, running: tf.Tensor) -> tf.Tensor:
        """A mean over the releases there were, from one that began at 0."""
        return running / (1 - tf.pow(self.decay, state[_RELEASES][0]))

    def next_state(
        self, state: State, released: list[tf.Tensor], ellipsoid: Ellipsoid | None, expected_lot_size: float
    ) -> State:
        if _RELEASES not in state:
            return {}
        stddev = self.noise_multiplier * self.l2_norm_clip / expected_lot_size

        def moved(name: str, news: list[tf.Tensor]) -> list[tf.Tensor]:
            return [old + (1 - self.decay) * (new - old) for old, new in zip(state[name], news, strict=True)]

        news = {
            _MEAN: released,
            _SQUARE: [tf.square(g) for g in released],
            _NOISE: [tf.square(stddev * s) for s in ellipsoid.scales],
        }
        running = {name: moved(name, new) for name, new in news.items() if name in state}
        return {_RELEASES: [state[_RELEASES][0] + 1], **running}

    def with_full_gradient(self, state: State, released: list[tf.Tensor], size: tf.Tensor) -> State:
        stddev = self.full_gradient.noise_multiplier * self.l2_norm_clip / size
        # One that has run out of range would leave a sphere; the one before is a release as well.
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in released])
        kept = [tf.where(finite, new, old) for new, old in zip(released, state[_FULL], strict=True)]
        return {_FULL: kept, _FULL_NOISE: [tf.cast(stddev, tf.float32)]}

    def get_config(self) -> dict:
        own = {name: getattr(self, name) for name in ("direction", "moments", "s_min", "s_max", "decay")}
        full = self.full_gradient
        if full is not None:
            own |= {"direction_noise_multiplier": full.noise_multiplier, "direction_budget": full.share}
            own["direction_steps"] = full.every
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict) -> "DirectionalMechanism":
        public = {name: loaded(config[name]) for name in ("direction", "moments") if name in config}
        return cls(**{**config, **public})


def _sum(parts: list[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(part) for part in parts])
