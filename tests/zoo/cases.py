"""What a case of the zoo is, how it is registered, and the random data the cases are made of.

A case is written as a function of `draw`, the source of its data:

    @case
    def dense_on_vectors(draw):
        return Case(model=lambda: ..., x=draw.reals(6, 4), y=draw.reals(6, 3), compile={"loss": "mse"})
"""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np

WEIGHT_SHAKE = 0.2


@dataclass(frozen=True)
class Case:
    """A model, its data and the arguments of `compile` and `fit`.

    `differs_from_keras` says why the mean of the per-example gradients is not Keras's own batch gradient,
    where that is so by definition of the loss. Empty: the two agree.
    """

    model: Callable[[], keras.Model]
    x: Any
    y: Any = None
    sample_weight: Any = None
    compile: dict = field(default_factory=dict)
    fit: dict = field(default_factory=dict)
    differs_from_keras: str = ""
    name: str = ""
    family: str = ""

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(keras.tree.flatten(self.x)[0])

    def build(self) -> keras.Model:
        """The model with its weights, the same ones at each call; not compiled.

        Every trainable weight is moved off its initial value: a bias of 0 or a scale of 1 hides mistakes.
        """
        seed = zlib.crc32(self.name.encode()) % 2**31
        keras.utils.set_random_seed(seed)
        model = self.model()
        model(keras.tree.map_structure(lambda array: array[:2], self.x))
        shake = np.random.default_rng(seed)
        for weight in model.trainable_weights:
            weight.assign_add(WEIGHT_SHAKE * shake.standard_normal(weight.shape).astype("float32"))
        return model


class Draws:
    """Random data of one case; the same at each run."""

    def __init__(self, name: str):
        self._random = np.random.default_rng(zlib.crc32(name.encode()))

    def reals(self, *shape: int) -> np.ndarray:
        return self._random.standard_normal(shape).astype("float32")

    def weights(self, *shape: int) -> np.ndarray:
        """Positive numbers, for sample weights."""
        return self._random.uniform(0.25, 2.0, shape).astype("float32")

    def labels(self, *shape: int, classes: int) -> np.ndarray:
        return self._random.integers(0, classes, shape).astype("int32")

    def one_hot(self, *shape: int, classes: int) -> np.ndarray:
        return np.eye(classes, dtype="float32")[self.labels(*shape, classes=classes)]

    def padded_ids(self, lengths: Iterable[int], vocabulary: int) -> np.ndarray:
        """One row of token ids an example: `length` ids of 1 or more, then zeros."""
        lengths = list(lengths)
        ids = self._random.integers(1, vocabulary, (len(lengths), max(lengths))).astype("int32")
        return np.where(np.arange(max(lengths)) < np.array(lengths)[:, None], ids, 0).astype("int32")


REGISTRY: dict[str, Callable[[], Case]] = {}


def case(function: Callable[[Draws], Case]) -> Callable[[Draws], Case]:
    """Registers a case under the name of its function."""
    name = function.__name__
    if name in REGISTRY:
        raise ValueError(f"two cases are called {name!r}")
    family = function.__module__.rsplit(".", 1)[-1]
    REGISTRY[name] = lambda: replace(function(Draws(name)), name=name, family=family)
    return function


REPRESENTATIVES: set[str] = set()


def representative(function: Callable[[Draws], Case]) -> Callable[[Draws], Case]:
    """Marks a case to be run in every regime of clipping, for its whole family."""
    REPRESENTATIVES.add(function.__name__)
    return function
