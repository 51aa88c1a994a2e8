"""Whether the graph being built is for XLA, which has no hash tables and no use for branches."""

import contextlib
import contextvars
from collections.abc import Iterator

_under_xla: contextvars.ContextVar[bool] = contextvars.ContextVar("under_xla", default=False)


@contextlib.contextmanager
def compiling(xla: bool) -> Iterator[None]:
    """What is built inside is compiled by XLA, or not."""
    token = _under_xla.set(xla)
    try:
        yield
    finally:
        _under_xla.reset(token)


def under_xla() -> bool:
    return _under_xla.get()
