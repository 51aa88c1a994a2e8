"""Gaussian noise that nobody can replay: secret random bits, and a map from bits to normals with full tails.

Ordinary random numbers fail private training in two ways. Their state is saved, seeded or logged, and who holds
it subtracts the noise. And their tails are cut: ``tf.random.normal``, ``tf.random.stateless_normal`` and
``tf.random.Generator.normal`` raise Box and Muller's uniform to at least 1e-7, so no draw lies beyond 5.68
standard deviations. A true pair of draws has a radius beyond that with probability 1e-7: with a million weights,
every 20 steps.

``SecretGenerator`` keeps the bits secret, ``standard_normals`` turns them into noise, and ``finite_support_delta``
is the price of the tails that are still missing.

Formal guarantees of ``standard_normals``. Let U be uniform on (0, 1] and A on (-pi, pi), and R = sqrt(-2 ln U).
Then Z = (R cos A, R sin A) are two independent standard normals (Box and Muller 1958). Each pair is made from 128
random bits, 64 a draw. Let K be the first 75 binary digits of U: the code computes R from u = (K + 1) 2^-75, the
upper end of the cell of width 2^-75 that U lies in. It computes A from its first 53 digits.

1. Tails. The radius ends at r_max = sqrt(150 ln 2) = 10.197. A true pair passes it with probability
   exp(-r_max^2 / 2) = 2^-75 exactly, and then K = 0. So cutting R at r_max changes the law of a pair by 2^-75 in
   total variation, and that of d weights over T steps by at most d T 2^-75. This holds also when each step depends
   on those before: it is one union bound over all pairs. ``finite_support_delta`` turns it into delta.
2. Rounding. Bits and true pairs can be put in one probability space in which the computed pair is a rounding of
   the true pair with its radius cut at r_max:

   - u in place of U moves R by less than 1 / (K R): below 1e-9 / R for K >= 2^30, which fails with probability
     2^-45;
   - float64 rounds u and R: at most 1e-15 (R + 1 / R), and never more than 1.1e-8 near R = 0;
   - in float64 noise, the angle and its cosine and sine add at most 2e-15 R;
   - in float32 noise, the cosine and sine are float32 functions of an angle reduced in float64, and R is rounded
     to float32: at most 4e-7 R (2e-7 seen), where rounding a float32 result alone costs up to 6e-8 |Z|. This moves
     no tail probability up to 10 standard deviations by more than a factor of 1 +- 1e-4. Smaller types are cast
     from it.
3. Not claimed. Computed noise is discrete, and which floats a weight can take may depend on the data in its last
   bits (Mironov 2012, "On significance of the least significant bits for differential privacy"). Nothing here
   prevents that, and no number of this module accounts for it. The bits come from Philox, a statistical generator
   with a secret state of 192 bits, not a cryptographic one: their secrecy assumes that nobody inverts Philox.

Why cosine and sine are float32 for float32 noise: for 160,000 draws on two cores the map takes 1.2 to 1.4 times as
long as ``tf.random.normal``, and 2.1 to 2.2 times with both in float64, which a float32 result would not show.
"""

import math
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_LOW_BITS = 11  # the angle's lowest: no float64 angle can hold them, so they refine the radius
_RADIUS_BITS = 64 + _LOW_BITS
_STATE_WORDS = 3  # Philox: a counter of 128 bits and a key of 64


class SecretGenerator:
    """A source of random bits whose state is nobody's: not in a file, a config, a copy or a forked process.

    Formal guarantees:

    - The state comes from the operating system's entropy. ``keras.utils.set_random_seed``, ``tf.random.set_seed``
      and op determinism do not move it.
    - It is a plain object that neither Keras nor TensorFlow tracks: no ``.keras`` file, weights file, export or
      ``tf.train.Checkpoint`` of an object that holds it contains its state.
    - A pickled or copied generator wakes up with fresh entropy. So does one that is drawn from in a forked process.

    | drawn from                                    | what happens                                                  |
    |-----------------------------------------------|---------------------------------------------------------------|
    | in a ``tf.function``, also with XLA           | every call gives new bits; ``reseed`` reaches existing graphs |
    | in replicas, but made outside of the strategy | replicas take turns on one stream, so all bits differ         |
    | in replicas, and made in the strategy's scope | each replica has a stream of its own                          |
    | in a fork, by a graph traced before it        | the parent's bits, unless ``reseed_after_fork`` came first    |

    Example:

    >>> generator = SecretGenerator()
    >>> kernel_noise, bias_noise = standard_normals(generator, [(784, 10), (10,)])

    Args:
        seed: makes the bits reproducible, for tests. What is drawn from them is not secret, and ``seeded`` says so.
    """

    def __init__(self, seed: int | None = None):
        self._seeded = seed is not None
        state = _entropy() if seed is None else _state_from_seed(seed)
        with tf.init_scope():
            self._generator = tf.random.Generator.from_state(state, alg="philox")
        self._process = os.getpid()

    @property
    def seeded(self) -> bool:
        """Whether a seed was given: then bits are known, and noise made of them protects nothing.

        Stays True after ``reseed``, because the bits drawn before it are still known.
        """
        return self._seeded

    def random_bits(self, shape: Sequence[int]) -> tf.Tensor:
        """Independent uniform ``uint64`` values."""
        self.reseed_after_fork()
        # int64, or the number of bits to skip overflows beyond 2^31 of them
        return self._generator.uniform_full_int(tf.constant(shape, tf.int64), tf.uint64)

    def reseed(self) -> None:
        """Draws a fresh state from the operating system, for all graphs that use this generator.

        It happens at once, when Python runs it: in a ``tf.function``, only while that is traced.
        """
        with tf.init_scope():
            self._generator.reset(_entropy())
        self._process = os.getpid()

    def reseed_after_fork(self) -> None:
        """Reseeds if this process is a fork of the one that the state belongs to. Costs nothing otherwise.

        ``random_bits`` does it by itself. Call it before a graph that was traced earlier. It is not left to a hook
        of ``os.fork``, because running TensorFlow in a child that never asked for it can block that child.
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
    # Generator.from_seed puts the seed into the counter: neighbouring seeds give one stream, shifted by two draws.
    return np.random.SeedSequence(seed).generate_state(_STATE_WORDS, np.uint64).view(np.int64)


def standard_normals(
    generator: SecretGenerator, shapes: Sequence[Sequence[int]], dtype: str | tf.DType = "float32"
) -> list[tf.Tensor]:
    """Independent standard normals for all ``shapes`` in one draw, with the guarantees of the module's docstring.

    While it runs it takes about 25 bytes of memory a weight.

    Args:
        generator: the secret bits.
        shapes: fully known shapes, one for each tensor.
        dtype: the floating type of the noise.
    """
    dtype = tf.as_dtype(dtype)
    if not dtype.is_floating:
        raise ValueError(f"Gaussian noise is of a floating type, such as 'float32'. Received: dtype={dtype.name!r}")
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
    """Maps two random ``uint64`` words to two independent standard normals (Box and Muller 1958).

    Formal guarantees: every input gives finite values; their squares sum to at most 150 ln 2, which is reached;
    that sum does not grow with ``radius_bits``. The last two hold up to rounding.

    | radius_bits | angle_bits | result                                                     |
    |-------------|------------|------------------------------------------------------------|
    | 0           | 2**64 - 1  | (10.197, 0), the largest there is                          |
    | 0           | 2**63 - 1  | (-10.197, 0)                                               |
    | 0           | 0          | (9.419, 0): the angle's lowest 11 bits refine the radius   |
    | 2**64 - 1   | any        | (0, 0)                                                     |
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
    below = tf.bitwise.bitwise_or(tf.bitcast(angle_bits, tf.int64), -(2**_LOW_BITS))
    return tf.cast(radius_bits, tf.float64) * 2.0**-64 - tf.cast(below, tf.float64) * 2.0**-_RADIUS_BITS


def finite_support_distance(draws: int) -> float:
    """A bound on the total variation between ``draws`` standard normals and the same with their radii cut.

    Each pair of draws costs 2^-75, the probability that a true pair passes the largest radius. ``draws`` counts the
    whole run, weights times steps; it bounds the number of pairs even if every step drew a single number.
    """
    if draws < 0:
        raise ValueError(f"draws counts weights times steps, so it is 0 or more. Received: draws={draws}")
    return min(1.0, draws * 2.0**-_RADIUS_BITS)


def finite_support_delta(draws: int, epsilon: float) -> float:
    """What the finite support of the noise adds to delta at ``epsilon``, over a run of ``draws`` normals.

    Write P, Q for the outputs on two neighbours with true Gaussian noise, P', Q' with noise within total variation
    t of it. If P(S) <= e^epsilon Q(S) + delta then P'(S) <= P(S) + t <= e^epsilon (Q'(S) + t) + delta + t, so
    delta grows by (1 + e^epsilon) t.

    Example, a million weights over 10,000 steps:

    >>> finite_support_delta(10**6 * 10_000, epsilon=3.0)
    5.58...e-12
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon is 0 or more. Received: epsilon={epsilon}")
    distance = finite_support_distance(draws)
    if distance == 0:
        return 0.0
    # in logarithms, as e^epsilon may not be a float
    return 1.0 if epsilon + math.log(distance) >= 0 else min(1.0, (1.0 + math.exp(epsilon)) * distance)
