"""Random bits that nobody can replay.

Ordinary random numbers fail private training: their state is saved, seeded or logged, and who holds it subtracts the noise.
"""

import os

import numpy as np
import tensorflow as tf

from tfdp.mechanisms import philox

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

    @property
    def state(self) -> tf.Variable:
        """The variable that graphs advance."""
        return self._generator.state

    def reserve(self, blocks: int) -> tf.Tensor:
        """The state (three ``uint64``) from which so many Philox blocks may be made: no other call gets these blocks."""
        self.reseed_after_fork()
        # TensorFlow's own way to a counter and a key: it advances the counter at once, and sets replicas apart by the key.
        state = tf.bitcast(self._generator.skip(blocks), tf.uint64)
        if self._generator._distribution_strategy is None:
            return state
        return tf.concat([state[:2], self._generator._preprocess_key(state[2:])], axis=0)

    def random_bits(self, words: int) -> tf.Tensor:
        """Independent uniform ``uint64`` values."""
        pairs = (words + 1) // 2
        drawn = tf.reshape(philox.words_from_kernel(self.reserve(pairs), pairs), [-1])
        return drawn if words == 2 * pairs else drawn[:words]

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
