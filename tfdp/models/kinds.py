"""Which layers are batch norms, and which are models whose layers can be seen."""

import keras
from keras.src.models.functional import Functional

BatchNormalization, Sequential = keras.layers.BatchNormalization, keras.Sequential


def mixes_by_norm(layer: keras.Layer) -> bool:
    """Whether the layer runs Keras's own batch normalization."""
    return isinstance(layer, BatchNormalization) and type(layer).call is BatchNormalization.call


def is_graph(layer: keras.Layer) -> bool:
    """Whether the layer is a model that is nothing but its layers and how they follow one another."""
    return isinstance(layer, Functional | Sequential) and type(layer).call in (Functional.call, Sequential.call)
