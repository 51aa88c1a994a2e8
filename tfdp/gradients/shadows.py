"""Functions of Keras and TensorFlow that ours stand before for a while, in one thread at a time.

Some things can be seen or changed nowhere else: a variable that is read or assigned, the seed of a layer's random numbers,
a loss that Keras divides by the number of replicas. All such places are here:

==============================================  =====================================================
what is shadowed                                where, and for what
==============================================  =====================================================
assigning methods of TensorFlow's variables     ``state.no_state_assigned``: refuse what a layer assigns
reading methods of TensorFlow's variables       ``reads``: find weights that others read, follow weights
``keras.random.SeedGenerator.next``             ``draws``: seeds from a secret; count what layers draw
TensorFlow's stateless random operations        ``draws.following``: random numbers move with their rows
``scale_loss_for_distribution`` of Keras        ``losses``: losses are those of one device
what adds an operation to a graph, ``pfor``,     ``once``: the same is computed once
what captures a tensor from outside a graph
``rematerialized_call`` of Keras, and what       ``remat``: nothing is run a second time for its gradient
runs TensorFlow's custom gradients
==============================================  =====================================================

Formal guarantees: a shadow has effect in the thread that made it, and only until its ``with`` ends. Shadows of several threads
may begin and end in any order; the last to end puts back the very object that was there.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any


@dataclasses.dataclass(eq=False)
class _Place:
    """An attribute of somebody else's class or module, and who stands before it now."""

    original: Any  # as it stood in the owner's ``__dict__``
    handlers: list[tuple[int, Callable]] = dataclasses.field(default_factory=list)  # with their threads, in order


_places: dict[tuple[int, str], _Place] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def shadowed(owner: Any, name: str, handler: Callable) -> Iterator[None]:
    """Calls of ``owner.name`` in this thread become ``handler(original, *args, **kwargs)``.

    Where shadows of one thread are nested, the outer one is the ``original`` of the inner one.
    """
    entry = (threading.get_ident(), handler)
    with _lock:
        place = _places.get((id(owner), name))
        if place is None:
            place = _places[id(owner), name] = _Place(owner.__dict__[name])
            setattr(owner, name, _standing_before(place, getattr(owner, name)))
        place.handlers.append(entry)
    try:
        yield
    finally:
        with _lock:
            place.handlers.remove(entry)
            if not place.handlers:
                setattr(owner, name, place.original)
                del _places[id(owner), name]


def are_in_place() -> bool:
    """Whether any shadow stands, in any thread."""
    return bool(_places)


def _standing_before(place: _Place, original: Callable) -> Callable:
    def standing(*args, **kwargs):
        called, thread = original, threading.get_ident()
        for owner, handler in tuple(place.handlers):
            if owner == thread:
                called = _after(handler, called)
        return called(*args, **kwargs)

    return standing


def _after(handler: Callable, original: Callable) -> Callable:
    return lambda *args, **kwargs: handler(original, *args, **kwargs)
