"""Functions that run a few times only are run as they were traced.

TensorFlow rewrites a graph before its first run: it folds constants, merges and reorders operations. For a large model that takes
seconds, which a training step earns back, and a trial does not.
"""

import contextlib
from collections.abc import Iterator

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context


@contextlib.contextmanager
def as_traced() -> Iterator[None]:
    """Functions that this thread runs for the first time inside are not rewritten."""
    present = context.context()
    before = present.function_call_options
    config = config_pb2.ConfigProto.FromString(before.config_proto_serialized)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    present.function_call_options = context.FunctionCallOptions(before.executor_type, config)
    try:
        yield
    finally:
        present.function_call_options = before
