"""What a metric can't do in private training, told by the metric's name."""

import contextlib
from collections.abc import Iterator

import keras

_NO_VALUES = ("symbolic", "has no attribute 'numpy'", "numpy() is only available", "using a `tf.Tensor` as a Python")


@contextlib.contextmanager
def told_by_name(model: keras.Model) -> Iterator[None]:
    """Where a metric asks a tensor of a graph for its values, Keras's metrics fail in words that name nothing."""
    try:
        yield
    except Exception as error:
        if not any(words in str(error) for words in _NO_VALUES):
            raise
        names = _metrics_running(error) or sorted({metric.name for metric in model.metrics} - {"loss"})
        raise ValueError(
            f"The metric {' or '.join(map(repr, names))} of the model {model.name!r} asks for a tensor's values (by .numpy(), numpy, "
            "float() or a Python if). In private training metrics are traced once, with run_eagerly=True as well, to see that they keep "
            "nothing of records but in their own variables. Write it with keras.ops (keras.ops.mean in place of numpy.mean), or compute it "
            "in a callback from model.predict on data that you may show."
        ) from None


def _metrics_running(error: Exception) -> list[str]:
    """The innermost metric in whose method it happened."""
    found, trace = [], error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        owner = frame.f_locals.get(frame.f_code.co_varnames[0]) if frame.f_code.co_argcount else None
        if isinstance(owner, keras.metrics.Metric):
            found = [owner.name]
        trace = trace.tb_next
    return found
