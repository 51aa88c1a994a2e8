"""Lines on the console as the first fit begins."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.utils import io_utils

from tfdp.accounting.exposure import trained_before

LONG = 5.0  # seconds


def tell_of_training_before(model: keras.Model, verbose: Any) -> None:
    """Says that no ledger has what came before. Not with ``verbose=0``: the privacy statement says it as well."""
    if trained_before(model.weights) and verbose not in (0, "0"):
        io_utils.print_msg(
            f"tfdp: the weights of {model.name!r} had ordinary training before this first private fit. The privacy statement covers "
            "the private steps only: if that was on the same records, nothing is private. Then make the model anew."
        )


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
