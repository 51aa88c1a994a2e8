"""The papers' data sets by name, as the networks in `models/` take them: `tfdp.data.load("mnist", data_dir="data")`.

What is done to records is the same for everyone's: pixels are divided by 255, labels count from 0, MovieLens pairs become two
inputs. Nothing is fitted on the records. (Files may hold what was, such as standardised tables and words by rank: their
publisher's choice. What tensorflow-datasets gives is coded in `builders.py`, without a fit.)
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfdp.accounting import checks
from tfdp.data import builders

Features = np.ndarray | dict[str, np.ndarray]
Part = tuple[Features, np.ndarray]


class TrainAndTest(NamedTuple):
    """As Keras's own data sets: ``(x_train, y_train), (x_test, y_test) = load("mnist")``."""

    train: Part
    test: Part


@dataclasses.dataclass(frozen=True)
class Known:
    """What a name stands for.

    Attributes:
        x_shape: of one record, as it is stored. None: any number.
        classes: how many labels there are, from ``first_class`` on.
        prepare: from stored features to a network's.
        below: where features are numbers of words, users or movies: how many of them there are.
    """

    x_shape: tuple[int | None, ...]
    classes: int
    prepare: Callable[[np.ndarray], Features]
    first_class: int = 0
    below: tuple[int, ...] | None = None


def _pixels(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.float32) / np.float32(255)
    return x[..., None] if x.ndim == 3 else x


def _numbers(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float32)


def _words(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.int32)


def _pairs(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"user": np.asarray(x[:, 0], np.int32), "movie": np.asarray(x[:, 1], np.int32)}


def _sixteenths(x: np.ndarray) -> np.ndarray:
    return (np.asarray(x, np.float32) / np.float32(16))[..., None]


EMBEDDED = "digits"
KNOWN: dict[str, Known] = {
    EMBEDDED: Known((8, 8), 10, _sixteenths),
    "mnist": Known((28, 28), 10, _pixels),
    "fashion_mnist": Known((28, 28), 10, _pixels),
    "svhn": Known((32, 32, 3), 10, _pixels),
    "cifar10": Known((32, 32, 3), 10, _pixels),
    "adult": Known((None,), 2, _numbers),
    "bank": Known((None,), 2, _numbers),
    "kddcup99": Known((None,), 2, _numbers),
    "breast_cancer": Known((None,), 2, _numbers),
    "creditcard": Known((None,), 2, _numbers),
    "iris": Known((4,), 3, _numbers),
    "imdb": Known((builders.REVIEW_LENGTH,), 2, _words, below=(builders.WORD_NUMBERS,)),
    "movielens1m": Known((2,), 5, _pairs, first_class=1, below=(6040, builders.MOVIES)),
}
NAMES = tuple(KNOWN)
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def load(name: str, data_dir: str | os.PathLike | None = None) -> TrainAndTest:
    """Training and test records of a data set, ready for a network.

    | where it is looked for, in this order              |                                                                  |
    |----------------------------------------------------|------------------------------------------------------------------|
    | inside tfdp                                        | "digits": 1,797 handwritten digits of 8 x 8 pixels, for a start  |
    | `<data_dir>/<name>.npz`                            | arrays x_train, y_train, x_test, y_test                          |
    | tensorflow-datasets (`pip install tfdp[datasets]`) | prepared in `data_dir`, or downloaded: the sets below            |

    | of tensorflow-datasets                 | what differs from the usual coding                                         |
    |----------------------------------------|----------------------------------------------------------------------------|
    | mnist, fashion_mnist, svhn, cifar10    | nothing                                                                    |
    | iris                                   | centimetres, not standardised; cut 80:20                                   |
    | kddcup99                               | log10(1 + count) / 3, not standardised; the first 70,000 stored, cut 80:20 |
    | imdb                                   | words are numbered by a hash (CRC-32), not by how frequent they are        |
    | movielens1m                            | movies 3,707 to 3,952 share their numbers with movies 1 to 246; cut 80:20  |
    | adult, bank, breast_cancer, creditcard | it does not have them: they need a file                                    |

    Example:

    >>> (x_train, y_train), (x_test, y_test) = tfdp.data.load("digits")

    Args:
        name: one of `tfdp.data.NAMES`.
        data_dir: a folder with files of that kind, or with what tensorflow-datasets prepared.

    Raises:
        ValueError: there is no such name, or the file does not hold what the name stands for.
        FileNotFoundError: it is nowhere; with what to put where.
    """
    if not checks.is_one_of(name, KNOWN):
        raise ValueError(f"There is no data set of the name {name!r}. There are {', '.join(KNOWN)}.")
    known = KNOWN[name]
    if name == EMBEDDED:
        return _ready(name, known, _embedded())
    file = None if data_dir is None else Path(data_dir) / f"{name}.npz"
    if file is not None and file.is_file():
        return _ready(str(file), known, _read(file))
    if name not in builders.BUILDERS:
        raise FileNotFoundError(_nowhere(name, file))
    builder = builders.BUILDERS[name]
    return _ready(f"tensorflow-datasets' {builder.name}", known, builders.read(builder, data_dir, _nowhere(name, file)))


def _nowhere(name: str, file: Path | None) -> str:
    place = "Give data_dir=, a folder that holds" if file is None else "There must be"
    shape = ", ".join("n" if size is None else str(size) for size in KNOWN[name].x_shape)
    return (
        f"{name} is not here. {place} {file or f'{name}.npz'} with the arrays x_train [records, {shape}], y_train, x_test and y_test "
        f'(numpy.savez). "{EMBEDDED}" needs nothing.'
    )


def _embedded() -> dict[str, np.ndarray]:
    """Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits (CC BY 4.0); the last fifth of a fixed order is for tests."""
    with importlib.resources.files("tfdp.data").joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        x, y = stored["x"], stored["y"]
    cut = 1437
    return {"x_train": x[:cut], "y_train": y[:cut], "x_test": x[cut:], "y_test": y[cut:]}


def _read(file: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(file, allow_pickle=False) as stored:
            missing = [array for array in _ARRAYS if array not in stored]
            found = {} if missing else {array: stored[array] for array in _ARRAYS}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} can't be read as an .npz file of arrays: {error}") from error
    if missing:
        raise ValueError(f"{file} has no {', '.join(missing)}: it must hold {', '.join(_ARRAYS)}.")
    return found


def _ready(where: str, known: Known, arrays: dict[str, np.ndarray]) -> TrainAndTest:
    parts: list[Any] = []
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        _check(f"{where}, {part}", known, x, y)
        parts.append((known.prepare(x), (y - known.first_class).astype(np.int32)))
    if arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]:
        shapes = " and ".join(str(arrays[name].shape[1:]) for name in ("x_train", "x_test"))
        raise ValueError(f"{where}: records for training and for tests have different shapes, {shapes}.")
    return TrainAndTest(*parts)


def _check(where: str, known: Known, x: np.ndarray, y: np.ndarray) -> None:
    if x.ndim != 1 + len(known.x_shape) or any(
        wanted not in (None, size) for wanted, size in zip(known.x_shape, x.shape[1:], strict=True)
    ):
        shape = ", ".join("n" if size is None else str(size) for size in known.x_shape)
        raise ValueError(f"{where}: x must have the shape [records, {shape}], not {list(x.shape)}.")
    if not len(x):
        raise ValueError(f"{where}: there are no records.")
    for name, array in (("x", x), ("y", y)):
        if array.dtype.kind not in "buif":
            raise ValueError(f"{where}: {name} must hold real numbers, not {array.dtype}.")
    if y.shape != x.shape[:1]:
        raise ValueError(
            f"{where}: y must hold one label for each of {len(x)} records, but has the shape {list(y.shape)}."
        )
    last = known.first_class + known.classes - 1
    whole = np.asarray(y, np.float64)
    if not (np.all(whole == np.round(whole)) and known.first_class <= whole.min() and whole.max() <= last):
        raise ValueError(f"{where}: labels must be whole numbers from {known.first_class} to {last}.")
    if known.prepare is _pixels and x.dtype.kind == "f" and x.max() <= 1:
        raise ValueError(
            f"{where}: pixels must be numbers from 0 to 255, not from 0 to 1: they are divided by 255 here."
        )
    if known.below is not None and not np.all(x == np.round(x)):
        raise ValueError(f"{where}: x must hold whole numbers.")
    if known.below is not None and (x.min() < 0 or np.any(x.max(axis=0) >= known.below)):
        raise ValueError(
            f"{where}: numbers in x must count from 0 and stay below {' and '.join(map(str, known.below))}."
        )
    if x.dtype.kind == "f" and not np.all(np.isfinite(x)):
        raise ValueError(f"{where}: x holds values that are not finite (NaN or infinite).")
