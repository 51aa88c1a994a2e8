"""Where a model's per-example gradients are taken: which layer answers for which weights, by which rule.

A plan begins with the innermost layers that own the weights, each with its family's rule; weights of other layers are followed from
where they are read to where they meet the examples (``gradients/meetings.py``). Where the self-proof shows that a weight is not
covered so, it moves outwards, one step at a time: to the universal rule of the same layer, to that of the enclosing layers,
at worst to the whole model. The other weights stay where they are.
"""

import dataclasses
from collections.abc import Sequence

import keras

from tfdp.gradients.forms import only_universal
from tfdp.gradients.layer_tree import all_layers
from tfdp.gradients.per_example import MAP, XLA, modes_for
from tfdp.gradients.recording import Call
from tfdp.gradients.rules import Rule, find_rule
from tfdp.gradients.rules.universal import universal

FOLLOWED = "followed"


@dataclasses.dataclass
class Site:
    """A layer, the weights it answers for, and how: the family's rule, following the weights, or the universal rule in some mode."""

    layer: keras.Layer
    variables: list[keras.Variable]
    family: Rule | None = None
    modes: list[str] = dataclasses.field(default_factory=list)

    @property
    def way(self) -> str:
        return self.family.name if self.family else self.modes[0]

    @property
    def runs_again(self) -> bool:
        """Whether the layer is run a second time, an example at a time."""
        return self.family is None and self.way != FOLLOWED

    def rule(self, loss_scale: float) -> Rule | None:
        """None where reads of weights are followed instead."""
        return universal(self.variables, self.modes[0], loss_scale) if self.runs_again else self.family


@dataclasses.dataclass
class Plan:
    """``whole`` says that the model is run as one function of an example, by the mode named there; ``alone``, that the loss
    is asked about batches of one; ``penalties``, by ``id(weight)``, how often its regulariser counts where that is not once;
    ``beside``, by ``id(weight)``, the calls in which others than its layer use it, where those uses are followed; ``reasons``, by
    ``id(layer)``, why a faster way was left (by None, of the whole model). Where a step takes much
    memory it runs ``most_at_once``: a larger lot in parts. ``shared_draws`` says that a layer draws numbers for all examples alike."""

    sites: dict[int, Site]
    folded: set[int] = dataclasses.field(default_factory=set)
    shares: list[str] = dataclasses.field(default_factory=list)
    whole: list[str] = dataclasses.field(default_factory=list)
    alone: bool = False
    penalties: dict[int, float] = dataclasses.field(default_factory=dict)
    beside: dict[int, list[Call]] = dataclasses.field(default_factory=dict)
    reasons: dict[int | None, str] = dataclasses.field(default_factory=dict)
    most_at_once: int | None = None
    shared_draws: bool = False

    def take_whole(self, why: str) -> None:
        self.whole, self.reasons[None] = [XLA, MAP], why

    def rules(self, loss_scale: float) -> dict[int, Rule]:
        rules = {key: site.rule(loss_scale) for key, site in self.sites.items()}
        return {key: rule for key, rule in rules.items() if rule is not None}

    def follows(self, variable: keras.Variable, running: Sequence[keras.Layer]) -> keras.Layer | None:
        """The layer for which a read of this weight is followed, while these layers are running; None if it is not."""
        for site in holders(self, variable):
            inside = any(layer is site.layer for layer in running)
            if site.way == FOLLOWED or (id(variable) in self.beside and not inside):
                return site.layer
        return None

    @property
    def taps(self) -> set[tuple[int, str]]:
        """Where the gradients of calls are taken: at which layers, and in which way; and of which weights other uses are followed."""
        at_sites = {(key, "again" if site.runs_again else site.way) for key, site in self.sites.items()}
        return at_sites | {(key, "beside") for key in self.beside}

    @property
    def rules_in_use(self) -> set[tuple]:
        """All that a recorded pass holds of the plan: taps, and by which rule each site gets which weights."""
        return self.taps | {(key, site.way, *map(id, site.variables)) for key, site in self.sites.items()}

    def describe(self) -> list[str]:
        """One line a site, for people."""
        if self.whole:
            return [f"the whole model, an example at a time ({self.whole[0]})"]
        sites = self.sites.values()
        return [f"{s.layer.name}: {f'universal rule ({s.way})' if s.runs_again else s.way}" for s in sites]


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
            sites[id(layer)] = Site(layer, own, family, [] if family else _ways(layer))
    owned = {id(v) for site in sites.values() for v in site.variables}
    rest = [v for v in model.trainable_variables if id(v) not in owned]
    if rest:
        site = sites.setdefault(id(model), Site(model, [], None, _ways(model)))
        site.variables = site.variables + rest
    return Plan(sites)


def _ways(layer: keras.Layer) -> list[str]:
    """Without a family's rule, fastest first."""
    return modes_for(layer) if only_universal() else [FOLLOWED, *modes_for(layer)]


def holders(plan: Plan, variable: keras.Variable) -> list[Site]:
    """The sites that answer for a weight."""
    return [site for site in plan.sites.values() if any(v is variable for v in site.variables)]


def replace_rule(plan: Plan, model: keras.Model, site: Site, calls: list[Call], why: str) -> bool:
    """Another way for a site of which the present one does not run. False when there is none."""
    plan.reasons.setdefault(id(site.layer), why)
    if site.family is not None:
        site.family, site.modes = None, _ways(site.layer)
    elif len(site.modes) > 1:
        site.modes = site.modes[1:]
    else:
        return False
    _follow_uses_outwards(plan, model, calls)
    return True


def widen(plan: Plan, model: keras.Model, variable: keras.Variable, calls: list[Call]) -> bool:
    """Move one weight to the next wider site. False when the model itself could not cover it."""
    held = holders(plan, variable)
    for site in held:
        plan.reasons.setdefault(id(site.layer), "its rule does not give this layer's gradients")
    if len(held) == 1 and held[0].family is not None and id(variable) not in plan.beside:
        _move(plan, variable, held, held[0].layer)
        _follow_uses_outwards(plan, model, calls)
        return True
    return move_out(plan, model, variable, calls)


def move_out(plan: Plan, model: keras.Model, variable: keras.Variable, calls: list[Call]) -> bool:
    """Move one weight to a site around what holds it now. False when there is none."""
    held = holders(plan, variable)
    elsewhere = plan.beside.pop(id(variable), None)
    target = None
    if len(held) == 1 and held[0].way == FOLLOWED and elsewhere is None:
        target = held[0].layer
    elif len(held) == 1 and held[0].layer is model:
        return False
    else:
        target = _enclosing([site.layer for site in held], model, calls + (elsewhere or []))
    _move(plan, variable, held, target)
    _follow_uses_outwards(plan, model, calls)
    return True


def _follow_uses_outwards(plan: Plan, model: keras.Model, calls: list[Call]) -> None:
    """A layer that is run again shows its own uses of a weight alone: one that others use as well moves to a layer around all."""
    for site in [site for site in plan.sites.values() if site.runs_again]:
        for variable in [v for v in site.variables if id(v) in plan.beside]:
            move_out(plan, model, variable, calls)


def _move(plan: Plan, variable: keras.Variable, held: list[Site], target: keras.Layer) -> None:
    """To the universal rule of a layer."""
    for site in held:
        site.variables = [v for v in site.variables if v is not variable]
        if not site.variables:
            del plan.sites[id(site.layer)]
    existing = plan.sites.get(id(target))
    if existing is None:
        plan.sites[id(target)] = Site(target, [variable], None, modes_for(target))
        return
    modes = modes_for(target) if existing.family is not None else [m for m in existing.modes if m != FOLLOWED]
    plan.sites[id(target)] = Site(target, [*existing.variables, variable], None, modes)


def _enclosing(layers: list[keras.Layer], model: keras.Model, calls: list[Call]) -> keras.Layer:
    """The innermost layer, called in the step's own graph, around every call of these layers."""
    around = [call.enclosing for call in calls if any(call.layer is layer for layer in layers)]
    if not around:
        return model
    outside = {id(call.layer) for call in calls if not call.in_step_graph}
    common = [layer for layer in around[0] if all(any(layer is other for other in path) for path in around[1:])]
    common = [layer for layer in common if id(layer) not in outside and not any(layer is own for own in layers)]
    return common[-1] if common else model
