"""What is counted as an operation."""

import keras
import numpy as np
import tensorflow as tf

from benchmarks import first_fit


def test_operations_of_functions_in_reach_count_once():
    @tf.function
    def called(x):
        return x + 1.0

    graph = tf.function(lambda x: called(x) * called(x)).get_concrete_function(tf.TensorSpec([])).graph
    # Argument, two calls, product and result; in the function that is called: constant, sum and result.
    assert first_fit.nodes(graph) == 5 + 3


def test_the_graph_of_a_training_function_is_the_one_that_trained():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(np.zeros((8, 3)), np.zeros((8, 2)), verbose=0)
    graph = first_fit.training_function(model)
    assert first_fit.nodes(graph) > 50
    assert any(v.handle is captured for v in graph.variables for captured in graph.external_captures)
