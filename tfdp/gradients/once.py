"""What a graph computes twice, it computes once.

Rules, norms, sums and metrics are written each by itself, and each asks for the constants, sizes, columns and lengths that it
needs: nearly half of a small model's private step would be the same again. TensorFlow merges such operations when it runs a
function for the first time. Not making them saves the time of tracing and reading them, too.
"""

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.function.capture.capture_container import FunctionCaptures
from tensorflow.python.eager import record
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.parallel_for import control_flow_ops

from tfdp.gradients.shadows import shadowed

_LARGEST_CONSTANT = 1024  # bytes, of those that are compared
_OWN = {  # copies mean to be copies
    *("Identity", "IdentityN", "StopGradient", "PreventGradient", "NoOp"),
    *("Placeholder", "PlaceholderV2", "PlaceholderWithDefault"),
}


@contextlib.contextmanager
def computed_once() -> Iterator[None]:
    """Of the operations that are added to the present graph inside. Without effect where nothing is traced.

    Formal guarantee: an operation is replaced only by one of the same kind, with the same attributes and the very same inputs,
    that has no state. While a tape watches, only whole numbers and truth values are shared: no gradient flows through them. In the
    body of a vectorised loop nothing is shared: such loops take what was there before them for the same in every round. Nor among what
    is captured from outside: each captured tensor is an input of its own.
    """
    if tf.executing_eagerly():
        yield
        return
    mine, known = tf.compat.v1.get_default_graph(), {}

    def made(
        original,
        graph,
        op_type,
        inputs,
        dtypes=None,
        input_types=None,
        name=None,
        attrs=None,
        op_def=None,
        *rest,
        **more,
    ):
        key = _key(op_type, inputs, attrs, op_def) if graph is mine and not _apart.depth else None
        found = known.get(key) if key is not None else None
        if found is not None and _may_be_shared(found):
            return found
        operation = original(graph, op_type, inputs, dtypes, input_types, name, attrs, op_def, *rest, **more)
        if key is not None and not operation.control_inputs and _is_of_numbers(operation):
            known[key] = operation
        return operation

    def without(original, *args, **kwargs):
        with nothing_shared():
            return original(*args, **kwargs)

    with contextlib.ExitStack() as shadows:
        shadows.enter_context(shadowed(FuncGraph, "_create_op_internal", made))
        shadows.enter_context(shadowed(control_flow_ops, "pfor", without))
        shadows.enter_context(shadowed(FunctionCaptures, "capture_by_value", without))
        yield


class _Apart(threading.local):
    depth = 0  # how many times this thread asked that nothing be shared


_apart = _Apart()


@contextlib.contextmanager
def nothing_shared() -> Iterator[None]:
    """Every operation that is added inside is one of its own: for code of a user's, which may count on that."""
    _apart.depth += 1
    try:
        yield
    finally:
        _apart.depth -= 1


def _key(op_type: str, inputs, attrs, op_def) -> tuple | None:
    if op_type in _OWN or (op_def is not None and op_def.is_stateful):
        return None
    attrs = attrs or {}
    if any(value.HasField("func") or value.list.func for value in attrs.values()):
        return None
    if op_type == "Const" and attrs["value"].ByteSize() > _LARGEST_CONSTANT:
        return None
    said = tuple(sorted((name, value.SerializeToString(deterministic=True)) for name, value in attrs.items()))
    return op_type, tuple(tensor.ref() for tensor in inputs), said


def _is_of_numbers(operation: tf.Operation) -> bool:
    """Lists of tensors and handles, which loops tell apart by which operation made them, are not."""
    numbers = all(t.dtype not in (tf.variant, tf.resource) for t in (*operation.outputs, *operation.inputs))
    return numbers and not operation.op_def.is_stateful


def _may_be_shared(operation: tf.Operation) -> bool:
    whole = all(t.dtype.is_integer or t.dtype.is_bool for t in operation.outputs)
    return whole or not record.could_possibly_record()
