"""Gaussian noise that nobody can replay: secret random bits, and a map from bits to normals with full tails.

Two things go wrong with ordinary random numbers in private training. Their state is saved, seeded or logged, and who
holds it subtracts the noise. And their tails are cut: `tf.random.normal`, `tf.random.stateless_normal` and
`tf.random.Generator.normal` raise Box and Muller's uniform to at least 1e-7, so no draw lies beyond 5.68 standard
deviations. A true pair of draws has a radius beyond that with probability 1e-7: with a million weights, every 20 steps.

`SecretGenerator` keeps the bits secret. `standard_normals` turns them into noise. `finite_support_delta` prices what
the map gives away.

Formal guarantees of `standard_normals`
---------------------------------------
For U uniform on (0, 1] and A uniform on (-pi, pi), R = sqrt(-2 ln U) and Z = (R cos A, R sin A) are two independent
standard normals (Box and Muller 1958). Each pair is made from 128 random
bits, 64 a draw. Let K be the first 75 binary digits of U. The code computes R from u = (K + 1) 2^-75, the upper end of
the cell of width 2^-75 that U lies in, and A from its first 53 digits.

1. *Tails.* The radius ends at r_max = sqrt(150 ln 2) = 10.197. A true pair passes it with probability
   exp(-r_max^2 / 2) = 2^-75 exactly, and then K = 0. So cutting R at r_max is a change of total variation 2^-75 for a
   pair, and at most d T 2^-75 for d weights over T steps, also when each step depends on the ones before (one union
   bound over all pairs). `finite_support_delta` is what this adds to delta.
2. *Rounding.* The bits and the true pair live in one probability space in which the computed pair is a rounding of the
   true pair with its radius cut at r_max:
   - u for U moves R by less than 1 / (K R): below 1e-9 / R for K >= 2^30, which fails with probability 2^-45;
   - float64 rounds u and R, which moves R by at most 1e-15 (R + 1 / R), and near R = 0 by at most 1.1e-8;
   - for noise in float64, the angle and its cosine and sine add 2e-15 R;
   - for noise in float32 and smaller types, the cosine and sine are float32 functions of an angle that was reduced in
     float64, and R is rounded to float32: at most 4e-7 R in each draw, where the rounding of a float32 result alone is
     6e-8 |Z|. This moves no tail probability up to 10 standard deviations by more than a factor of 1 +- 1e-4.
3. *Not claimed.* Computed noise is discrete: which floats a weight can take may depend on the data in its last bits
   (Mironov 2012, "On significance of the least significant bits for differential privacy"). Nothing here prevents it,
   and no number of this module accounts for it. Philox, the source of the bits, is a statistical generator with 192
   secret bits of state, not a cryptographic one: secrecy rests on nobody inverting it from noise they do not see alone.

Why the split: over 160,000 draws on two cores `tf.random.normal` is 1, this map 1.2 in float32, 2.2 all in float64.
The float64 cosine and sine are the difference, and a float32 result does not show it.
"""

import math
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_RADIUS_BITS = (
    75  # the 64 of the first word, and the 11 lowest of the second, which no float64 angle can hold
)
_STATE_WORDS = 3  # Philox: a counter of 128 bits and a key of 64


class SecretGenerator:
    """A source of random bits whose state is nobody's: not in a file, a config, a copy or a forked process.

    Formal guarantees:
      - The state comes from the operating system's entropy. `keras.utils.set_random_seed`, `tf.random.set_seed` and
        `tf.config.experimental.enable_op_determinism` do not move it.
      - It is a plain object that neither Keras nor TensorFlow tracks, so that no `.keras` file, weights file or
        `tf.train.Checkpoint` of an object that holds it contains its state.
      - A pickled or copied generator wakes up with fresh entropy, and so does one that finds itself in a forked process.

    | case | what happens |
    |---|---|
    | drawn from in a `tf.function`, also with `jit_compile=True` | every call gives new bits; `reseed()` reaches graphs already made |
    | made outside a `tf.distribute` scope, drawn from in replicas | replicas take turns on one stream: all bits differ |
    | made inside the scope, drawn from in replicas | each replica has a stream of its own |
    | a graph traced before a fork, run after it with no Python call between | the parent's bits again: call `reseed_after_fork()` first |

    Example:

    >>> generator = SecretGenerator()
    >>> kernel_noise, bias_noise = standard_normals(generator, [(784, 10), (10,)])

    Args:
        seed: Makes the bits reproducible, for tests. What was drawn from it is not secret, and `seeded` says so.
    """

    def __init__(self, seed: int | None = None):
        self._seeded = seed is not None
        state = _entropy() if seed is None else _state_from_seed(seed)
        with tf.init_scope():
            self._generator = tf.random.Generator.from_state(state, alg="philox")
        self._process = os.getpid()

    @property
    def seeded(self) -> bool:
        """Whether a seed was given: then some of the bits are known, and noise made of them protects nothing.

        Stays True after `reseed()`, because the bits drawn before it are still known.
        """
        return self._seeded

    def random_bits(self, shape: Sequence[int]) -> tf.Tensor:
        """Returns independent uniform `uint64` values."""
        self.reseed_after_fork()
        # int64, or the number of bits to skip overflows beyond 2^31 of them
        return self._generator.uniform_full_int(tf.constant(shape, tf.int64), tf.uint64)

    def reseed(self) -> None:
        """Draws a fresh state from the operating system, at once, for all graphs that use this generator.

        It happens when Python runs it, so inside a `tf.function` only while that is traced.
        """
        with tf.init_scope():
            self._generator.reset(_entropy())
        self._process = os.getpid()

    def reseed_after_fork(self) -> None:
        """Reseeds if this process is a fork of the one the state belongs to. Costs nothing otherwise.

        `random_bits` does it by itself; whoever runs a graph traced earlier calls it before. It is not an `os.fork`
        hook: running TensorFlow in a child that may never use it can block that child.
        """
        if self._process != os.getpid():
            self.reseed()

    def __reduce__(self):
        return type(self), ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(seeded={self._seeded})"


def _entropy() -> np.ndarray:
    return np.frombuffer(os.urandom(8 * _STATE_WORDS), np.int64)


def _state_from_seed(seed: int) -> np.ndarray:
    # Generator.from_seed puts the seed into the counter: neighbouring seeds would give the same stream, shifted.
    return np.random.SeedSequence(seed).generate_state(_STATE_WORDS, np.uint64).view(np.int64)


def standard_normals(
    generator: SecretGenerator, shapes: Sequence[Sequence[int]], dtype: str | tf.DType = "float32"
) -> list[tf.Tensor]:
    """Draws independent standard normals for all `shapes` at once. The module's docstring has the guarantees.

    Temporaries take 26 bytes a weight, as long as it runs.

    Args:
        generator: The secret bits.
        shapes: Fully known shapes, one for each tensor.
        dtype: Floating type of the noise.
    """
    dtype = tf.as_dtype(dtype)
    if not dtype.is_floating:
        raise ValueError(
            f"Gaussian noise is of a floating type, such as 'float32'. Received: dtype={dtype.name!r}"
        )
    shapes = [tf.TensorShape(shape).as_list() for shape in shapes]
    if not shapes:
        return []
    sizes = [math.prod(shape) for shape in shapes]
    pairs = (sum(sizes) + 1) // 2
    pair = normals_from_bits(generator.random_bits([pairs]), generator.random_bits([pairs]), dtype)
    flat = tf.concat(pair, axis=0)[: sum(sizes)]
    parts = tf.split(flat, tf.constant(sizes, tf.int64), num=len(sizes))
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def normals_from_bits(
    radius_bits: tf.Tensor, angle_bits: tf.Tensor, dtype: str | tf.DType = "float32"
) -> tuple[tf.Tensor, tf.Tensor]:
    """Maps two random `uint64` words to two independent standard normals (Box and Muller 1958).

    Formal guarantees: finite for every input; the squares of the two sum to at most 150 ln 2, which is reached, up to
    the rounding of `dtype`; that sum does not grow as `radius_bits` grows, up to rounding.

    | radius_bits | angle_bits | result |
    |---|---|---|
    | 0 | 2**64 - 1 | (10.197, 0), the largest there is |
    | 0 | 2**63 - 1 | (-10.197, 0) |
    | 0 | 0 | (9.419, 0): the lowest 11 bits of the angle refine the radius |
    | 2**64 - 1 | any | (0, 0) |
    """
    dtype = tf.as_dtype(dtype)
    radius = tf.sqrt(-2.0 * tf.math.log(_uniform(radius_bits, angle_bits)))
    angle = tf.cast(tf.bitcast(angle_bits, tf.int64), tf.float64) * (math.pi * 2.0**-63)
    work_dtype = tf.float64 if dtype == tf.float64 else tf.float32
    radius, angle = tf.cast(radius, work_dtype), tf.cast(angle, work_dtype)
    return tf.cast(radius * tf.cos(angle), dtype), tf.cast(radius * tf.sin(angle), dtype)


def _uniform(radius_bits: tf.Tensor, angle_bits: tf.Tensor) -> tf.Tensor:
    """u = (K + 1) 2^-75 in float64, for K = 2^11 radius_bits + 2^11 - 1 - (angle_bits mod 2^11)."""
    # With all higher bits set, the lowest 11 read as -2^11 .. -1: mask and offset in one pass over the weights.
    below = tf.bitwise.bitwise_or(tf.bitcast(angle_bits, tf.int64), -(2**11))
    return tf.cast(radius_bits, tf.float64) * 2.0**-64 - tf.cast(below, tf.float64) * 2.0**-_RADIUS_BITS


def finite_support_distance(draws: int) -> float:
    """Returns a bound on the total variation between `draws` standard normals and the same with their radii cut.

    Each pair of draws costs 2^-75, the probability that a true pair passes the largest radius. `draws` counts the
    whole run: weights times steps. It bounds the pairs even if every step drew a single number.
    """
    if draws < 0:
        raise ValueError(f"draws counts weights times steps, so it is 0 or more. Received: draws={draws}")
    return min(1.0, draws * 2.0**-_RADIUS_BITS)


def finite_support_delta(draws: int, epsilon: float) -> float:
    """Returns what the finite support of the noise adds to delta, over a run of `draws` normals, at `epsilon`.

    If a mechanism is (epsilon, delta)-private with true Gaussian noise, then with noise within total variation t it is
    (epsilon, delta + (1 + e^epsilon) t)-private: P'(S) <= P(S) + t <= e^epsilon Q(S) + delta + t, and Q(S) <= Q'(S) + t.

    Example: a million weights, 10,000 steps, epsilon 3.

    >>> finite_support_delta(10**6 * 10_000, epsilon=3.0)
    5.5...e-12
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon is 0 or more. Received: epsilon={epsilon}")
    distance = finite_support_distance(draws)
    if distance == 0:
        return 0.0
    # in logarithms, as e^epsilon may not be a float
    return 1.0 if epsilon + math.log(distance) >= 0 else min(1.0, (1.0 + math.exp(epsilon)) * distance)
