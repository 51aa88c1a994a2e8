"""Weights that are used where the layer that owns them can't be watched: read by others, by the loss, or by a call inside a loop.

Such a use may show on real records alone (behind a branch, a mask, a token), and made-up ones would not betray it. It is
found where the model is traced, whatever the data.
"""

import dataclasses

import keras
import tensorflow as tf

from tfdp.gradients.draws import drawing_from
from tfdp.gradients.losses import OwnLosses
from tfdp.gradients.meetings import LotGraph, Meetings
from tfdp.gradients.operations import NoWayBack
from tfdp.gradients.plan import Plan, holders
from tfdp.gradients.reads import noted_reads
from tfdp.gradients.recording import Call, recording
from tfdp.gradients.trial import Trial, unpacked


@dataclasses.dataclass
class Use:
    """A weight, and where it is used beside its sites: calls, or the loss (none of them).

    ``followed`` says that every such use leads to operations from which its gradients are known (``gradients/meetings.py``).
    """

    variable: keras.Variable
    calls: list[Call] = dataclasses.field(default_factory=list)
    in_loss: bool = False
    followed: bool = True


def used_elsewhere(trial: Trial, plan: Plan, calls: list[Call]) -> list[Use]:
    """The weights with uses that their sites don't see."""
    found: dict[int, Use] = {}
    for site in plan.sites.values():
        own = [call for call in calls if call.layer is site.layer]
        hidden = [call for call in own if not call.in_step_graph]
        if hidden and len(hidden) < len(own):  # where all are hidden, the proof finds no gradient at all
            found |= {id(v): Use(v, hidden, followed=False) for v in site.variables}
    for read in _reads_by_others(trial, plan):
        use = found.setdefault(id(read.variable), Use(read.variable))
        use.followed &= read.followed
        if read.running:
            owner = holders(plan, read.variable)[0].layer
            use.calls.append(Call(owner, (), {}, read.running, in_step_graph=False))
        else:
            use.in_loss = True
    return list(found.values())


@dataclasses.dataclass
class _Read:
    """A read of a weight, while these layers were running, outermost first."""

    variable: keras.Variable
    running: tuple[keras.Layer, ...]
    value: tf.Tensor
    followed: bool = False


def _reads_by_others(trial: Trial, plan: Plan) -> list[_Read]:
    """Those that the loss depends on, of weights whose own layer was not running."""
    model, found = trial.model, []

    @trial.function
    def forward(record, place, secret):
        x, y, sample_weight = unpacked(record)
        with tf.GradientTape() as tape, drawing_from(secret), recording(model, {}) as seen:

            def note(variable: keras.Variable, value: tf.Tensor) -> None:
                owners = [site.layer for site in holders(plan, variable)]
                if owners and not any(layer is owner for layer in seen.running for owner in owners):
                    tape.watch(value)
                    found.append(_Read(variable, tuple(seen.running), value))

            with noted_reads(model, note):
                y_pred = model(x, training=True)
                losses = OwnLosses(model, seen, x, y, y_pred, sample_weight, plan.alone)
            objective = losses.objective(["mean"] * len(losses.added))
        here = (
            tf.compat.v1.get_default_graph()
        )  # a read in a loop, which has a graph of its own, can't be asked about from here
        outer = [read for read in found if read.value.graph is here]
        gradients = tape.gradient(objective, [read.value for read in outer])
        idle = [id(read) for read, gradient in zip(outer, gradients, strict=True) if gradient is None]
        found[:] = [read for read in found if id(read) not in idle]
        graph = LotGraph(objective) if found else None
        for read in found:
            read.followed = _can_be_followed(read.value, graph)
        return objective

    forward.get_concrete_function()
    return found


def _can_be_followed(value: tf.Tensor, graph: LotGraph) -> bool:
    try:
        Meetings(value, graph)
    except NoWayBack:
        return False
    return True
