"""Nothing that was seen of a lot may be kept but through the noise.

A moving mean, a queue, a table or a weight that a layer, loss or metric writes would carry records past clip and noise. What
may be written, and by whom:

======================  ========================================================================================
part of a step          what it may write
======================  ========================================================================================
model and loss          metrics, which are not private; and nothing that it puts out may depend on them
metrics                 metrics
release                 the trainable weights and what optimizer and ledger keep; and it may know of the lot nothing but
                        the noised sum
validation, inference   metrics
======================  ========================================================================================

Variables are told apart by identity, never by name. Python is watched while it is traced (``no_state_assigned``), which gives
the best messages; then the graph is read, which sees everything (``gradients/traced.py``). An operation with a state of its
own that is on no list is refused by its name.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator

import keras
import tensorflow as tf

from tfdp.gradients.layer_tree import all_layers, components
from tfdp.gradients.shadows import shadowed
from tfdp.gradients.traced import KEPT, KNOWN, Findings, Place, Segment, findings

_STATEFUL_DRAWS = re.compile(
    r"Random.*|.*TruncatedNormal.*|Multinomial|.*CandidateSampler|Stateful.*|Rng.*|NonDeterministicInts|SampleDistorted.*"
)
_USE_KERAS_RANDOM = (
    "Write self.seeds = keras.random.SeedGenerator() in the layer's __init__ and keras.random.uniform(shape, seed=self.seeds), or the "
    "like, in its call: private training gives it seeds that nobody knows. For dropout use keras.layers.Dropout."
)

BATCH_NORM_CURE = (
    'tfdp.models.without_batch_norm(model) makes a copy of the model with keras.layers.GroupNormalization in its place; with by="frozen", '
    "with batch normalization by the statistics that it has, as layer.trainable = False does."
)
_BATCH_NORM = (
    "can't be trained privately: batch normalization mixes the examples of a batch, and keeps their mean and variance without noise. "
    "{cure} Calling a base as base(x, training=False) does not help: Keras 3.15 moves its statistics in fit all the same."
)


class StateAssigned(ValueError):
    """Something of a lot would be kept past clip and noise."""

    _keras_call_info_injected = True  # Keras writes nothing around the message, which names the layer


class KnownDraws(ValueError):
    """A layer's random numbers are not secret, or those of one row depend on other rows."""


# What may be written.


def metrics_of(model: keras.Model) -> list[tf.Variable]:
    """The variables of all metrics: the compiled ones, and those of layers."""
    found = [v.value for v in model.metrics_variables]
    found += [v.value for layer in all_layers(model) for metric in layer._metrics for v in metric.variables]
    weights = {id(v.value) for v in model.trainable_variables}
    return [v for v in found if id(v) not in weights]  # a metric may hold a weight, and must not write it


def handles(variables: Iterable[tf.Variable]) -> frozenset[int]:
    """What ``traced`` knows variables by."""
    return frozenset(id(part.handle) for v in variables for part in components(v))


def _ids(variables: Iterable[tf.Variable]) -> set[int]:
    return {id(part) for v in variables for part in (v, *components(v))}


# While Python is traced.


@contextlib.contextmanager
def no_state_assigned(model: keras.Model) -> Iterator["Watched"]:
    """Refuse code that assigns any variable but a metric, tracked by Keras or not; or the seed of a generator that draws.

    The assigning methods are shadowed on TensorFlow's variable class while the code is traced, so an assignment inside a
    branch or a loop is seen even if it does not run.
    """
    watched = Watched(model, _ids(metrics_of(model)))
    families = {type(v.value) for v in model.variables}
    definers = {definer: None for family in families for definer in family.__mro__}
    with contextlib.ExitStack() as shadows:
        shadows.enter_context(shadowed(keras.random.SeedGenerator, "next", watched.allow_seed))
        for definer in definers:
            for name in [n for n in definer.__dict__ if re.match(r"(batch_)?(assign|scatter)", n)]:
                shadows.enter_context(shadowed(definer, name, watched.checking(name)))
        yield watched


@dataclasses.dataclass(eq=False)
class Watched:
    """Code that is being traced, and the seeds that it drew."""

    model: keras.Model
    allowed: set[int]
    seeds: list[tf.Variable] = dataclasses.field(default_factory=list)

    def allow_seed(self, original, generator: keras.random.SeedGenerator, *args, **kwargs):
        seed = generator.state.value
        self.seeds.append(seed)
        self.allowed |= _ids([seed])
        return original(generator, *args, **kwargs)

    def checking(self, name: str):
        def assign(original, variable, *args, **kwargs):
            known = id(variable) in self.allowed
            if not known and id(variable) not in _ids(metrics_of(self.model)):  # metrics may be built meanwhile
                raise StateAssigned(_assigned_message(self.model, variable, name))
            return original(variable, *args, **kwargs)

        return assign


def refuse_stateful(model: keras.Model) -> None:
    """Recurrent layers that carry a state from lot to lot, before they see any data."""
    for layer in all_layers(model):
        if isinstance(layer, keras.layers.RNN) and layer.stateful:
            raise StateAssigned(
                f"The layer {layer.name!r} ({type(layer).__name__}) keeps a state from lot to lot, which mixes records. Use "
                "stateful=False."
            )


# When it is traced.


def check_model(
    model: keras.Model,
    graph: tf.Graph,
    secret: tf.Tensor | None,
    seeds: Iterable[tf.Variable] = (),
    of_the_model: int | None = None,
    unreadable: Iterable[tf.Variable] = (),
) -> None:
    """Of a traced pass of model and loss.

    Args:
        model: the model.
        graph: the function that was traced.
        secret: the argument of it that its random numbers are made of; None where layers draw from ``seeds`` of their own.
        seeds: these.
        of_the_model: how many operations, from the first on, are the model's, its losses' and their gradients'; all if not given.
            Those after it are the library's own.
        unreadable: what a release writes beside weights (counts, moments).
    """
    metrics = metrics_of(model)
    allowed = handles([*metrics, *seeds])
    secrets = () if secret is None else (secret,)
    operations = graph.get_operations()
    found = findings(graph, operations, secrets, handles(metrics), graph.outputs)
    if of_the_model is not None:
        found.refused = findings(graph, operations[:of_the_model]).refused
    _check_writes(model, graph, found, allowed, "a training call")
    if any(labels & KEPT for labels in found.labels):
        raise StateAssigned(
            f"The loss of the model {model.name!r} depends on the state of a metric, an average over earlier records: data would "
            "reach the weights without clipping and noise. Let metrics be updated, never read, in training."
        )
    if secret is not None:
        _check_draws(model, found)
    if found.reads & handles(unreadable):
        raise StateAssigned(
            f"A layer or the loss of the model {model.name!r} reads a variable of the optimizer (such as optimizer.iterations). What it does "
            "would change while fit runs, and was not checked. Count in a callback, or give the layer a variable of its own."
        )


@contextlib.contextmanager
def only_metrics_written(model: keras.Model, where: str) -> Iterator[None]:
    """Of what is run or traced inside: metrics, validation, inference."""
    with no_state_assigned(model) as watched:
        if tf.executing_eagerly():
            yield
            return
        segment = Segment()
        yield
    found = findings(segment.graph, segment.operations())
    _check_writes(model, segment.graph, found, handles([*metrics_of(model), *watched.seeds]), where)


@contextlib.contextmanager
def knowing_only(
    model: keras.Model,
    known: Iterable[tf.Tensor],
    writes: Iterable[tf.Variable],
    unreadable: Iterable[tf.Variable] = (),
) -> Iterator[None]:
    """Of the release that is traced inside: it is made of ``known`` tensors and of variables, and writes no others."""
    if tf.executing_eagerly():
        yield
        return
    segment = Segment()
    yield
    strangers = segment.strangers(known)
    if strangers:
        raise StateAssigned(
            f"A regulariser or constraint of a weight of the model {model.name!r}, or its optimizer, uses what a layer or metric saw "
            f"of the records ({_named(strangers[0])}): weights would be moved by records without clip and noise. Let it depend on the "
            "weight alone; what depends on records belongs into the loss, as add_loss() or activity_regularizer=."
        )
    found = findings(segment.graph, segment.operations())
    _check_writes(model, segment.graph, found, handles(writes), "the optimizer's step")
    if found.reads & handles([*metrics_of(model), *unreadable]):
        raise StateAssigned(
            f"The optimizer of the model {model.name!r}, or a regulariser or constraint of its weights, reads a metric: an average over "
            "records would move weights without clip and noise. Let metrics be updated, never read, in training."
        )


def _check_writes(model, graph: tf.Graph, found: Findings, allowed: frozenset[int], where: str) -> None:
    if found.refused:
        raise _refusal(model, found.refused[0], where)
    for handle, place in found.assigned:
        if handle not in allowed:
            if _STATEFUL_DRAWS.fullmatch(place.kind):  # a tf.random.Generator, whoever has it
                raise _refusal(model, place, where)
            assigned = next((v for v in _variables(model, graph) if id(v.handle) == handle), None)
            raise StateAssigned(_assigned_message(model, assigned, place.kind, where, place))


def _variables(model: keras.Model, graph: tf.Graph) -> list[tf.Variable]:
    return [*getattr(graph, "variables", ()), *(part for v in model.variables for part in components(v.value))]


def _refusal(model: keras.Model, place: Place, where: str) -> ValueError:
    who = _who(model, place)
    if _STATEFUL_DRAWS.fullmatch(place.kind):
        return KnownDraws(
            f"{who} draws random numbers in {where} by {_named(place)}. They can't be made secret, and nobody can tell which "
            f"example they belong to. {_USE_KERAS_RANDOM}"
        )
    if "PyFunc" in place.kind:
        cure = "Write it with TensorFlow's or Keras's operations, or do it to the data set before training."
        return StateAssigned(
            f"{who} calls Python in {where} ({_named(place)}: numpy_function or py_function). What it keeps can't be seen, and may be "
            f"records. {cure}"
        )
    if place.kind in ("Print", "PrintV2"):
        return StateAssigned(
            f"{who} prints in {where} ({_named(place)}: tf.print), which could show records. Leave tf.print out; to watch a value, make it a "
            "metric."
        )
    return StateAssigned(
        f"{who} uses the operation {_named(place)} in {where}, which may keep or show what it was given. Private training does not know "
        "this operation. Leave it out; what is done to records can be done to the data set before training."
    )


def _check_draws(model: keras.Model, found: Findings) -> None:
    draws = [draw for draw in found.draws if draw.secret]
    open_to_all = [draw for draw in found.draws if not draw.secret]
    if any(labels & KNOWN for labels in found.labels):  # else nothing depends on them, as on those that made a weight
        raise KnownDraws(
            f"{_who(model, open_to_all[0].place)} draws random numbers with a fixed seed ({_named(open_to_all[0].place)}): whoever knows "
            f"the seed knows each example's. {_USE_KERAS_RANDOM}"
        )
    by_seed: dict = {}
    for draw in draws:
        first = by_seed.setdefault(draw.seed, draw)
        if first.what != draw.what:
            raise KnownDraws(
                f"{_who(model, draw.place)} uses one seed for two draws of different shapes ({_named(first.place)} and "
                f"{_named(draw.place)}), so that one example's random numbers are another's. Ask the SeedGenerator for a seed each time."
            )


def _named(place: Place) -> str:
    return f"{place.kind} at {place.name!r}"


def _who(model: keras.Model, place: Place) -> str:
    """The innermost layer that an operation's name tells."""
    layer = layer_in_scope(model, place.name.split("/")) or model
    return f"The {'model' if layer is model else 'layer'} {layer.name!r} ({type(layer).__name__})"


def layer_in_scope(model: keras.Model, scopes: list[str]) -> keras.Layer | None:
    """The innermost layer that one of the scopes is named after; Keras numbers a layer's calls."""
    layers = {layer.name: layer for layer in all_layers(model)}
    for scope in reversed(scopes):
        for name in (scope, re.sub(r"_\d+$", "", scope)):
            if name in layers:
                return layers[name]
    return None


def _assigned_message(
    model: keras.Model,
    assigned: tf.Variable | None,
    how: str,
    where: str = "a training call",
    place: Place | None = None,
) -> str:
    layer = next((layer for layer in all_layers(model) if assigned is not None and _holds(layer, assigned)), None)
    if layer is None and place is not None:
        layer = layer_in_scope(model, place.name.split("/"))
    cure = "Make what it keeps from the example in each call, or keep it constant in training (assign it before fit, or if training is False)."
    if isinstance(layer, keras.layers.SpectralNormalization):
        cure = "Use its layer as it is, with kernel_constraint= or kernel_regularizer= to keep its weights small."
    if isinstance(layer, keras.layers.BatchNormalization):
        return f"The layer {layer.name!r} ({type(layer).__name__}) {_BATCH_NORM.format(cure=BATCH_NORM_CURE)}"
    what = f"its variable {assigned.name!r}" if assigned is not None else f"something it keeps ({how})"
    who = f"The layer {layer.name!r} ({type(layer).__name__})" if layer is not None else f"The model {model.name!r}"
    return f"{who} assigns {what} in {where}: data would reach the model without clipping and noise. {cure}"


def _holds(layer: keras.Layer, assigned: tf.Variable) -> bool:
    seeds = [generator.state for generator in layer._seed_generators]
    variables = [*layer._trainable_variables, *layer._non_trainable_variables, *seeds, *vars(layer).values()]
    values = [getattr(v, "_value", v) for v in variables]
    return any(part is assigned for value in values for part in (value, *components(value)))
