"""Models whose inputs say how many rows a lot has, which private lots never have for long."""

import contextlib
from collections.abc import Iterator

import keras


def fixed_batch_size(model: keras.Model) -> str:
    """What is wrong with such a model, and what to write in its place; nothing of others."""
    fixed = [t for t in keras.tree.flatten(getattr(model, "inputs", None) or []) if t.shape and t.shape[0] is not None]
    if not fixed:
        return ""
    names = ", ".join(f"{tensor.name!r} has {tensor.shape[0]}" for tensor in fixed)
    return (
        f"The model {model.name!r} has inputs with a fixed number of rows ({names}), and something in it does not run on any other. Lots "
        "are drawn at random and have all sizes. Make the input without batch_size=: keras.Input(shape), not batch_shape=; and in a layer ask "
        "keras.ops.shape(x)[0] for the number of rows."
    )


@contextlib.contextmanager
def told_if_fixed(model: keras.Model) -> Iterator[None]:
    """Where a model is run on other numbers of rows than it was made for, its failure is told by its reason."""
    message = fixed_batch_size(model)  # before: a model that is being built says the rows of what it is built with
    try:
        yield
    except Exception as error:
        if not message or isinstance(error, ValueError):
            raise
        raise ValueError(message) from None
