"""The loop of recurrent layers against the same steps written one after the other."""

import numpy as np
import pytest
import tensorflow as tf

from tfdp.gradients.compilation import compiling
from tfdp.gradients.over_time import over_time

B, T, N = 3, 5, 4
GENERATOR = np.random.default_rng(0)
WEIGHTS = tf.constant(GENERATOR.normal(size=(N, N)), tf.float32)
START = [tf.constant(GENERATOR.normal(size=(B, N)), tf.float32)]
X = tf.constant(GENERATOR.normal(size=(B, T, N)), tf.float32)
SEEN = tf.constant([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])[..., None] > 0


def step(x_t, states):
    h = tf.tanh(x_t + states[0] @ WEIGHTS)
    return 2 * h, [h]


def one_after_the_other(x, seen):
    (h,), put_out, outputs = START, tf.zeros([B, N]), []
    for t in range(T):
        output, (after,) = step(x[:, t], [h])
        looked_at = tf.ones([B, 1], tf.bool) if seen is None else seen[:, t]
        put_out, h = tf.where(looked_at, output, put_out), tf.where(looked_at, after, h)
        outputs.append(put_out)
    return tf.stack(outputs, 1), [h]


def outputs_and_gradient(loop, x, seen):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        hidden, (last,) = loop(x, seen)
        loss = tf.reduce_sum(tf.square(hidden[:, -2:])) + tf.reduce_sum(last)
    return hidden, last, tape.gradient(loss, x)


WAYS = {
    "eagerly": lambda function: function,
    "in a graph": tf.function,
    "of unknown length": lambda function: tf.function(function, input_signature=[tf.TensorSpec([None, None, N])]),
    "by XLA": lambda function: tf.function(function, jit_compile=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seen", [None, SEEN], ids=["all", "masked"])
def test_outputs_and_gradients_are_those_of_the_steps_one_after_the_other(way, seen):
    def found(x):
        with compiling(xla=way == "by XLA"):
            return outputs_and_gradient(lambda x, seen: over_time(step, x, START, seen), x, seen)

    expected = outputs_and_gradient(one_after_the_other, X, seen)
    for ours, theirs in zip(WAYS[way](found)(X), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_no_list_of_gradients_is_filled_with_zeros_or_added_to():
    """That is what the loop is for: both took as long as the steps."""
    traced = tf.function(lambda x: outputs_and_gradient(lambda x, seen: over_time(step, x, START, seen), x, None))
    graph = traced.get_concrete_function(X).graph.as_graph_def()
    of_loops = [function for function in graph.library.function if "while" in function.signature.name]
    added = [node for function in of_loops for node in function.node_def if node.op in ("AddN", "AddV2")]
    assert not any(node.attr["T"].type == tf.variant.as_datatype_enum for node in added)
