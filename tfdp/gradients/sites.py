"""Calls at which gradients are taken, once it is known which of them have examples.

A call whose output is the same to all examples (a table that is looked up at 0, 1, 2, ...) keeps its rule: the gradient at its
output is brought back, example by example, from where the output meets them (``gradients/meetings.py``), and the layer is taken
to be called by each example with the same inputs. A read of a weight is treated as such a call, whose output is the weight.
"""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from tfdp.gradients.factored import Materialised
from tfdp.gradients.layer_tree import flat_tensors
from tfdp.gradients.meetings import LotGraph, Meetings
from tfdp.gradients.operations import NoWayBack
from tfdp.gradients.recording import Call, by_the_rule_of
from tfdp.gradients.rules.registry import Rule, at_output


@dataclasses.dataclass(frozen=True)
class Read:
    """A weight as it was read for a layer."""

    layer: keras.Layer
    variable: keras.Variable
    value: tf.Tensor


def with_examples(calls: list[Call], reads: list[Read], objective: tf.Tensor, batch: tf.Tensor) -> list[Call]:
    """The same calls, and a call for each read, with taps that have a row an example."""
    graph = LotGraph(objective)
    found = []
    for call in calls:
        constant = [not graph.varies(tap) for tap in call.taps]
        if any(constant):
            with by_the_rule_of(call.layer):
                if not all(constant):
                    raise NoWayBack(call.taps[constant.index(True)].op, "has no row an example, but another output has")
                call = _as_called_by_each(call, [Meetings(tap, graph) for tap in call.taps], batch)
        found.append(call)
    for read in reads:
        with by_the_rule_of(read.layer):
            found.append(_as_call(read, Meetings(read.value, graph), batch))
    return [call for call in found if call.taps]


def _as_call(read: Read, meetings: Meetings, batch: tf.Tensor) -> Call:
    def gradients(call: Call, d: list[tf.Tensor | None]):
        return [(read.variable, Materialised(meetings.gradient(d, call.kept, batch), read.variable.shape))]

    rule = Rule("followed", gradients, at_output)
    return Call(read.layer, (), {}, (), True, None, meetings.outputs, meetings.inputs, False, rule, False)


def _as_called_by_each(call: Call, of_taps: list[Meetings], batch: tf.Tensor) -> Call:
    original = call.kept

    def gradients(held: Call, d: list[tf.Tensor | None]):
        d, inputs = iter(d), iter(held.kept)
        own = [m.gradient([next(d) for _ in m.outputs], [next(inputs) for _ in m.inputs], batch) for m in of_taps]
        tensors = [*(tap for tap in call.taps), *flat_tensors((call.args, call.kwargs, original))]
        only_row = all(tensor.shape.rank and tensor.shape[0] == 1 for tensor in tensors)

        def each(leaf: Any) -> Any:
            return _copies(leaf, batch, only_row) if tf.is_tensor(leaf) else leaf

        args, kwargs, kept = keras.tree.map_structure(each, (call.args, call.kwargs, original))
        own = [None if d is None else tf.squeeze(d, 1) if only_row else d for d in own]
        return call.rule.gradients(dataclasses.replace(held, args=args, kwargs=kwargs, kept=kept), own)

    return dataclasses.replace(
        call,
        taps=[output for meetings in of_taps for output in meetings.outputs],
        kept=[tensor for meetings in of_taps for tensor in meetings.inputs],
        rule=dataclasses.replace(call.rule, gradients=gradients),
        rows_of_its_own=False,
    )


def _copies(tensor: tf.Tensor, batch: tf.Tensor, only_row: bool) -> tf.Tensor:
    """One for each example: in place of the only row, or along a new axis."""
    one = tensor if only_row else tensor[None]
    copies = tf.broadcast_to(one, tf.concat([[batch], tf.shape(one)[1:]], 0))
    return tf.ensure_shape(copies, [None, *one.shape[1:]])
