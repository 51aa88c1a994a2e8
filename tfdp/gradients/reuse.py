"""Weights that are used where the layer that owns them can't be watched: read by others, by the loss, or by a call inside a loop.

Such a use may show on real records alone (behind a branch, a mask, a token), and made-up ones would not betray it. It is
found where the model is traced, whatever the data.
"""

import dataclasses

import keras
import tensorflow as tf

from tfdp.gradients.engine import Forward
from tfdp.gradients.meetings import LotGraph, Meetings
from tfdp.gradients.operations import NoWayBack
from tfdp.gradients.plan import Plan, holders
from tfdp.gradients.recording import Call
from tfdp.gradients.sites import Read


@dataclasses.dataclass
class Use:
    """A weight, and where it is used beside its sites: calls, or the loss (none of them).

    ``followed`` says that every such use leads to operations from which its gradients are known (``gradients/meetings.py``).
    """

    variable: keras.Variable
    calls: list[Call] = dataclasses.field(default_factory=list)
    in_loss: bool = False
    followed: bool = True


@dataclasses.dataclass
class _ByOthers:
    """A read of a weight while no layer that answers for it was running; ``running`` were these, outermost first."""

    variable: keras.Variable
    running: tuple[keras.Layer, ...]
    value: tf.Tensor
    is_followed: bool  # by the plan, already


class NotedForward(Forward):
    """A forward pass that finds what its plan does not know yet: weights that others than their layers read."""

    def __init__(self, *arguments):
        self._by_others: list[_ByOthers] = []
        super().__init__(*arguments)

    def _note(self, variable: keras.Variable, value: tf.Tensor) -> None:
        super()._note(variable, value)
        owners, running = [site.layer for site in holders(self.plan, variable)], tuple(self.record.running)
        if owners and id(variable) not in self.plan.beside and not any(r is o for r in running for o in owners):
            self.tape.watch(value)
            is_followed = self.plan.follows(variable, running) is not None
            self._by_others.append(_ByOthers(variable, running, value, is_followed))

    def used_elsewhere(self, objective: tf.Tensor) -> list[Use]:
        """The weights with uses that their sites don't see. The plan has those that can be followed from now on, and so has this pass."""
        found = _hidden_calls(self.plan, self.record.calls)
        graph = LotGraph(objective)
        reads = [read for read in self._by_others if _counts(read.value, graph)]
        for read in reads:
            use = found.setdefault(id(read.variable), Use(read.variable))
            use.followed &= _can_be_followed(read.value, graph)
            if read.running:
                owner = holders(self.plan, read.variable)[0].layer
                use.calls.append(Call(owner, (), {}, read.running, in_step_graph=False))
            else:
                use.in_loss = True
        for read in reads:
            use = found[id(read.variable)]
            if use.followed and not use.in_loss:
                if not read.is_followed:
                    self._reads.append(Read(holders(self.plan, read.variable)[0].layer, read.variable, read.value))
                self.plan.beside[id(read.variable)] = use.calls
        return [use for use in found.values() if id(use.variable) not in self.plan.beside]


def _hidden_calls(plan: Plan, calls: list[Call]) -> dict[int, Use]:
    """Weights of layers that are called in a loop, or in a function of its own, and outside of it as well, by ``id(weight)``."""
    found = {}
    for site in plan.sites.values():
        own = [call for call in calls if call.layer is site.layer]
        hidden = [call for call in own if not call.in_step_graph]
        if hidden and len(hidden) < len(own):  # where all are hidden, the proof finds no gradient at all
            found |= {id(v): Use(v, hidden, followed=False) for v in site.variables}
    return found


def _counts(value: tf.Tensor, graph: LotGraph) -> bool:
    """Whether the loss may depend on it. Of a read in a loop, which has a graph of its own, that can't be told from here."""
    return value.graph is not graph.objective.graph or graph.moves_the_objective(value)


def _can_be_followed(value: tf.Tensor, graph: LotGraph) -> bool:
    try:
        Meetings(value, graph)
    except NoWayBack:
        return False
    return True
