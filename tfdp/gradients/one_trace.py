"""Several functions of one trace.

Most of a first fit is Python that builds graphs of the model. What is asked of a pass in addition is added to the graph that there is,
and run as a function of its own: TensorFlow leaves out what its results do not need.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.eager.polymorphic_function.function_type_utils import derive_from_graph

from tfdp.gradients.once import computed_once


def further(function: ConcreteFunction, made: Callable[[], Any]) -> Callable[..., Any]:
    """A function of the same arguments, that gives what ``made`` returns: it is called once, to add operations to the graph."""
    graph, own = function.graph, function.graph.outputs
    with graph.as_default(), computed_once():
        results = tf.nest.map_structure(tf.identity, made())
    graph.outputs = tf.nest.flatten(results)
    try:
        traced = ConcreteFunction.from_func_graph(graph, derive_from_graph(graph), {})
    finally:
        graph.outputs = own

    def run(*arguments: Any) -> Any:
        given = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(arguments) if leaf is not None]
        return tf.nest.pack_sequence_as(results, traced._call_flat(given, traced.captured_inputs))

    return run
