"""A process that trains many models does not grow by what it made of each."""

import gc

import pytest
from tensorflow.python.framework.func_graph import FuncGraph

from tests.optimizers import tiny


def graphs() -> int:
    gc.collect()
    return sum(isinstance(found, FuncGraph) for found in gc.get_objects())


@pytest.mark.parametrize("arguments", [{}, {"jit_compile": True}, {"run_eagerly": True}], ids=str)
def test_a_model_that_is_gone_leaves_no_graph_behind(arguments):
    tiny.train(tiny.private(tiny.noisy(), **arguments))  # what is made once for all models
    before = graphs()
    tiny.train(tiny.private(tiny.noisy(), **arguments))
    assert graphs() <= before
