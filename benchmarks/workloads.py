"""The workloads: a network, its lot size, and made-up records of the right shape. Nothing here is downloaded.

`get("cnn@256")` is the two-convolution network at lots of 256. Its `records(rows)` are the same in every process and
every library; its `model()` is a plain Keras model without an optimizer; the loss of all of them is softmax cross
entropy of logits, averaged over the lot (`loss()`). Keras is imported by `model()` and `loss()` only, so that the peers'
environments, which have none, read the same records.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Records = tuple[Any, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Workload:
    """One network at one lot size.

    Attributes:
        kind: the network's short name.
        lot: the number of examples in a lot; expected, where lots are Poisson samples.
        steps: steps of a timed epoch of `fit`, enough for some tenths of a second at least.
        weights: the number of trainable weights of the Keras model. A peer's network must have as many.
        features: draws the features of so many records.
        classes: labels are uniform among so many.
        build: the network; called by `model()`.
    """

    kind: str
    lot: int
    steps: int
    weights: int
    features: Callable[[np.random.Generator, int], Any]
    classes: int
    build: Callable[[], Any]

    @property
    def name(self) -> str:
        return f"{self.kind}@{self.lot}"

    def records(self, rows: int, seed: int = 0) -> Records:
        """Features and labels of so many made-up records. Fewer records are the first of more."""
        features = self.features(np.random.default_rng(seed), rows)
        return features, np.random.default_rng(seed + 1).integers(0, self.classes, rows, dtype=np.int32)

    def model(self) -> Any:
        """A new Keras model, not compiled, the same initial weights each time."""
        import keras

        keras.utils.set_random_seed(0)
        return self.build()

    def loss(self) -> Any:
        import keras

        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def mlp() -> Workload:
    """Adult: 123 features, most of them 0 or 1."""

    def features(generator, rows):
        return (generator.random((rows, 123), dtype=np.float32) < 0.11).astype(np.float32)

    return Workload("mlp", 256, 320, 2_018, features, 2, lambda: _bu_2019().adult_mlp())


def cnn() -> Workload:
    return Workload("cnn", 256, 32, 26_010, _images(28, 28, 1), 10, lambda: _bu_2019().mnist_cnn())


def lenet() -> Workload:
    return Workload("lenet", 256, 32, 61_706, _images(28, 28, 1), 10, lambda: _xiang_2021().lenet5())


def resnet18() -> Workload:
    return Workload("resnet18", 64, 2, 11_173_962, _images(32, 32, 3), 10, lambda: _xiang_2021().resnet18())


def text() -> Workload:
    return Workload("text", 512, 32, 160_306, _texts(256), 2, lambda: _bu_2019().imdb_text())


def transformer() -> Workload:
    return Workload("transformer", 64, 8, 748_290, _texts(128), 2, lambda: _networks().transformer())


def lstm() -> Workload:
    return Workload("lstm", 128, 16, 344_962, _texts(64), 2, lambda: _networks().lstm())


def ncf() -> Workload:
    """MovieLens 1M: pairs of a user and a movie."""

    def features(generator, rows):
        pairs = generator.integers(0, (6040, 3706), (rows, 2), dtype=np.int32)
        return {"user": pairs[:, 0].copy(), "movie": pairs[:, 1].copy()}

    return Workload("ncf", 512, 160, 146_320, features, 5, lambda: _bu_2019().movielens_ncf())


def keras_text() -> Workload:
    return Workload("keras_text", 64, 16, 173_918, _texts(80, 5000), 2, lambda: _keras_io().text_classifier())


def vit() -> Workload:
    return Workload("vit", 64, 4, 186_410, _images(32, 32, 3), 10, lambda: _keras_io().vision_transformer())


def convnet() -> Workload:
    return Workload("convnet", 64, 16, 34_826, _images(28, 28, 1), 10, lambda: _keras_io().mnist_convnet())


def _images(height: int, width: int, channels: int) -> Callable:
    return lambda generator, rows: generator.random((rows, height, width, channels), dtype=np.float32)


def _texts(length: int, words: int = 10_000) -> Callable:
    """Words as often as in a text, by Zipf's law: the logarithm of a word's rank is uniform."""
    return lambda generator, rows: (words ** generator.random((rows, length))).astype(np.int32)


def _bu_2019() -> Any:
    from models import bu_2019

    return bu_2019


def _xiang_2021() -> Any:
    from models import xiang_2021

    return xiang_2021


def _keras_io() -> Any:
    from benchmarks import keras_io

    return keras_io


def _networks() -> Any:
    from benchmarks import networks

    return networks


WITH_PEERS = (mlp(), cnn(), lenet(), resnet18(), text(), transformer(), lstm(), ncf())
OF_KERAS_IO = (keras_text(), vit(), convnet())
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in (*WITH_PEERS, *OF_KERAS_IO)}


def get(name: str) -> Workload:
    """The workload of this name; `kind` alone will do, and `kind@n` is the same network at another lot size."""
    kind, _, lot = name.partition("@")
    for workload in WORKLOADS.values():
        if workload.kind == kind:
            return dataclasses.replace(workload, lot=int(lot or workload.lot))
    raise ValueError(f"There is no workload {name!r}; there are {', '.join(WORKLOADS)}.")
