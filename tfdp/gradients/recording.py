"""What the layers saw: a forward pass in which chosen layers are recorded.

A *site* is a layer from whose calls the per-example gradients of some weights are computed. While ``recording`` is active,
every call of every layer passes through a wrapper on the instance (``layer.call``), so that layers that are called
without ``__call__`` (by TimeDistributed) are seen as well. A call is recorded only if it runs in the step's own graph: what
is inside a while loop or another ``tf.function`` can't be differentiated from outside, and the enclosing layer must be the
site instead.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfdp.gradients.draws import Drawn
from tfdp.gradients.layer_tree import all_layers, instance_attribute
from tfdp.gradients.rules.registry import Rule
from tfdp.gradients.state import StateAssigned


class RuleFailed(Exception):
    """The rule of a site does not run on this model."""

    def __init__(self, layer: keras.Layer, error: Exception):
        super().__init__(f"the rule of {layer.name!r} failed")
        self.layer, self.error = layer, error  # TensorFlow drops the cause of what is raised in a tf.function
        self._keras_call_info_injected = True  # or Keras makes another exception of it


@contextlib.contextmanager
def by_the_rule_of(layer: keras.Layer) -> Iterator[None]:
    """What fails in here fails for this layer, unless an inner one has said so already."""
    try:
        yield
    except (RuleFailed, StateAssigned):
        raise
    except Exception as error:
        raise RuleFailed(layer, error) from error


@dataclasses.dataclass
class Call:
    """One call of one layer."""

    layer: keras.Layer
    args: tuple
    kwargs: dict
    enclosing: tuple[keras.Layer, ...]  # outermost first
    in_step_graph: bool
    output: Any = None
    taps: list[tf.Tensor] | None = None  # at sites: where the output's gradient is taken
    kept: Any = None  # at sites: what else the rule asked to keep
    drew_random_numbers: bool = False
    rule: Rule | None = None  # at sites
    rows_of_its_own: bool = True  # whether the taps' first axis is that of the layer's output

    @property
    def inputs(self) -> Any:
        """The first argument, whether it was passed by position or by name."""
        return self.args[0] if self.args else next(iter(self.kwargs.values()))

    def held_until(self, ready: list[tf.Tensor]) -> "Call":
        """The same call, whose tensors can't be read before others are there.

        TensorFlow runs whatever can be run: what a rule makes of the inputs alone (shifted views, normalised values) would be
        made in the forward pass, for all layers, and fill the memory until the gradients at the outputs come.
        """

        def held(value):
            if not isinstance(value, tf.Tensor):
                return value
            copy = tf.identity(value)
            if getattr(value, "_keras_mask", None) is not None:
                copy._keras_mask = value._keras_mask
            return copy

        with tf.control_dependencies(ready):
            args, kwargs, kept = keras.tree.map_structure(held, (self.args, self.kwargs, self.kept))
        return dataclasses.replace(self, args=args, kwargs=kwargs, kept=kept)


@dataclasses.dataclass
class Recording:
    """All that one forward pass left behind, in order."""

    calls: list[Call] = dataclasses.field(default_factory=list)
    activity: list[tuple[Callable, tf.Tensor]] = dataclasses.field(default_factory=list)
    drawn: Drawn = dataclasses.field(default_factory=Drawn)
    running: list[keras.Layer] = dataclasses.field(
        default_factory=list
    )  # layers that are being called now, outermost first

    def sites(self) -> list[Call]:
        return [call for call in self.calls if call.taps is not None]


@contextlib.contextmanager
def recording(
    model: keras.Layer,
    sites: Mapping[int, Rule],
    watch: Callable[[tf.Tensor], None] | None = None,
    drawn: Drawn | None = None,
) -> Iterator[Recording]:
    """Record a forward pass of ``model``; ``sites`` maps ``id(layer)`` to the layer's rule, ``watch`` is the tape's.

    ``drawn`` counts the random numbers that layers draw meanwhile.
    """
    record = Recording(drawn=drawn or Drawn())
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    with contextlib.ExitStack() as shadows:
        for layer in all_layers(model):
            wrapper = _recorded(layer, layer.call, sites.get(id(layer)), watch, record, graph)
            shadows.enter_context(instance_attribute(layer, "call", wrapper))
            if layer.activity_regularizer is not None:
                postponed = _postponed(layer.activity_regularizer, record)
                shadows.enter_context(instance_attribute(layer, "activity_regularizer", postponed))
        yield record


def _postponed(regularizer: Callable, record: Recording) -> Callable:
    """An activity regulariser belongs to each example's own loss: Keras's sum over the lot must not enter instead."""

    def regularize(output):
        record.activity.append((regularizer, output))
        return tf.zeros([], output.dtype)

    return regularize


def _recorded(layer, original, rule, watch, record, graph) -> Callable:
    def call(*args, **kwargs):
        here = tf.executing_eagerly() if graph is None else tf.compat.v1.get_default_graph() is graph
        entry = Call(layer, args, kwargs, tuple(record.running), here)
        draws = record.drawn.count
        record.running.append(layer)
        try:
            if rule is not None and here:
                with by_the_rule_of(layer):
                    found = rule.tap(layer, original, watch, args, kwargs)
                entry.output, entry.taps, entry.kept, entry.rule = found.output, found.taps, found.kept, rule
            else:
                entry.output = original(*args, **kwargs)
        finally:
            record.running.pop()
        entry.drew_random_numbers = record.drawn.count > draws
        record.calls.append(entry)
        return entry.output

    return call
