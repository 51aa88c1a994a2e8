"""A copy of a model in which other layers stand where there was batch normalization."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras

from tfdp.accounting.exposure import inherit
from tfdp.gradients.layer_tree import instance_attribute
from tfdp.models.frozen import FrozenBatchNormalization
from tfdp.models.kinds import BatchNormalization, is_graph, mixes_by_norm
from tfdp.models.replaced_inside import ReplacedInside, parts_to_replace

MOST_GROUPS = 32
LEAST_CHANNELS = 4  # in a group: of a single one without height and width nothing is left but the offset


def without_batch_norm(model: keras.Model, by: str = "group") -> keras.Model:
    """A copy of a model that has no batch normalization, with the same weights.

    Batch normalization makes an example's output depend on the other examples of its lot, so no model that has it can be
    trained privately.

    Args:
        model: built; Sequential or functional. Models and layers of any class may stand inside it. Of a class of your own, make
            a functional model first: ``inputs = keras.Input(shape); model = keras.Model(inputs, model(inputs))``.
        by: what stands in its place.
            ``"group"``: ``keras.layers.GroupNormalization``, with the scale and the offset of the batch normalization. As many
            groups as divide the channels, at most 32, of at least 4 channels; one group where the input is a vector. The
            copy's outputs differ from the model's: train it from the beginning, or for longer.
            ``"frozen"``: ``tfdp.models.FrozenBatchNormalization``, by the statistics that the model has. Inference gives what it
            gave. For models whose statistics were learned before, on public data.

    Returns:
        A new model that shares no weights with the first, not compiled. Layers keep their names and whether they are
        trainable. A functional model of a class with another constructor, such as a backbone of KerasHub, comes back as a plain
        functional model; a layer that makes batch norms of its own comes back inside a ``ReplacedInside``.

    What the model's weights were trained with privately is in the copy's ledger. Weights and statistics that were learned in other ways
    are not: train privately on other records than those that they were learned from.

    >>> backbone = keras.applications.MobileNetV2(include_top=False, pooling="avg")
    >>> model = keras.Sequential([tfdp.models.without_batch_norm(backbone, by="frozen"), keras.layers.Dense(10)])
    """
    if by not in _REPLACEMENTS:
        raise ValueError(f'by={by!r} is not known: write by="group" or by="frozen".')
    if not is_graph(model):
        raise TypeError(
            f"The layers of the model {model.name!r} can't be replaced from outside: what {type(model).__name__} does is written in its "
            "own call. Make a functional model of it: inputs = keras.Input(shape), then "
            "without_batch_norm(keras.Model(inputs, model(inputs))). Or write keras.layers.GroupNormalization in that class."
        )
    if not model.built:
        raise ValueError(
            f"The model {model.name!r} has no weights yet: call model.build(input_shape), or the model on a batch, before "
            "without_batch_norm."
        )
    copying = _Copying(_REPLACEMENTS[by])
    copy = copying(model)
    if not copy.built:  # a Sequential without an Input
        copy.build(model.get_build_config()["input_shape"])
    copying.copy_states()
    inherit(copy.variables, model.variables)
    return copy


class _Copying:
    """Makes the copy of each layer, once: a layer that is used several times stays one layer."""

    def __init__(self, replacement: Callable[[BatchNormalization], keras.Layer]):
        self._replacement = replacement
        self._copies: dict[int, tuple[keras.Layer, keras.Layer]] = {}

    def __call__(self, layer: keras.Layer) -> keras.Layer:
        if id(layer) not in self._copies:
            self._copies[id(layer)] = layer, self._copied(layer)
        return self._copies[id(layer)][1]

    def _copied(self, layer: keras.Layer) -> keras.Layer:
        if mixes_by_norm(layer):
            return self._replacement(layer)
        if is_graph(layer):
            how = {} if isinstance(layer, keras.Sequential) else {"call_function": _call}
            with instance_attribute(layer, "compiled", False):
                return keras.models.clone_model(layer, clone_function=self, **how)
        if (
            not isinstance(layer, keras.Layer) or not layer.variables
        ):  # an operation; or a layer with no more than a vocabulary
            return layer
        parts = parts_to_replace(layer)
        copy = _as_configured(layer)
        return ReplacedInside(copy, [self(part) for part in parts], name=layer.name) if parts else copy

    def copy_states(self) -> None:
        """Weights, and what is trainable: a model's layers after the model."""
        copied = [pair for pair in self._copies.values() if pair[0] is not pair[1]]
        for layer, copy in reversed(copied):
            for old, new in _side_by_side(layer, copy):
                new.trainable = old.trainable
                if isinstance(new, keras.layers.GroupNormalization) and mixes_by_norm(old):
                    for weight, kept in ((new.gamma, old.gamma), (new.beta, old.beta)):
                        if weight is not None:
                            weight.assign(kept)
                else:
                    own = {}
                    old.save_own_variables(own)
                    new.load_own_variables(own)


def _as_configured(layer: keras.Layer) -> keras.Layer:
    own = {
        getattr(one, "__name__", type(one).__name__): one if inspect.isfunction(one) else type(one)
        for one in vars(layer).values()
    }
    try:
        with keras.saving.custom_object_scope(own):  # initializers and the like that nobody registered
            return type(layer).from_config(layer.get_config())
    except Exception as error:
        raise TypeError(
            f"The layer {layer.name!r} can't be copied, because {type(layer).__name__} can't be made of its config: let its __init__ take "
            "**kwargs and hand them to super().__init__(**kwargs), and its get_config return all other arguments."
        ) from error


def _call(layer: keras.Layer, *args: Any, **kwargs: Any) -> Any:
    """As the copied layer was called; group normalization knows of no mask."""
    if isinstance(layer, keras.layers.GroupNormalization):
        kwargs.pop("mask", None)
    return layer(*args, **kwargs)


def _side_by_side(layer: keras.Layer, copy: keras.Layer) -> Iterator[tuple[keras.Layer, keras.Layer]]:
    """A layer and its copy, and the layers inside them; those of a model were copied by themselves."""
    if isinstance(copy, ReplacedInside) and not isinstance(layer, ReplacedInside):
        copy = copy.layer
    yield layer, copy
    if not is_graph(layer) and not mixes_by_norm(layer):
        for old, new in zip(layer._layers, copy._layers, strict=True):
            yield from _side_by_side(old, new)


def _by_group(norm: BatchNormalization) -> keras.layers.GroupNormalization:
    rank, channels = norm.input_spec.ndim, next(iter(norm.input_spec.axes.values()))
    most = MOST_GROUPS if rank > 2 else 1
    groups = max(g for g in range(1, most + 1) if channels % g == 0 and (g == 1 or channels // g >= LEAST_CHANNELS))
    settings = ("name", "dtype", "epsilon", "center", "scale", *_OF_WEIGHTS)
    config = {name: value for name, value in norm.get_config().items() if name in settings}
    last = norm.axis in (-1, rank - 1)
    return keras.layers.GroupNormalization.from_config(
        {**config, "groups": groups, "axis": -1 if last else norm.axis % rank}
    )


_OF_WEIGHTS = [
    f"{weight}_{what}" for weight in ("beta", "gamma") for what in ("initializer", "regularizer", "constraint")
]


def _by_frozen(norm: BatchNormalization) -> FrozenBatchNormalization:
    return FrozenBatchNormalization.from_config({**norm.get_config(), "synchronized": False})


_REPLACEMENTS: dict[str, Callable[[BatchNormalization], keras.Layer]] = {"group": _by_group, "frozen": _by_frozen}
