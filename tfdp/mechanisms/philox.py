"""Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): a counter and a key to random words.

Two ways to the same words. ``from_kernel`` is TensorFlow's own. ``blocks`` is written in TensorFlow's operations: compiled by
XLA, rounds and whatever is computed from the words become one loop without a word in memory, which for many words takes a
third of the time of kernels that write them to memory and read them from it.
"""

import tensorflow as tf

_ALGORITHM = tf.random.Algorithm.PHILOX.value
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

_Words = tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]


def blocks(state: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """128 random bits for each of ``count`` counters from the state's on, as two ``uint64`` words.

    Args:
        state: three ``uint64``: the counter's lower half, its upper half, and the key.
        count: how many.
    """
    return _from(state[0], state[1], state[2], count)


def blocks_of_rows(states: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The same for many states at once, one a row: ``[rows, 3]`` gives words of ``[rows, count]``."""
    return _from(states[:, :1], states[:, 1:2], states[:, 2:], count)


def advanced(state: tf.Tensor, by: tf.Tensor | int) -> tf.Tensor:
    """The states that come so many blocks later: ``[rows, 3]``."""
    by = tf.cast(tf.reshape(by, [-1]), tf.uint64)
    lower = state[0] + by
    upper = state[1] + tf.cast(lower < by, tf.uint64)  # the carry
    return tf.stack([lower, upper, tf.broadcast_to(state[2], tf.shape(by))], axis=1)


def _from(first: tf.Tensor, above: tf.Tensor, key: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    lower = first + tf.cast(tf.range(count, dtype=tf.int64), tf.uint64)
    upper = above + tf.cast(lower < first, tf.uint64)  # the carry
    words = _philox((*_halves(lower), *_halves(upper)), _halves(key))
    return _joined(*words[:2]), _joined(*words[2:])


def from_kernel(state: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The same, ready made."""
    return tuple(tf.unstack(words_from_kernel(state, count), axis=1))


def words_from_kernel(state: tf.Tensor, count: int) -> tf.Tensor:
    """The same as ``[count, 2]``."""
    counter, key = tf.split(state, [2, 1])
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.constant([count, 2], tf.int64), key=key, counter=counter, alg=_ALGORITHM, dtype=tf.uint64
    )


def _philox(words: _Words, key: tuple[tf.Tensor, tf.Tensor]) -> _Words:
    for _ in range(_ROUNDS):
        first, second = (
            tf.cast(word, tf.uint64) * tf.constant(multiplier, tf.uint64)
            for word, multiplier in zip(words[::2], _MULTIPLIERS, strict=True)
        )
        (low0, high0), (low1, high1) = _halves(first), _halves(second)
        words = (high1 ^ words[1] ^ key[0], low1, high0 ^ words[3] ^ key[1], low0)
        key = tuple(part + tf.constant(step, tf.uint32) for part, step in zip(key, _KEY_STEPS, strict=True))
    return words


def _halves(word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Lower and upper 32 bits."""
    upper = tf.bitwise.right_shift(word, tf.constant(32, tf.uint64))
    return tf.cast(word, tf.uint32), tf.cast(upper, tf.uint32)


def _joined(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    high = tf.bitwise.left_shift(tf.cast(high, tf.uint64), tf.constant(32, tf.uint64))
    return tf.bitwise.bitwise_or(tf.cast(low, tf.uint64), high)
