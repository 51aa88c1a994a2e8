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
random bits, 64 a draw. Let K be 75 of them as a number: the code computes R from u = (K + 1) 2^-75. That is within
2^-75 of a U' that is uniform on (2^-75, 1], hence has the law of U given U > 2^-75. It computes A from 53 bits.

1. Tails. The radius ends at r_max = sqrt(150 ln 2) = 10.197. A true pair passes it with probability
   exp(-r_max^2 / 2) = 2^-75 exactly. So a pair has the law of a true pair given that its radius is at most r_max.
   What that costs a whole run is ``finite_support_delta``.
2. Rounding. Bits and true pairs can be put in one probability space in which the computed pair is a rounding of
   a true pair whose radius is at most r_max:

   - u in place of U' moves R by less than 1 / (K R): below 1e-9 / R for K >= 2^30, which fails with probability
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
_LARGEST_RADIUS = math.sqrt(2 * _RADIUS_BITS * math.log(2))
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

    While it runs it takes about 25 bytes of memory a weight, and less beyond a million weights: they are drawn one block
    after the other.

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
    halves: list[tf.Tensor] = []
    for pairs in _blocks(max(1, (sum(sizes) + 1) // 2)):
        with tf.control_dependencies(halves[-1:]):
            halves += normals_from_bits(generator.random_bits([pairs]), generator.random_bits([pairs]), dtype)
    flat = tf.concat(halves, axis=0)[: sum(sizes)]
    parts = tf.split(flat, tf.constant(sizes, tf.int64), num=len(sizes))
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def _blocks(pairs: int) -> list[int]:
    """Cut into at most 16 blocks of half a million or more."""
    size = max(2**19, -(-pairs // 16))
    return [min(size, pairs - start) for start in range(0, pairs, size)]


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


def finite_support_delta(weights: int, steps: int, noise_multiplier: float) -> float:
    """What it adds to delta that no pair of draws has a radius beyond r_max, over a run of Gaussian releases.

    Formal guarantee: let a run with true Gaussian noise be (epsilon, delta)-differentially private, at any epsilon,
    because of how its steps' distributions compare given earlier outputs and the lots of all *other* records (so the
    accountants price Poisson lots, full batches and declared batches). Then the same run with the noise of
    ``standard_normals`` (1. above) is (epsilon, delta + finite_support_delta)-differentially private. Of lines with
    different noise the prices add up.

    Proof. A step draws m = ceil(weights / 2) pairs (an odd one's spare draw may be thought released: its shift is 0).
    In units of the standard deviation, a record moves pair i by s_i, and sum s_i^2 <= S^2 = 1 / noise_multiplier^2.
    Write t = 2^-75, M = m * steps; p and q for the densities of all outputs on two neighbours, P' and Q' for the
    real runs; everything is given the lots of other records. Each step of p, q is a Gaussian centred at one of at most
    two points, the sum with the record and without it, or a mixture of both by the record's own coin. Let G be the
    outputs of which every pair of every step lies within r_max of both centres. The densities of P' and Q' are at most
    p / (1 - t)^M and q / (1 - t)^M everywhere, and exactly that on G. So for any set of outputs O

        P'(O) <= (P(O and G)) / (1 - t)^M + P'(not G)
              <= (e^epsilon Q(O and G) + delta) / (1 - t)^M + P'(not G)
              <= e^epsilon Q'(O) + delta / (1 - t)^M + P'(not G),

    and the same with P and Q exchanged. Outside of G a pair z, within r_max of its own centre, is beyond it of the other:
    |z + s| > r_max, with probability at most exp(-(r_max - s)^2 / 2) = t f(s), f(s) = exp(r_max s - s^2 / 2). Up to
    s = r_max - sqrt(3) the second derivative of f grows, hence so does (f(s) - 1 - r_max s) / s^2, and

        f(s_i) <= 1 + r_max s_i + (s_i / S)^2 f(S);   summed over a step's pairs   <= m + r_max S sqrt(m) + f(S).

    Last, delta / (1 - t)^M <= delta + M t wherever delta + 2 M t <= 1; beyond that nothing is claimed. Together a step
    costs at most t (2 m + r_max S sqrt(m) + f(S)), and a noise multiplier below 0.118 (S > r_max - sqrt(3)) costs 1.

    Example, a million weights over 10,000 steps:

    >>> finite_support_delta(10**6, 10_000, noise_multiplier=1.1)
    2.6...e-13
    """
    for name, count in (("weights", weights), ("steps", steps)):
        if count < 0:
            raise ValueError(f"{name} is a count, so it is 0 or more. Received: {name}={count}")
    if not noise_multiplier >= 0:
        raise ValueError(f"noise_multiplier is 0 or more. Received: noise_multiplier={noise_multiplier}")
    if steps == 0 or weights == 0:
        return 0.0
    shift = 1 / noise_multiplier if noise_multiplier else math.inf
    return min(1.0, steps * cut_pairs_delta((weights + 1) // 2, shift, _LARGEST_RADIUS))


def cut_pairs_delta(pairs: int, shift: float, radius: float) -> float:
    """A step's price in ``finite_support_delta``: ``shift`` is S, ``radius`` any r_max, and t = exp(-r_max^2 / 2)."""
    if shift > radius - math.sqrt(3):
        return 1.0
    tail = math.exp(-(radius**2) / 2)
    return tail * (2 * pairs + radius * shift * math.sqrt(pairs)) + math.exp(-((radius - shift) ** 2) / 2)
