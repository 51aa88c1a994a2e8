"""Layers of any class with other layers in place of the batch norms that they make."""

from typing import Any

import keras

from tfdp.models.kinds import is_graph, mixes_by_norm


@keras.saving.register_keras_serializable("tfdp")
class ReplacedInside(keras.layers.Wrapper):
    """A layer with other layers in place of some that it made in ``__init__``. Made by ``without_batch_norm``.

    Args:
        layer: the layer, not built.
        replacements: what stands in place of its ``parts_to_replace``, in their order.
    """

    def __init__(self, layer: keras.Layer, replacements: list[keras.Layer], **kwargs):
        super().__init__(layer, **kwargs)
        self._config = {  # before the parts are replaced: of them the layer's own config knows nothing
            "layer": keras.saving.serialize_keras_object(layer),
            "replacements": [keras.saving.serialize_keras_object(one) for one in replacements],
        }
        parts = parts_to_replace(layer)
        if len(parts) != len(replacements):
            raise TypeError(
                f"The layer {layer.name!r} ({type(layer).__name__}) makes {len(parts)} of its {len(replacements)} batch normalizations in "
                "__init__: the others can't be replaced from outside. Make all of them there, or write another normalization in that class."
            )
        _replace(layer, {id(part): (part, new) for part, new in zip(parts, replacements, strict=True)})

    def call(self, inputs, *args, **kwargs):
        return self.layer(inputs, *args, **kwargs)

    def get_config(self):
        return {**super().get_config(), **self._config}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        replacements = [keras.saving.deserialize_keras_object(one, custom_objects) for one in config["replacements"]]
        return super().from_config({**config, "replacements": replacements}, custom_objects)


def parts_to_replace(layer: keras.Layer) -> list[keras.Layer]:
    """Batch norms inside a layer, and models that have some, in order, each once."""
    found = {}
    for part in layer._layers:
        if mixes_by_norm(part) or (is_graph(part) and any(map(mixes_by_norm, part._flatten_layers()))):
            found[id(part)] = part
        else:
            found |= {id(inner): inner for inner in parts_to_replace(part)}
    return list(found.values())


def _replace(layer: keras.Layer, replacements: dict[int, tuple[keras.Layer, keras.Layer]]) -> None:
    """Wherever a layer, or one inside it, holds a part: as an attribute, or in a list or dict."""
    for part, new in replacements.values():
        if any(inner is part for inner in layer._layers):
            layer._tracker.replace_tracked_value("layers", part, new)
    for name, value in list(vars(layer).items()):
        if name not in ("_layers", "_tracker"):
            swapped = _swapped(value, replacements)
            if swapped is not value:
                setattr(layer, name, swapped)
    for inner in layer._layers:
        if not any(inner is new for _, new in replacements.values()):
            _replace(inner, replacements)


def _swapped(value: Any, replacements: dict[int, tuple[keras.Layer, keras.Layer]]) -> Any:
    """The same object where nothing in it is replaced."""
    if isinstance(value, keras.Layer):
        return replacements[id(value)][1] if id(value) in replacements else value
    if isinstance(value, dict):
        swapped = {key: _swapped(one, replacements) for key, one in value.items()}
        return swapped if any(swapped[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        swapped = [_swapped(one, replacements) for one in value]
        return type(value)(swapped) if any(a is not b for a, b in zip(swapped, value, strict=True)) else value
    return value
