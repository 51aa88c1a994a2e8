"""Directional noise on a support: some coordinates alone, chosen before the lot is drawn.

The guarantee of all forms: let K be the support of a step and s its scales. An example contributes g restricted to K, times
``min(1, C / ||g_K / s_K||)``; the norm is computed with scales of infinity outside of K. So for two neighbouring lots
sums on K, divided by s_K, differ by at most C, and what is released is the Gaussian mechanism with noise multiplier
``noise_multiplier`` on K, the constant 0 elsewhere. That holds for any K and s that are fixed before the lot is drawn. The cost
is that of NoisySGD.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import Ellipsoid
from tfdp.mechanisms.direction import ONES, Direction, Public
from tfdp.mechanisms.directional import NOISY_GRADIENT, DirectionalMechanism
from tfdp.mechanisms.gaussian import State, noise_is_apart, steps_between
from tfdp.mechanisms.pruning import checked_ratio, kept, largest, zeros_like
from tfdp.mechanisms.secret_generator import SecretGenerator

_SUPPORT, _DENSE, _SINCE, _DRAWN = "support", "dense", "since", "drawn"
_PUBLIC_SEED = 2021


class OnSupport(DirectionalMechanism):
    """Coordinates outside of the support are left out of every example's gradient before it is clipped, get no noise and do not
    move. There is no error feedback: what was left out was not released.

    Args:
        pruning_ratio: the share of all coordinates that is left out.
        support_steps: how long a support is kept.
        l2_norm_clip, noise_multiplier, **directional: those of ``DirectionalMechanism``.
    """

    least_support_steps: int

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
        self.support_steps = steps_between("support_steps", support_steps, self.least_support_steps)

    def masks(self, state: State) -> list[tf.Tensor]:
        """True on the support."""
        return [part > 0 for part in state[_SUPPORT]]

    def ellipsoid(self, state: State) -> Ellipsoid:
        """With infinite scales outside of the support."""
        whole = super().ellipsoid(state)
        scales = [tf.ones_like(part) for part in state[_SUPPORT]] if whole is None else whole.scales
        return Ellipsoid(kept(self.masks(state), scales, np.inf))

    def release(
        self,
        state: State,
        sums: list[tf.Tensor],
        ellipsoid: Ellipsoid,
        expected_lot_size: float,
        generator: SecretGenerator | None,
    ) -> tuple[list[tf.Tensor], State]:
        """Sums and noise outside of the support end here: sums were not bounded there."""
        masks = [tf.math.is_finite(scale) for scale in ellipsoid.scales]
        inside = Ellipsoid(kept(masks, ellipsoid.scales))
        released = self.privatise(kept(masks, sums), expected_lot_size, generator, inside)
        return released, self.next_state(state, released, inside, expected_lot_size)

    @property
    def works_on_parts(self) -> bool:
        """What is outside of the support ends after the sum, noise and all."""
        return type(self).release is OnSupport.release and noise_is_apart(type(self))

    def next_since(self, state: State) -> tf.Tensor:
        """Steps that the support is old, after this one."""
        return tf.math.floormod(state[_SINCE][0] + 1, float(self.support_steps))

    def get_config(self) -> dict:
        own = {"pruning_ratio": self.pruning_ratio, "support_steps": self.support_steps}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("tfdp")
class SupportMechanism(OnSupport):
    """Directional noise on the coordinates that were largest in earlier releases.

    Every ``support_steps``-th step, the first among them, is dense: one of ``DirectionalMechanism``. The support of the steps
    between is of the largest coordinates of a running mean of the dense releases: a function of earlier releases. The running
    means that s is made of are of dense releases, too.

    Args:
        pruning_ratio: the share of all coordinates that is left out between dense steps.
        support_steps: from one dense step to the next.
        l2_norm_clip, noise_multiplier, **directional: those of ``DirectionalMechanism``.
    """

    least_support_steps = 2  # with 1 every step would be dense

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        everything = [np.ones(tuple(w.shape), np.float32) for w in weights]
        own = {_SUPPORT: everything, _DENSE: zeros_like(weights), _SINCE: [np.zeros((), np.float32)]}
        return {**super().initial_state(weights), **own}

    def masks(self, state: State) -> list[tf.Tensor]:
        dense = self._is_dense(state)
        return [dense | mask for mask in super().masks(state)]

    def _is_dense(self, state: State) -> tf.Tensor:
        return tf.equal(state[_SINCE][0], 0)

    def next_state(
        self, state: State, released: list[tf.Tensor], ellipsoid: Ellipsoid, expected_lot_size: float
    ) -> State:
        """Learns from dense releases alone."""
        dense = self._is_dense(state)
        learnt = super().next_state(state, released, None if self.is_a_sphere else ellipsoid, expected_lot_size)
        learnt[_DENSE] = [m + (1 - self.decay) * (g - m) for m, g in zip(state[_DENSE], released, strict=True)]
        learnt = {
            name: [tf.where(dense, new, old) for new, old in zip(values, state[name], strict=True)]
            for name, values in learnt.items()
        }

        def largest_of_dense() -> list[tf.Tensor]:
            return [tf.cast(mask, tf.float32) for mask in largest(learnt[_DENSE], self.pruning_ratio)]

        support = tf.cond(dense, largest_of_dense, lambda: [tf.identity(part) for part in state[_SUPPORT]])
        return {**learnt, _SUPPORT: support, _SINCE: [self.next_since(state)]}


@keras.saving.register_keras_serializable("tfdp")
class RandomSupportMechanism(OnSupport):
    """Directional noise on coordinates that are drawn anew every ``support_steps`` steps, by a public seed.

    Supports are the same in every run on weights of these shapes, so they say nothing of the records. No step is dense, so
    that scales can't be learnt from the steps: they are public (``direction``, ``moments``) or of full gradients. Without
    ``moments`` all coordinates' are taken to be alike.

    Args:
        pruning_ratio: the share of all coordinates that is left out.
        support_steps: how long a support is kept.
        direction: as that of ``DirectionalMechanism``, but not "noisy_gradient"; "ones" if not given.
        l2_norm_clip, noise_multiplier, **directional: those of ``DirectionalMechanism``.
    """

    least_support_steps = 1

    def __init__(
        self, l2_norm_clip: float, noise_multiplier: float | None = None, *, direction: Direction = ONES, **others
    ):
        if isinstance(direction, str) and direction == NOISY_GRADIENT:
            raise ValueError(
                f"direction={NOISY_GRADIENT!r} is learnt from dense releases, but a random support has none. Leave it out (all "
                'coordinates alike), or give arrays, a function, or "full_gradient".'
            )
        super().__init__(l2_norm_clip, noise_multiplier, direction=direction, **others)

    @property
    def public_moments(self) -> Public:
        return self.moments if self.moments is not None else _alike

    def initial_state(self, weights: Sequence[keras.Variable]) -> State:
        with tf.init_scope():
            first = [part.numpy() for part in self._support([tuple(w.shape) for w in weights], 0)]
        counts = {name: [np.zeros((), np.float32)] for name in (_SINCE, _DRAWN)}
        return {**super().initial_state(weights), _SUPPORT: first, **counts}

    def next_state(
        self, state: State, released: list[tf.Tensor], ellipsoid: Ellipsoid, expected_lot_size: float
    ) -> State:
        since, shapes = self.next_since(state), [part.shape for part in state[_SUPPORT]]
        old = tf.equal(since, 0)
        drawn = state[_DRAWN][0] + tf.cast(old, tf.float32)
        support = tf.cond(
            old, lambda: self._support(shapes, drawn), lambda: [tf.identity(part) for part in state[_SUPPORT]]
        )
        return {_SUPPORT: support, _SINCE: [since], _DRAWN: [drawn]}

    def _support(self, shapes: list[tuple[int, ...]], number: tf.Tensor | int) -> list[tf.Tensor]:
        """The support of that number: coordinates with the largest of so many independent uniform numbers."""
        sizes = [int(np.prod(shape)) for shape in shapes]
        seed = tf.stack([_PUBLIC_SEED, tf.cast(number, tf.int32)])
        uniform = tf.split(tf.random.stateless_uniform([sum(sizes)], seed, alg="philox"), sizes)
        masks = largest([tf.reshape(u, shape) for u, shape in zip(uniform, shapes, strict=True)], self.pruning_ratio)
        return [tf.cast(mask, tf.float32) for mask in masks]


def _alike(weight: keras.Variable) -> float:
    return 1.0
