"""Weights that are used where the layer that owns them can't be watched: read by others, or by a call inside a loop.

Such a use may show on real records alone (behind a branch, a mask, a token), and made-up ones would not betray it. It is
found where the model is traced, whatever the data.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from tfdp.gradients.layer_tree import components
from tfdp.gradients.plan import Plan, holders
from tfdp.gradients.recording import Call, Recording, recording
from tfdp.gradients.trial import Trial, unpacked

_READS = ("_read_variable_op", "sparse_read", "gather_nd")


def used_elsewhere(trial: Trial, plan: Plan, calls: list[Call]) -> list[tuple[keras.Variable, list[Call]]]:
    """Weights with the uses of them that their sites don't see."""
    found = {}
    for site in plan.sites.values():
        own = [call for call in calls if call.layer is site.layer]
        hidden = [call for call in own if not call.in_step_graph]
        if hidden and len(hidden) < len(own):  # where all are hidden, the proof finds no gradient at all
            found |= {id(v): (v, hidden) for v in site.variables}
    for variable, call in _reads_by_others(trial, plan):
        found.setdefault(id(variable), (variable, []))[1].append(call)
    return list(found.values())


def _reads_by_others(trial: Trial, plan: Plan) -> list[tuple[keras.Variable, Call]]:
    found = []

    @trial.function
    def forward(record, _):
        with recording(trial.model, {}) as seen, _reads(trial.model, lambda v: noted(v, seen)):
            trial.model(unpacked(record)[0], training=True)
        return tf.constant(0)

    def noted(variable: keras.Variable, seen: Recording) -> None:
        owners = [site.layer for site in holders(plan, variable)]
        if owners and not any(layer is owner for layer in seen.running for owner in owners):
            found.append((variable, Call(owners[0], (), {}, tuple(seen.running), in_step_graph=False)))

    forward.get_concrete_function()
    return found


@contextlib.contextmanager
def _reads(model: keras.Model, note: Callable[[keras.Variable], None]) -> Iterator[None]:
    """Tells of every read of a trainable weight in this thread."""
    weights = {id(part): v for v in model.trainable_variables for part in (v.value, *components(v.value))}
    thread, family = threading.get_ident(), resource_variable_ops.BaseResourceVariable
    originals = {name: getattr(family, name) for name in _READS}

    def told(original):
        def read(self, *args, **kwargs):
            if id(self) in weights and threading.get_ident() == thread:
                note(weights[id(self)])
            return original(self, *args, **kwargs)

        return read

    try:
        for name, original in originals.items():
            setattr(family, name, told(original))
        yield
    finally:
        for name, original in originals.items():
            setattr(family, name, original)
