"""Where a model's per-example gradients are taken: which layer answers for which weights, by which rule.

A plan begins with the innermost layers that own the weights, each with its family's rule. Where the self-proof shows that
a weight is not covered so, the weight moves outwards, one step at a time: to the universal rule of the same layer, to that
of the enclosing layers, at worst to the whole model.
"""

import dataclasses

import keras

from tfdp.gradients.forms import only_universal
from tfdp.gradients.layer_tree import all_layers
from tfdp.gradients.per_example import modes_for
from tfdp.gradients.recording import Call
from tfdp.gradients.rules import Rule, find_rule
from tfdp.gradients.rules.universal import universal


@dataclasses.dataclass
class Site:
    """A layer, the weights it answers for, and how: the family's rule, or the universal one in some mode."""

    layer: keras.Layer
    variables: list[keras.Variable]
    family: Rule | None = None
    modes: list[str] = dataclasses.field(default_factory=list)

    def rule(self, loss_scale: float) -> Rule:
        return self.family or universal(self.variables, self.modes[0], loss_scale)


@dataclasses.dataclass
class Plan:
    """``whole`` says that the model is run as one function of an example, by the mode named there; ``alone``, that the loss
    is asked about batches of one; ``penalties``, by ``id(weight)``, how often its regulariser counts where that is not once."""

    sites: dict[int, Site]
    folded: set[int] = dataclasses.field(default_factory=set)
    shares: list[str] = dataclasses.field(default_factory=list)
    whole: list[str] = dataclasses.field(default_factory=list)
    alone: bool = False
    penalties: dict[int, float] = dataclasses.field(default_factory=dict)

    def rules(self, loss_scale: float) -> dict[int, Rule]:
        return {key: site.rule(loss_scale) for key, site in self.sites.items()}

    @property
    def taps(self) -> set[tuple[int, bool]]:
        """Where the gradients of calls are taken: at which layers, and whether for the universal rule."""
        return {(key, site.family is None) for key, site in self.sites.items()}

    def describe(self) -> list[str]:
        """One line a site, for people."""
        if self.whole:
            return [f"the whole model, an example at a time ({self.whole[0]})"]
        return [
            f"{s.layer.name}: {s.family.name if s.family else f'universal rule ({s.modes[0]})'}"
            for s in self.sites.values()
        ]


def first_plan(model: keras.Model) -> Plan:
    """Every trainable weight with the layers that own it; a recurrent layer answers for its cells, which run in a loop."""
    trainable = {id(v) for v in model.trainable_variables}
    sites = {}
    inside_loops = {
        id(part) for layer in all_layers(model) if isinstance(layer, keras.layers.RNN) for part in all_layers(layer)[1:]
    }
    for layer in all_layers(model):
        if id(layer) in inside_loops:
            continue
        holds = layer.trainable_variables if isinstance(layer, keras.layers.RNN) else layer._trainable_variables
        own = [v for v in holds if id(v) in trainable]
        if own:
            family = None if only_universal() else find_rule(layer)
            sites[id(layer)] = Site(layer, own, family, [] if family else modes_for(layer))
    owned = {id(v) for site in sites.values() for v in site.variables}
    rest = [v for v in model.trainable_variables if id(v) not in owned]
    if rest:
        site = sites.setdefault(id(model), Site(model, [], None, modes_for(model)))
        site.variables = site.variables + rest
    return Plan(sites)


def holders(plan: Plan, variable: keras.Variable) -> list[Site]:
    """The sites that answer for a weight."""
    return [site for site in plan.sites.values() if any(v is variable for v in site.variables)]


def widen(plan: Plan, model: keras.Model, variable: keras.Variable, calls: list[Call]) -> bool:
    """Move one weight to the next wider site. False when the model itself could not cover it."""
    held = holders(plan, variable)
    if len(held) == 1 and held[0].family is not None:
        _move(plan, variable, held, held[0].layer)
        return True
    return move_out(plan, model, variable, calls)


def move_out(plan: Plan, model: keras.Model, variable: keras.Variable, calls: list[Call]) -> bool:
    """Move one weight to a site around the layers that hold it now. False when there is none."""
    held = holders(plan, variable)
    if len(held) == 1 and held[0].layer is model:
        return False
    _move(plan, variable, held, _enclosing([site.layer for site in held], model, calls))
    return True


def _move(plan: Plan, variable: keras.Variable, held: list[Site], target: keras.Layer) -> None:
    """To the universal rule of a layer."""
    for site in held:
        site.variables = [v for v in site.variables if v is not variable]
        if not site.variables:
            del plan.sites[id(site.layer)]
    existing = plan.sites.get(id(target))
    if existing is not None and existing.family is None:
        existing.variables = [*existing.variables, variable]
    else:
        moved = [variable] if existing is None else [*existing.variables, variable]
        plan.sites[id(target)] = Site(target, moved, None, modes_for(target))


def _enclosing(layers: list[keras.Layer], model: keras.Model, calls: list[Call]) -> keras.Layer:
    """The innermost layer, called in the step's own graph, around every call of these layers."""
    around = [call.enclosing for call in calls if any(call.layer is layer for layer in layers)]
    if not around:
        return model
    outside = {id(call.layer) for call in calls if not call.in_step_graph}
    common = [layer for layer in around[0] if all(any(layer is other for other in path) for path in around[1:])]
    common = [layer for layer in common if id(layer) not in outside and not any(layer is own for own in layers)]
    return common[-1] if common else model
