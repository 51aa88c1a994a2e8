"""No statistic may leave a lot by the back door: a training call must not assign variables.

A moving mean, a recurrent state or a counter that a layer keeps would carry data into the model past clipping and noise.
"""

import contextlib
import dataclasses
import re
import threading
from collections.abc import Iterator

import keras
import tensorflow as tf

from tfdp.gradients.layer_tree import all_layers, components, seed_generators

_ASSIGNING_OPS = re.compile(
    r"Assign.*VariableOp|ResourceScatter.*|Resource.*Apply.*|LookupTable(Insert|Import|Remove).*"
)


class StateAssigned(ValueError):
    """The model changes a weight or statistic of its own during a training call."""


@contextlib.contextmanager
def no_state_assigned(model: keras.Model) -> Iterator[None]:
    """Refuse a forward pass that assigns any variable but a seed or a metric, tracked by Keras or not.

    The assigning methods are shadowed on TensorFlow's variable class while the pass is traced, so an assignment inside a
    branch or a loop is seen even if it does not run.
    """
    pass_ = _Pass(model, {id(part) for v in seeds_and_metrics(model) for part in (v, *components(v))})
    families = {type(v.value) for v in model.variables}
    families |= {type(generator.state.value) for generator in seed_generators(model)}
    definers = {definer: None for family in families for definer in family.__mro__}
    with contextlib.ExitStack() as shadows:
        for definer in definers:
            for name in [n for n in definer.__dict__ if re.match(r"(batch_)?(assign|scatter)", n)]:
                shadows.enter_context(_guarded(definer, name, pass_))
        yield


def seeds_and_metrics(model: keras.Model) -> list[tf.Variable]:
    """What a training call may assign."""
    found = [generator.state.value for generator in seed_generators(model)]
    found += [v.value for v in model.metrics_variables]
    return found + [v.value for layer in all_layers(model) for metric in layer._metrics for v in metric.variables]


def refuse_assigning_ops(model: keras.Model, graph: tf.Graph) -> None:
    """The same for assignments written as raw operations, found in the traced graph."""
    outside = {inside.ref(): handle for handle, inside in graph.captures}
    allowed = {id(part.handle) for v in seeds_and_metrics(model) for part in components(v)}
    for operation in graph.get_operations():
        if _ASSIGNING_OPS.fullmatch(operation.type):
            handle = outside.get(operation.inputs[0].ref())
            if handle is not None and id(handle) not in allowed:
                assigned = next((v for v in graph.variables if v.handle is handle), None)
                if assigned is None or "seed_generator_state" not in assigned.name:
                    raise StateAssigned(_message(model, assigned, operation.name))


def refuse_stateful(model: keras.Model) -> None:
    """Recurrent layers that carry a state from lot to lot, before they see any data."""
    for layer in all_layers(model):
        if isinstance(layer, keras.layers.RNN) and layer.stateful:
            raise StateAssigned(
                f"The layer {layer.name!r} ({type(layer).__name__}) keeps a state from lot to lot, which mixes records. Use "
                "stateful=False."
            )


@dataclasses.dataclass(eq=False)
class _Pass:
    """A forward pass that is being traced."""

    model: keras.Model
    allowed: set[int]
    thread: int = dataclasses.field(default_factory=threading.get_ident)

    def check(self, variable: tf.Variable, name: str) -> None:
        """What other threads assign meanwhile is none of this pass's business."""
        mine = threading.get_ident() == self.thread
        if mine and id(variable) not in self.allowed and "seed_generator_state" not in variable.name:
            raise StateAssigned(_message(self.model, variable, name))


# The passes that watch an assigning method. Threads end theirs in any order: the last one takes the guard away.
_watching: dict[tuple[type, str], list[_Pass]] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def _guarded(definer: type, name: str, pass_: _Pass) -> Iterator[None]:
    with _lock:
        passes = _watching.setdefault((definer, name), [])
        if not passes:
            original = definer.__dict__[name]

            def guard(self, *args, **kwargs):
                for one in tuple(passes):
                    one.check(self, name)
                return original(self, *args, **kwargs)

            guard.original = original
            setattr(definer, name, guard)
        passes.append(pass_)
    try:
        yield
    finally:
        with _lock:
            passes.remove(pass_)
            if not passes:
                setattr(definer, name, definer.__dict__[name].original)
                del _watching[definer, name]


def _message(model: keras.Model, assigned: tf.Variable | None, how: str) -> str:
    layer = next((layer for layer in all_layers(model) if assigned is not None and _holds(layer, assigned)), None)
    cure = "Keep such state out of the training call, or freeze the layer (layer.trainable = False)."
    if isinstance(layer, keras.layers.BatchNormalization):
        cure = "Use keras.layers.GroupNormalization or LayerNormalization in its place, or freeze it (layer.trainable = False)."
    what = f"its variable {assigned.name!r}" if assigned is not None else f"something it keeps ({how})"
    who = f"The layer {layer.name!r} ({type(layer).__name__})" if layer is not None else f"The model {model.name!r}"
    return f"{who} assigns {what} in a training call: data would reach the model without clipping and noise. {cure}"


def _holds(layer: keras.Layer, assigned: tf.Variable) -> bool:
    variables = [*layer._trainable_variables, *layer._non_trainable_variables, *vars(layer).values()]
    values = [getattr(v, "_value", v) for v in variables]
    return any(part is assigned for value in values for part in (value, *components(value)))
