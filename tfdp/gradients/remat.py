"""Rematerialisation (gradient checkpointing) is left out of a private pass: the plain call runs in its place.

``keras.RematScope``, ``keras.remat`` and ``tf.recompute_grad`` run a function without a tape, and again in the backward pass.
The taps of the layers inside would be those of the first run, which no gradient reaches; Dropout would draw other numbers in
the second; and Keras's own calls fail in a graph, where a recomputed function takes no keyword arguments. Little memory
would be saved: each layer's input and the gradient at its output are kept anyway until the norms are known.
``max_physical_batch`` is what saves memory. The plain call is the same function, so its gradients are those that were
asked for.
"""

import contextlib
import functools
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops import custom_gradient

from tfdp.gradients.shadows import shadowed

_KERAS = tuple(part for part in keras.Layer.__mro__ if "rematerialized_call" in part.__dict__)
_TENSORFLOW = ("_graph_mode_decorator", "_eager_mode_decorator")  # what runs a function with a custom gradient


@contextlib.contextmanager
def without_rematerialisation() -> Iterator[None]:
    """What is called inside, in this thread, is recorded and differentiated as if nothing were rematerialised."""
    with contextlib.ExitStack() as shadows:
        for part in _KERAS:
            shadows.enter_context(shadowed(part, "rematerialized_call", _plain_call))
        for name in _TENSORFLOW:
            shadows.enter_context(shadowed(custom_gradient, name, _plain_function))
        yield


def _plain_call(original: Callable, layer: Any, call: Callable, *args: Any, **kwargs: Any) -> Callable:
    _say_so()
    return call


def _plain_function(original: Callable, function: Callable, args: Any, kwargs: Any) -> Any:
    plain = recomputed(function)
    if plain is None:
        return original(function, args, kwargs)
    _say_so()
    return plain(*args, **kwargs)


def _code_of_recomputed() -> types.CodeType | None:
    """The code of the function that ``tf.recompute_grad`` makes of another one; it alone tells such functions apart."""
    parts = tf.recompute_grad.__code__.co_consts
    return next((part for part in parts if isinstance(part, types.CodeType) and "f" in part.co_freevars), None)


_RECOMPUTED = _code_of_recomputed()


def recomputed(function: Any) -> Callable | None:
    """The function that was given to ``tf.recompute_grad``; None for every other function with a custom gradient."""
    inner = getattr(function, "__func__", function)  # a method is recomputed as a method
    if _RECOMPUTED is None or getattr(inner, "__code__", None) is not _RECOMPUTED:
        return None
    plain = inner.__closure__[_RECOMPUTED.co_freevars.index("f")].cell_contents
    return plain if inner is function else functools.partial(plain, function.__self__)


def _say_so() -> None:
    warnings.warn(
        "Private training ignores keras.RematScope, keras.remat and tf.recompute_grad: gradients are the same, but no memory is "
        "saved. To save memory, give the optimizer max_physical_batch.",
        stacklevel=1,  # one place, so that it is said once
    )
