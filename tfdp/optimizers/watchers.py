"""Which of fit's callbacks see metrics, and what they may do about them. Metrics carry no noise."""

from collections.abc import Iterable

import keras

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


def watchers_of(callbacks: Iterable[keras.callbacks.Callback]) -> tuple[Watcher, ...]:
    """One for each callback that acts on a metric, or of which that can't be known."""
    found = (_watcher(callback) for callback in callbacks)
    return tuple(watcher for watcher in found if watcher is not None)


def _watcher(callback: keras.callbacks.Callback) -> Watcher | None:
    name = type(callback).__name__
    action = next((_ACTIONS[base] for base in type(callback).__mro__ if base in _ACTIONS), None)
    if action == "chooses weights" and not callback.save_best_only:
        return None
    if action is not None:
        metric = getattr(callback, "monitor", "loss")  # TerminateOnNaN watches the loss
        return None if metric == "epsilon" else Watcher(name, metric, action)
    foreign = type(callback).__module__.split(".")[0] not in ("keras", "tfdp")
    return Watcher(name, None, "unknown") if foreign or isinstance(callback, _OPEN_TO_ALL) else None
