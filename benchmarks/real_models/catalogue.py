"""What a model of the suite is, and the list of all."""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

KINDS = {
    "vision": "Vision",
    "segmentation": "Vision: images to images",
    "transformers": "Vision: attention",
    "video": "Video, volumes, points",
    "text": "Text",
    "tabular": "Tables and recommendations",
    "series": "Time series and audio",
    "kerashub": "KerasHub, small configurations",
    "applications": "keras.applications and KerasHub's convolutional backbones, without batch norm",
}
Draw = Callable[[np.random.Generator, int], Any]


@dataclasses.dataclass(frozen=True)
class RealModel:
    """One model with its records, at one lot size.

    Attributes:
        name: of the function that builds it.
        kind: a key of KINDS: the module that holds it.
        example: what it was rebuilt after.
        features, targets: draw those of so many made-up records.
        build: the model, not compiled.
        make_loss: what `compile` is given as loss; None for a model with a loss of its own.
        lot: the number of examples in a lot.
        note: why not all of its weights are on rules of their own, why it is refused, or why it is not exact; None for the rest.
    """

    name: str
    kind: str
    example: str
    features: Draw
    targets: Draw
    build: Callable[[], keras.Model]
    make_loss: Callable[[], Any]
    lot: int
    note: str | None

    def records(self, rows: int, seed: int = 0) -> tuple[Any, Any]:
        return self.features(np.random.default_rng(seed), rows), self.targets(np.random.default_rng(seed + 1), rows)

    def model(self) -> keras.Model:
        """A new one with the same initial weights each time."""
        keras.utils.set_random_seed(0)
        return self.build()

    def loss(self) -> Any:
        return self.make_loss()


_MODELS: dict[str, RealModel] = {}


def of_logits() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def real_model(
    example: str,
    features: Draw,
    targets: Draw,
    loss: Callable[[], Any] | str = of_logits,
    lot: int = 16,
    note: str | None = None,
):
    """Puts the function that builds the model on the list."""

    def listed(build: Callable[[], keras.Model]):
        name, kind = build.__name__, build.__module__.rpartition(".")[2]
        if name in _MODELS:
            raise ValueError(f"There are two models {name!r}.")
        make_loss = loss if callable(loss) else lambda: loss
        _MODELS[name] = RealModel(name, kind, example, features, targets, build, make_loss, lot, note)
        return build

    return listed


def models_of(kind: str) -> dict[str, RealModel]:
    """By name. The other kinds' modules are not imported."""
    importlib.import_module(f"benchmarks.real_models.{kind}")
    return {name: model for name, model in _MODELS.items() if model.kind == kind}


def all_models() -> dict[str, RealModel]:
    """By name, kind after kind."""
    return {name: model for kind in KINDS for name, model in models_of(kind).items()}
