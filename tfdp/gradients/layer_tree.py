"""Looking into a Keras model: its layers, their generators and added losses, and attributes shadowed for a while.

Keras's private names are used here and nowhere else where that can be helped; ``tests/gradients/test_layer_tree.py`` pins
them.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


def flat_tensors(structure: Any) -> list[tf.Tensor]:
    """The tensors of a nested structure, in order."""
    return [leaf for leaf in keras.tree.flatten(structure) if tf.is_tensor(leaf)]


def map_tensors(function: Callable[[Any], Any], structure: Any) -> Any:
    """``keras.tree.map_structure`` that leaves None alone."""
    return keras.tree.map_structure(lambda leaf: None if leaf is None else function(leaf), structure)


def all_layers(model: keras.Layer) -> list[keras.Layer]:
    """The model and every layer below it, each once."""
    return list({id(layer): layer for layer in model._flatten_layers()}.values())


def own_weight(layer: keras.Layer, variable: keras.Variable) -> bool:
    """Whether the layer itself, not one inside it, made this trainable weight."""
    return any(v is variable for v in layer._trainable_variables)


def seed_generators(model: keras.Layer) -> list[keras.random.SeedGenerator]:
    """Every generator that a layer of the model draws from, Keras's global one of this thread included."""
    found = {id(g): g for layer in all_layers(model) for g in layer._seed_generators}
    shared = keras.src.random.seed_generator.global_seed_generator()
    return list({**found, id(shared): shared}.values())


def added_losses(model: keras.Layer) -> list[tf.Tensor]:
    """What ``add_loss`` was given in the last call: data-dependent, unlike the weights' regularisers."""
    return [loss for layer in all_layers(model) for loss in layer._losses]


def components(variable: tf.Variable) -> list[tf.Variable]:
    """The variable itself; of one of a ``tf.distribute`` strategy its copies on the devices."""
    return list(variable.values) if isinstance(variable, tf.distribute.DistributedValues) else [variable]


def differentiable(variables: Iterable[keras.Variable]) -> list[tf.Variable]:
    """What a tape knows the variables by. Between replicas that is the first copy, which is the one that is read there."""
    between = tf.distribute.in_cross_replica_context()
    return [components(v.value)[0] if between else v.value for v in variables]


@contextlib.contextmanager
def instance_attribute(target: Any, name: str, value: Any) -> Iterator[None]:
    """Shadow an attribute on one object, past Keras's own tracking of attributes, and restore what was there."""
    missing = object()
    before = target.__dict__.get(name, missing)
    target.__dict__[name] = value
    try:
        yield
    finally:
        if before is missing:
            del target.__dict__[name]
        else:
            target.__dict__[name] = before


@contextlib.contextmanager
def attributes(targets: Sequence[Any], name: str, values: Iterable[Any]) -> Iterator[None]:
    """Set an attribute of several objects, each to its own value, and restore what was there."""
    before = [getattr(target, name) for target in targets]
    try:
        for target, value in zip(targets, values, strict=True):
            setattr(target, name, value)
        yield
    finally:
        for target, value in zip(targets, before, strict=True):
            setattr(target, name, value)


def shallow_copy(target: Any) -> Any:
    """Another object with the same attributes (Keras's own copying goes through its file format)."""
    twin = object.__new__(type(target))
    twin.__dict__.update(target.__dict__)
    return twin
