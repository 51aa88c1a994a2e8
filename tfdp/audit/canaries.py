"""Canaries: records that are put into training, or left out, by the flip of a coin, to be found again in what it releases."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from tfdp.accounting import checks
from tfdp.audit.losses import check_one_loss

_LARGE = 1e6  # of a gradient canary's gradient: longer than any clip in use


@dataclasses.dataclass(frozen=True)
class Planted:
    """A training set whose last records are the canaries.

    Attributes:
        model: what is trained on it.
        x, y: real records first.
        weights: of all records, in the structure of y, when all canaries are in. A canary is left out by taking its weights away.
        count: how many canaries there are.
        codes: where the canaries have weights of the model to themselves, the layers that hold these.
        directions: where they share them, each canary's direction, a row of norm 1 for each.
    """

    model: keras.Model
    x: Any
    y: Any
    weights: Any
    count: int
    codes: tuple[keras.layers.Layer, ...] = ()
    directions: np.ndarray | None = None


class Canaries:
    """What all kinds of canaries share: how many there are, and that they are planted among arrays."""

    def __init__(self, count: int):
        self.count = checks.count("count", count, "write how many canaries to plant, such as 1000", at_least=1)

    def planted(self, model: keras.Model, x: np.ndarray, y: np.ndarray, random: np.random.Generator) -> Planted:
        raise NotImplementedError

    def _appended(self, model, x, y, canaries_x, canaries_y) -> Planted:
        check_one_loss(model, "Auditing with canaries among the records")
        x = np.concatenate([x, canaries_x.astype(x.dtype)])
        y = np.concatenate([y, canaries_y.astype(y.dtype)])
        return Planted(model, x, y, np.ones(len(x), np.float32), self.count)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.count})"


class MislabelledCanaries(Canaries):
    """Real records, drawn from the training set, each with a wrong label drawn from the others.

    They take the places of the records that they are made of: the size of the training set stays as it is. Labels are whole
    numbers, ``[n]`` or ``[n, 1]``, or one-hot rows.
    """

    def planted(self, model, x, y, random):
        if self.count > len(x):
            raise ValueError(f"{self!r}: there are {len(x)} records only to be mislabelled.")
        classes = _classes(y)
        chosen = np.zeros(len(x), bool)
        chosen[random.permutation(len(x))[: self.count]] = True
        labels = y[chosen].argmax(1) if _is_one_hot(y) else np.searchsorted(classes, y[chosen])
        wrong = (labels + random.integers(1, len(classes), labels.shape)) % len(classes)
        wrong = np.eye(len(classes))[wrong] if _is_one_hot(y) else classes[wrong]
        return self._appended(model, x[~chosen], y[~chosen], x[chosen], wrong)


class RandomCanaries(Canaries):
    """New records: each feature uniform between its smallest and its largest value, labels drawn from those that there are."""

    def planted(self, model, x, y, random):
        low, high = x.min(0), x.max(0)
        shape = (self.count, *x.shape[1:])
        if np.issubdtype(x.dtype, np.integer):
            drawn = random.integers(low, high, shape, dtype=x.dtype, endpoint=True)
        else:
            drawn = low + (high - low) * random.random(shape)
        return self._appended(model, x, y, drawn, y[random.integers(0, len(y), self.count)])


class GradientCanaries(Canaries):
    """Records with a gradient in weights of their own alone: Dirac canaries, the strongest there are.

    The model gets a weight more for each canary (with ``layers``, one in each of so many layers), and a second output through
    which they alone are reached: of a canary's record the loss is that output, with a slope far beyond any clip, of a real
    record it is the model's own. What is audited is the private step as it is (sampling, clip, sum, noise, composition), over the
    model's own weights and those of the canaries jointly. Whether the gradients of the model's *own* layers are bounded well,
    these canaries can't say.

    Args:
        count: how many.
        layers: a clip of each layer by itself, without a joint bound, shows in canaries of several layers only.
    """

    def __init__(self, count: int, layers: int = 1):
        super().__init__(count)
        self.layers = checks.count("layers", layers, "write in how many layers a canary has a weight", at_least=1)

    def planted(self, model, x, y, random):
        check_one_loss(model, f"Auditing with {type(self).__name__}")
        codes, inputs, directions = self._own_weights(random)
        size, count = len(x), self.count
        real = np.concatenate([np.ones(size, np.float32), np.zeros(count, np.float32)])
        return Planted(
            WithGradientCanaries(model, codes),
            {
                "record": np.concatenate([x, np.repeat(x[:1], count, 0)]),
                "canary": np.concatenate([np.zeros((size, *inputs.shape[1:]), inputs.dtype), inputs]),
            },
            {
                "prediction": np.concatenate([y, np.repeat(y[:1], count, 0)]),
                "canary": np.zeros((size + count, 1), np.float32),
            },
            {"prediction": real, "canary": 1 - real},
            count,
            codes,
            directions,
        )

    def _own_weights(self, random) -> tuple[tuple[keras.layers.Layer, ...], np.ndarray, np.ndarray | None]:
        """Layers with one output, each canary's input to all of them, and its direction."""
        numbers = range(self.layers)
        codes = [keras.layers.Embedding(self.count, 1, "zeros", name=f"canaries_{number}") for number in numbers]
        return tuple(codes), np.arange(self.count, dtype=np.int32), None

    def __repr__(self) -> str:
        layers = f", layers={self.layers}" if self.layers > 1 else ""
        return f"{type(self).__name__}({self.count}{layers})"


class SpreadCanaries(GradientCanaries):
    """Records with a gradient in a random direction of many weights, which the canaries share: Gaussian rows.

    For mechanisms that bound coordinates too: an encoded gradient that lies in one weight alone is cut to the largest number of a
    codeword, a tenth of the clip or less, while this one has a codeword's shape. Directions are nearly orthogonal; other canaries
    are a little noise, so ``weights`` should be several times ``count``.
    """

    def __init__(self, count: int, weights: int = 4096):
        super().__init__(count)
        self.weights = checks.count("weights", weights, "write how many weights the canaries share", at_least=1)

    def _own_weights(self, random):
        rows = random.standard_normal((self.count, self.weights)).astype(np.float32)
        code = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="canaries")
        return (code,), rows, rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.count}, weights={self.weights})"


class WithGradientCanaries(keras.Model):
    """A compiled model and canaries' weights beside its own, compiled in the same way."""

    def __init__(self, model: keras.Model, codes: tuple[keras.layers.Layer, ...]):
        super().__init__()
        self.inner = model
        self.codes = list(codes)
        optimizer = model.optimizer
        self.compile(
            optimizer=type(optimizer).from_config(optimizer.get_config()),
            loss={"prediction": model.loss, "canary": _outwards},
            run_eagerly=model.run_eagerly,
            jit_compile=model.jit_compile,
        )

    def call(self, inputs, training=False):
        return {
            "prediction": self.inner(inputs["record"], training=training),
            "canary": _LARGE * sum(code(inputs["canary"]) for code in self.codes),
        }


def _outwards(y_true, y_pred):
    """Has the slope -1: a canary that is in makes its weights grow."""
    return -keras.ops.mean(y_pred, axis=-1)


def _is_one_hot(y: np.ndarray) -> bool:
    return y.ndim == 2 and y.shape[1] > 1 and bool(np.all((y == 0) | (y == 1)) and np.all(y.sum(1) == 1))


def _classes(y: np.ndarray) -> np.ndarray:
    whole = (y.ndim == 1 or y.shape[1:] == (1,)) and np.issubdtype(y.dtype, np.number) and np.all(y == np.round(y))
    classes = np.arange(y.shape[1]) if _is_one_hot(y) else np.unique(y) if whole else np.zeros(0)
    if len(classes) < 2:
        raise ValueError(
            f"MislabelledCanaries need labels of at least two classes, as whole numbers or one-hot rows, not y of shape {y.shape} "
            f"and type {y.dtype}. RandomCanaries and GradientCanaries take any y."
        )
    return classes
