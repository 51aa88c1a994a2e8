"""Sharing operations changes no result."""

import numpy as np
import tensorflow as tf

from tfdp.gradients.once import computed_once


def graph_of(function, *specs) -> tf.Graph:
    def lean(*arguments):
        with computed_once():
            return function(*arguments)

    return tf.function(lean, autograph=False).get_concrete_function(*specs).graph


def kinds(graph: tf.Graph) -> list[str]:
    return [operation.type for operation in graph.get_operations()]


X = tf.TensorSpec([None, 3])


def empty_list() -> tf.Tensor:
    """What loops gather their rounds in."""
    shape = tf.constant([], tf.int32)
    return tf.raw_ops.EmptyTensorList(element_shape=shape, max_num_elements=3, element_dtype=tf.float32)


def test_the_same_of_the_same_is_computed_once():
    found = kinds(graph_of(lambda x: tf.reduce_sum(x, 1) + tf.reduce_sum(x, 1) + tf.reduce_sum(x, 0)[0], X))
    assert found.count("Sum") == 2


def test_what_has_a_state_or_is_a_copy_is_made_each_time():
    variable = tf.Variable(1.0)

    def function(x):
        variable.assign_add(1.0)
        first = variable.read_value()
        variable.assign_add(1.0)
        return (
            first,
            variable.read_value(),
            tf.random.uniform([]),
            tf.random.uniform([]),
            [empty_list() for _ in range(2)],
        )

    found = kinds(graph_of(function, X))
    assert [found.count(kind) for kind in ("AssignAddVariableOp", "RandomUniform", "EmptyTensorList")] == [2, 2, 2]
    assert found.count("ReadVariableOp") >= 2
    with_copies = graph_of(lambda x: (tf.identity(x), tf.identity(x)), X)
    assert len({tensor.op.inputs[0].ref() for tensor in with_copies.outputs}) == 2


def test_gradients_under_a_tape_are_those_without_sharing():
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(tf.square(x) * tf.square(x) + tf.exp(x) * tf.exp(x))
        return tape.gradient(value, x)

    def lean(x):
        with computed_once():
            return gradient(x)

    x = tf.constant([[0.5, -1.0, 2.0]])
    np.testing.assert_allclose(tf.function(lean, autograph=False)(x), 4 * x**3 + 2 * tf.exp(2 * x), rtol=1e-6)


def test_loops_and_their_gradients_keep_their_lists_apart():
    def gradient(x):
        with computed_once():
            _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, tf.ones_like(x)))
            _, z = tf.while_loop(lambda i, z: i < 2, lambda i, z: (i + 1, z * x), (0, tf.ones_like(x)))
            return tf.gradients(y + z, x)[0]

    x = tf.constant([2.0, 3.0])
    np.testing.assert_allclose(tf.function(gradient, autograph=False)(x), 3 * x**2 + 2 * x, rtol=1e-6)


def test_another_graph_is_left_alone():
    def function(x):
        inner = tf.function(lambda x: tf.reduce_sum(x) + tf.reduce_sum(x), autograph=False)
        return inner.get_concrete_function(X).graph, x

    found = []

    def lean(x):
        with computed_once():
            graph, x = function(x)
            found.append(graph)
            return x

    tf.function(lean, autograph=False).get_concrete_function(X)
    assert kinds(found[0]).count("Sum") == 2


def test_vectorised_loops_of_one_body_keep_their_rows():
    def function(x):
        def row(one):
            return tf.tanh(one) * tf.range(3.0)

        return tf.vectorized_map(row, x) + tf.vectorized_map(row, x) + tf.tanh(x) * tf.range(3.0)

    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    graph_function = tf.function(lambda x: _shared(function, x), autograph=False)
    np.testing.assert_allclose(graph_function(x), 3 * np.tanh(x) * np.arange(3.0), rtol=1e-5)


def test_equal_constants_stay_apart_under_a_tape():
    def function(x):
        first, second = tf.zeros([3]), tf.zeros([3])
        with tf.GradientTape() as tape:
            tape.watch(first)
            value = tf.reduce_sum(first * x[0] + second * x[1])
        return tape.gradient(value, first)

    def under_another(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            return function(x)

    x = np.asarray([[1.0, 2, 3], [4, 5, 6]], "float32")
    found = tf.function(lambda x: _shared(under_another, x), autograph=False)(x)
    np.testing.assert_array_equal(found, x[0])


def test_captured_tensors_stay_apart():
    first, second = tf.constant(3), tf.constant(3)
    found = tf.function(lambda x: _shared(lambda x: x * (first + second), x), autograph=False)
    assert found(tf.constant(2)) == 12


def _shared(function, *arguments):
    with computed_once():
        return function(*arguments)
