"""Which of fit's callbacks see metrics, and what they may do about them. Metrics carry no noise."""

import inspect
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import keras
import numpy as np

from tfdp.accounting import Watcher

# What Keras's own callbacks do with a metric that they watch. A class is looked up through its bases.
_ACTIONS = {
    keras.callbacks.EarlyStopping: "stops training",
    keras.callbacks.TerminateOnNaN: "stops training",
    keras.callbacks.ReduceLROnPlateau: "changes the learning rate",
    keras.callbacks.ModelCheckpoint: "chooses weights",
}
# They run code of the user's, and are handed the metrics.
_OPEN_TO_ALL = (keras.callbacks.LambdaCallback,)


def watchers_of(
    callbacks: Iterable[keras.callbacks.Callback], training_metrics: Collection[str], validated: bool
) -> tuple[Watcher, ...]:
    """One for each callback that acts on a metric, and one for each that may, because it runs code of the user's.

    A name alone is not believed. "val_..." is a metric of validation records only where there are some, and "epsilon" is
    what privacy costs only where a callback of tfdp writes it; neither is, where a training metric has that name.

    Args:
        callbacks: all of fit's.
        training_metrics: the names of what is computed from training records (``training_metrics_of``).
        validated: whether fit was given validation records that are not the training records.
    """
    callbacks = list(callbacks)
    written = any(getattr(callback, "writes_epsilon", False) for callback in callbacks)
    costless = {"epsilon"} - set(training_metrics) if written else set()

    def found() -> Iterator[Watcher]:
        for callback in callbacks:
            name, action = type(callback).__name__, _action(callback)
            metric = getattr(callback, "monitor", "loss")  # TerminateOnNaN watches the loss
            if action is not None and metric not in costless:
                validation = validated and metric.startswith("val_") and metric not in training_metrics
                yield Watcher(name, metric, action, validation)
            if _runs_code_of_the_users(callback, action):
                yield Watcher(name, None, "unknown")

    return tuple(found())


def training_metrics_of(model: keras.Model) -> set[str]:
    """The names under which the private step reports what it computes from training records.

    Read off the metrics, not off ``get_metrics_result``: some have no result before their first record.
    """
    names = set()
    for metric in model.metrics:
        if metric is model._compile_metrics:
            several = [part for part in metric._flat_metrics + metric._flat_weighted_metrics if part]
            names |= {_joined(part.output_name, own.name) for part in several for own in part.metrics}
        else:
            names.add(metric.name)
    return names


def are_training_records(x: Any, validation_data: Any) -> bool:
    """Whether validation data is, as far as can be seen, what ``fit`` trains on: the same object, or the same memory."""
    others = validation_data[0] if isinstance(validation_data, tuple | list) and validation_data else validation_data
    if others is x:
        return True
    first, other = (next(iter(keras.tree.flatten(part)), None) for part in (x, others))
    if isinstance(first, np.ndarray) and isinstance(other, np.ndarray):
        return np.shares_memory(first, other)
    return first is other and hasattr(first, "shape")


def _action(callback: keras.callbacks.Callback) -> str | None:
    action = next((_ACTIONS[base] for base in type(callback).__mro__ if base in _ACTIONS), None)
    return None if action == "chooses weights" and not callback.save_best_only else action


def _runs_code_of_the_users(callback: keras.callbacks.Callback, action: str | None) -> bool:
    """Besides what is known of the callback of Keras that it is made from."""
    foreign = [cls for cls in type(callback).__mro__ if _is_foreign(cls)]
    if isinstance(callback, _OPEN_TO_ALL) or (foreign and foreign[0] is type(callback) and action is None):
        return True
    methods = (name for cls in foreign for name, value in vars(cls).items() if inspect.isroutine(value))
    return any(not name.startswith("__") for name in methods) or any(name.startswith("on_") for name in vars(callback))


def _is_foreign(cls: type) -> bool:
    return cls is not object and cls.__module__.split(".")[0] not in ("keras", "tfdp")


def _joined(output: str | None, name: str) -> str:
    return f"{output}_{name}" if output else name
