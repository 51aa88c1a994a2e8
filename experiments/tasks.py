"""Data sets as tasks: which networks take them, how they are scored, and settings that are a good start."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import keras

    from tfdp.data.datasets import TrainAndTest


@dataclasses.dataclass(frozen=True)
class Network:
    """A builder of `models/`, and which kinds of records it takes.

    Attributes:
        builder: module and function.
        kinds: of records, as tasks name them.
        flat: whether it takes its number of features; records of other shapes are flattened before it.
        features: module and function of the fixed layers that make of a record what the network takes; it takes their shape.
    """

    builder: str
    kinds: tuple[str, ...]
    flat: bool = False
    features: str | None = None

    def build(self, shape: tuple[int, ...], classes: int) -> keras.Model:
        import keras

        function = _function(self.builder)
        if self.features:
            return function(shape, classes=classes)
        if not self.flat:
            return function(ratings=classes) if PAIRS in self.kinds else function(classes=classes)
        model = function(features=int(np.prod(shape)), classes=classes)
        return model if len(shape) == 1 else keras.Sequential([keras.Input(shape), keras.layers.Flatten(), model])

    def saved(self, file: Path) -> keras.Model:
        """A model of this network that was saved: Keras has to know the network's own layers before."""
        import keras

        _function(self.builder)
        return keras.models.load_model(file)

    def features_of(self, records: np.ndarray) -> np.ndarray:
        """What the network takes of these records."""
        if self.features is None:
            return records
        return _function(self.features)(records.shape[1:]).predict(records, batch_size=256)


def _function(name: str) -> Callable[..., keras.Model]:
    module, _, name = name.rpartition(".")
    return getattr(importlib.import_module(f"models.{module}"), name)


TABLE, TEXT, PAIRS = "table", "text of 256 words", "pair of user and movie"
SMALL, GREY, COLOUR = "8 x 8 image", "28 x 28 image", "32 x 32 colour image"
NETWORKS = {
    "digits_cnn": Network("digits.digits_cnn", (SMALL,)),
    "mnist_cnn": Network("bu_2019.mnist_cnn", (GREY,)),
    "mnist_tanh_cnn": Network("papernot_2021.mnist_tanh_cnn", (GREY,)),
    "lenet5": Network("xiang_2021.lenet5", (GREY,)),
    "alexnet": Network("xiang_2021.alexnet", (COLOUR,)),
    "resnet18": Network("xiang_2021.resnet18", (COLOUR,)),
    "cifar_tanh_cnn": Network("papernot_2021.cifar_tanh_cnn", (COLOUR,)),
    "wavelet_cnn": Network("wavelet_cnn.wavelet_cnn", (GREY,)),
    "colour_wavelet_cnn": Network("wavelet_cnn.colour_wavelet_cnn", (COLOUR,)),
    "scattering_cnn": Network("scattering.scattering_cnn", (GREY, COLOUR), features="scattering.scattering"),
    "scattering_linear": Network("scattering.scattering_linear", (GREY, COLOUR), features="scattering.scattering"),
    "adult_attributes": Network("adult_attributes.adult_attributes", (TABLE,), flat=True),
    "adult_mlp": Network("bu_2019.adult_mlp", (TABLE,), flat=True),
    "logistic_regression": Network("kang_2020.logistic_regression", (TABLE, SMALL, GREY, COLOUR), flat=True),
    "one_hidden_layer": Network("kang_2020.one_hidden_layer", (TABLE, SMALL, GREY, COLOUR), flat=True),
    "imdb_text": Network("bu_2019.imdb_text", (TEXT,)),
    "bag_of_words": Network("bag_of_words.bag_of_words", (TEXT,)),
    "movielens_ncf": Network("bu_2019.movielens_ncf", (PAIRS,)),
    "rating_biases": Network("rating_biases.rating_biases", (PAIRS,)),
}


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set of `tfdp.data.load` with what is usual for it.

    Attributes:
        kind: of its records.
        model: the network that is taken if none is named.
        batch_size, epochs, clip, delta, epsilon: a good start.
        learning_rates: the same, by the inner optimizer.
        feature_norm: an l2 norm that few records' features exceed, by what is publicly known: the clip of noise on records.
    """

    kind: str
    model: str
    batch_size: int
    epochs: int
    learning_rates: dict[str, float]
    clip: float
    delta: float = 1e-5
    epsilon: float = 3.0
    feature_norm: float = 5.0
    score: str = "accuracy"
    classes: int = 2

    @property
    def networks(self) -> tuple[str, ...]:
        return tuple(name for name, network in NETWORKS.items() if self.kind in network.kinds)


def _rates(sgd: float, adam: float) -> dict[str, float]:
    return {"sgd": sgd, "adam": adam, "adagrad": adam}


TASKS = {
    "digits": Task(SMALL, "digits_cnn", 512, 30, _rates(1.0, 0.02), 0.5, feature_norm=4.0, classes=10),
    "mnist": Task(GREY, "mnist_tanh_cnn", 1024, 20, _rates(4.0, 0.005), 0.1, feature_norm=9.0, classes=10),
    "fashion_mnist": Task(GREY, "mnist_tanh_cnn", 1024, 20, _rates(4.0, 0.005), 0.1, feature_norm=10.0, classes=10),
    "svhn": Task(COLOUR, "cifar_tanh_cnn", 1024, 20, _rates(1.0, 0.002), 0.1, feature_norm=25.0, classes=10),
    "cifar10": Task(COLOUR, "cifar_tanh_cnn", 1024, 20, _rates(1.0, 0.002), 0.1, feature_norm=28.0, classes=10),
    "adult": Task(TABLE, "adult_mlp", 256, 6, _rates(0.5, 0.003), 1.0, feature_norm=4.0),
    "bank": Task(TABLE, "logistic_regression", 256, 6, _rates(0.5, 0.003), 1.0),
    "kddcup99": Task(TABLE, "logistic_regression", 256, 6, _rates(0.5, 0.003), 1.0),
    "breast_cancer": Task(TABLE, "logistic_regression", 128, 20, _rates(0.5, 0.03), 1.0, delta=1e-4, feature_norm=3.0),
    "creditcard": Task(TABLE, "logistic_regression", 128, 20, _rates(0.5, 0.03), 1.0, delta=1e-4),
    "iris": Task(TABLE, "logistic_regression", 30, 20, _rates(0.5, 0.03), 1.0, 1e-3, feature_norm=2.0, classes=3),
    "imdb": Task(TEXT, "imdb_text", 512, 3, _rates(5.0, 0.1), 0.1),
    "movielens1m": Task(PAIRS, "movielens_ncf", 10_000, 20, _rates(5.0, 0.03), 1.0, 1e-6, score="rmse", classes=5),
}


def build(dataset: str, network: str, data: TrainAndTest) -> keras.Model:
    """The network for the records of a data set."""
    x = data.train[0]
    shape = () if isinstance(x, dict) else x.shape[1:]
    return NETWORKS[network].build(shape, TASKS[dataset].classes)
