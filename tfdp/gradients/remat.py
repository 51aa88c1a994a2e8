"""Rematerialisation (gradient checkpointing) is left out of a private pass: the plain call runs in its place.

``keras.RematScope``, ``keras.remat`` and ``tf.recompute_grad`` run a function without a tape, and again in the backward pass.
The taps of the layers inside would be those of the first run, which no gradient reaches; Dropout would draw other numbers in
the second; and Keras's own calls fail in a graph, where a recomputed function takes no keyword arguments. Little memory
would be saved: each layer's input and the gradient at its output are kept anyway until the norms are known.
``max_physical_batch`` is what saves memory. The plain call is the same function, so its gradients are those that were
asked for.

Two things of others are replaced while any thread is inside ``without_rematerialisation`` and restored by the last to leave:
``rematerialized_call`` of Keras's layers and operations, and what TensorFlow calls to run a custom gradient. Threads
that are not inside get the originals.
"""

import contextlib
import contextvars
import functools
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops import custom_gradient

_KERAS = tuple(part for part in keras.Layer.__mro__ if "rematerialized_call" in part.__dict__)
_REPLACED = [
    *((part, "rematerialized_call") for part in _KERAS),
    (custom_gradient, "_graph_mode_decorator"),
    (custom_gradient, "_eager_mode_decorator"),
]

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("without_rematerialisation", default=False)
_lock, _entered, _originals = threading.Lock(), [], []


@contextlib.contextmanager
def without_rematerialisation() -> Iterator[None]:
    """What is called inside, in this thread, is recorded and differentiated as if nothing were rematerialised."""
    with _lock:
        if not _entered:
            _replace()
        _entered.append(None)
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)
        with _lock:
            _entered.pop()
            if not _entered:
                _restore()


def _replace() -> None:
    for owner, name in _REPLACED:
        original = getattr(owner, name)
        _originals.append(original)
        setattr(owner, name, _plain_keras(original) if owner in _KERAS else _plain_tensorflow(original))


def _restore() -> None:
    for (owner, name), original in zip(_REPLACED, _originals, strict=True):
        setattr(owner, name, original)
    _originals.clear()


def _plain_keras(original: Callable) -> Callable:
    @functools.wraps(original)
    def rematerialized_call(self, call, *args, **kwargs):
        if not _inside.get():
            return original(self, call, *args, **kwargs)
        _say_so()
        return call

    return rematerialized_call


def _plain_tensorflow(original: Callable) -> Callable:
    @functools.wraps(original)
    def with_custom_gradient(function, args, kwargs):
        plain = recomputed(function) if _inside.get() else None
        if plain is None:
            return original(function, args, kwargs)
        _say_so()
        return plain(*args, **kwargs)

    return with_custom_gradient


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
