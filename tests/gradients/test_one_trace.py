"""What is added to a trace is a function of the same arguments, and what was traced before is left as it was."""

import numpy as np
import tensorflow as tf

from tfdp.gradients.one_trace import further


def test_two_functions_of_one_trace_share_its_operations_and_variables():
    weight, passes, kept = tf.Variable([2.0, 3.0]), [], {}

    @tf.function(input_signature=[(tf.TensorSpec([None, 2]),), tf.TensorSpec([], tf.int32)], autograph=False)
    def first(record, row):
        passes.append(1)
        kept["rows"], kept["row"] = record[0] * weight, row
        return tf.reduce_sum(kept["rows"], 0)

    concrete = first.get_concrete_function()
    second = further(concrete, lambda: {"row": kept["rows"][kept["row"]], "size": tf.shape(kept["rows"])[0]})
    x = np.float32([[1, 2], [3, 4], [5, 6]])
    for factor in (1.0, 10.0):
        weight.assign(factor * np.float32([2, 3]))
        found = second((x,), 1)
        np.testing.assert_allclose(found["row"], factor * np.float32([6, 12]))
        assert found["size"] == 3
        np.testing.assert_allclose(first((x,), 0), factor * np.float32([18, 36]))
    assert len(passes) == 1
