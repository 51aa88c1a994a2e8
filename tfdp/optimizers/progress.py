"""A line on the console while the first fit prepares, if that takes long."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.utils import io_utils

LONG = 5.0  # seconds


@contextlib.contextmanager
def told_if_long(model: keras.Model, verbose: Any) -> Iterator[None]:
    """Says what fit is doing when it has been in here for a while. Not with ``verbose=0``."""
    if verbose in (0, "0"):
        yield
        return
    line = (
        f"tfdp: checking that no example of {model.name!r} reaches another one's gradient, and tracing the private step. "
        "This happens again when the model, the kind of data or the batch size changes."
    )
    timer = threading.Timer(LONG, io_utils.print_msg, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
