"""Philox against TensorFlow's own kernel, and what a generator reserves."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.mechanisms import SecretGenerator, philox

ALL_ONES = -1  # as a word of 64 bits


def words_of_tensorflow(state: list[int], words: int) -> np.ndarray:
    generator = tf.random.Generator.from_state(np.array(state, np.int64), alg="philox")
    return generator.uniform_full_int([words], tf.uint64).numpy()


@pytest.mark.parametrize(
    ("way", "jit_compile"), [(philox.blocks, False), (philox.blocks, True), (philox.from_kernel, False)]
)
@pytest.mark.parametrize(
    "state",
    [
        [0, 0, 0],
        [123, 456, 789],
        [ALL_ONES - 3, 5, 2**62 + 1],  # the counter's lower half overflows at the fourth block
        [ALL_ONES, ALL_ONES, ALL_ONES],
    ],
)
def test_words_are_those_of_tensorflows_kernel(state, way, jit_compile):
    compute = tf.function(way, jit_compile=jit_compile)
    found = compute(tf.constant(np.array(state, np.int64).view(np.uint64)), 50)
    np.testing.assert_array_equal(np.stack(found, axis=1).ravel(), words_of_tensorflow(state, 100))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_every_row_has_the_words_of_its_own_state(jit_compile):
    states = np.array([[0, 0, 0], [123, 456, 789], [ALL_ONES - 3, 5, 2**62 + 1]], np.int64)
    compute = tf.function(philox.blocks_of_rows, jit_compile=jit_compile)
    found = np.stack(compute(tf.constant(states.view(np.uint64)), 20), axis=2)
    for row, state in zip(found, states, strict=True):
        np.testing.assert_array_equal(row.ravel(), words_of_tensorflow(state.tolist(), 40))


def test_an_advanced_state_has_the_words_that_come_later():
    state = tf.constant(np.array([ALL_ONES - 3, 5, 2**62 + 1], np.int64).view(np.uint64))
    found = np.stack(philox.blocks_of_rows(philox.advanced(state, tf.constant([2, 9])), 1), axis=2)
    later = np.stack(philox.from_kernel(state, 10), axis=1)  # the counter's lower half overflows in between
    np.testing.assert_array_equal(found[:, 0], later[[2, 9]])


@pytest.mark.parametrize("words", [1, 2, 7])
def test_random_bits_are_the_blocks_that_were_reserved(words):
    state = SecretGenerator(seed=3)._generator.state.numpy()
    np.testing.assert_array_equal(SecretGenerator(seed=3).random_bits(words), words_of_tensorflow(state, words))


@pytest.mark.parametrize("blocks", [1, 1000, 10**9])
def test_two_reservations_share_no_block(blocks):
    generator = SecretGenerator(seed=3)
    (first, *rest), (second, *same_rest) = (generator.reserve(blocks).numpy().tolist() for _ in range(2))
    assert rest == same_rest  # no carry with this seed: the lower halves tell
    assert second - first >= blocks
