"""What a case is, how it is registered, and the small models and data that cases share.

A case is a function that trains something with one feature of Keras. It says nothing about the outcome: ``outcome`` does, from
what happens. Several features that belong together share one model and one row.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers

import tfdp

TRAINED, REFUSED = "trained", "refused"
SIZE = 16
_RANDOM = np.random.default_rng(0)
X = _RANDOM.normal(size=(SIZE, 4)).astype("float32")
Y = _RANDOM.normal(size=(SIZE, 1)).astype("float32")
LABELS = _RANDOM.integers(0, 3, SIZE)
TOKENS = _RANDOM.integers(1, 7, (SIZE, 6))
IMAGES = _RANDOM.random((SIZE, 8, 8, 3)).astype("float32")
SERIES = _RANDOM.normal(size=(SIZE, 6, 4)).astype("float32")


@dataclass(frozen=True)
class Case:
    """A row of the page; a ``slow`` one takes over five seconds."""

    section: str
    feature: str
    run: Callable[[], None]
    slow: bool = False


CASES: dict[str, Case] = {}


def case(section: str, feature: str, slow: bool = False) -> Callable:
    """Registers a function as what tries this feature."""

    def register(run: Callable[[], None]) -> Callable[[], None]:
        if feature in CASES:
            raise ValueError(f"two cases are about {feature!r}")
        CASES[feature] = Case(section, feature, run, slow)
        return run

    return register


def outcome(case: Case) -> tuple[str, str]:
    """Trained or refused, and why: the error's own words."""
    keras.utils.set_random_seed(1)
    try:
        case.run()
    except AssertionError:
        raise
    except Exception as error:
        return REFUSED, _plain(str(error))
    return TRAINED, ""


def _plain(message: str) -> str:
    """Without Keras's words around an error of a layer, and the numbers that it gives to names."""
    message = re.sub(r"\x1b\[\d+m", "", message)
    wrapped = re.fullmatch(
        r"Exception encountered when calling .*?\n\n(.*?)\n\nArguments received by .*", message, re.DOTALL
    )
    message = wrapped.group(1) if wrapped else message
    message = re.sub(r"(_[0-9]+)+(?=['/:])", "", message)
    return re.sub(r"\s+", " ", message).replace("|", "\\|").strip()


# What cases are made of.


def noisy(**arguments: Any) -> tfdp.NoisySGD:
    return tfdp.NoisySGD(**{"learning_rate": 0.1, "l2_norm_clip": 1.0, "noise_multiplier": 1.0} | arguments)


def linear(*more: layers.Layer) -> keras.Model:
    return keras.Sequential([layers.Input((4,)), *more, layers.Dense(1)])


def chain(*parts: layers.Layer, shape: tuple, dtype: str = "float32") -> keras.Model:
    """The layers one after the other, and a head of one number."""
    inputs = layers.Input(shape, dtype=dtype)
    x = inputs
    for part in parts:
        x = part(x)
    x = layers.Flatten()(x) if len(x.shape) > 2 else x
    return keras.Model(inputs, layers.Dense(1)(x))


def compiled(
    model: keras.Model | None = None, optimizer: Any = None, loss: Any = "mse", **arguments: Any
) -> keras.Model:
    model = linear() if model is None else model
    model.compile(optimizer=noisy() if optimizer is None else optimizer, loss=loss, **arguments)
    return model


def train(model: keras.Model, x: Any = X, y: Any = Y, **fit: Any) -> keras.callbacks.History:
    """A fit that must have moved weights, and have said so in the ledger."""
    model = model if getattr(model, "optimizer", None) is not None else compiled(model)
    steps = model.optimizer.ledger.steps
    history = model.fit(x, y, **{"batch_size": 8, "verbose": 0} | fit)
    assert model.optimizer.ledger.steps > steps
    return history


@functools.cache
def shared() -> keras.Model:
    """Compiled once, for features that are arguments of fit: later fits need no new proof."""
    return compiled(metrics=["mae"])
