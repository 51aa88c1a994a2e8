"""The papers' sets that tensorflow-datasets has: the name of each one's builder, and what its features become.

That is the arrays that an .npz file of `tfdp.data.load` holds. Nothing is fitted on the records: categories are in the builder's
lists, words are numbered by a hash, counts have a fixed scale (which was chosen after a look at some, see `_connection`). Where one split has to serve for
training and for tests, it is cut in the order in which tensorflow-datasets stores it: by a hash of a record's line in the file.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Records = Mapping[str, np.ndarray]
XAndY = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Builder:
    """A builder of tensorflow-datasets.

    Attributes:
        name: with its configuration.
        arrays: from records and the builder's description of their features to what an .npz file holds of them.
        only: the features that are read. None: all.
        parts: the records for training and those for tests.
    """

    name: str
    arrays: Callable[[Records, Mapping[str, Any]], XAndY]
    only: tuple[str, ...] | None = None
    parts: tuple[str, str] = ("train", "test")


def read(builder: Builder, data_dir: str | os.PathLike | None, nowhere: str) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test and y_test. Where they can't be had, the error begins with ``nowhere``."""
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise FileNotFoundError(f"{nowhere} Or install tensorflow-datasets: pip install 'tfdp[datasets]'.") from None
    decoders = None if builder.only is None else tfds.decode.PartialDecoding(dict.fromkeys(builder.only, True))
    try:
        source = tfds.builder(builder.name, data_dir=None if data_dir is None else str(data_dir))
        source.download_and_prepare()
        parts = [
            tfds.as_numpy(source.as_dataset(split=part, batch_size=-1, decoders=decoders)) for part in builder.parts
        ]
    except Exception as error:  # whatever stands between here and the server
        reason = " ".join(str(error).split())[:200]
        raise FileNotFoundError(f"{nowhere} tensorflow-datasets could not get it: {reason}") from error
    found = {}
    for part, records in zip(("train", "test"), parts, strict=True):
        found[f"x_{part}"], found[f"y_{part}"] = builder.arrays(records, source.info.features)
    return found


def _image(records: Records, features: Mapping[str, Any]) -> XAndY:
    x = records["image"]
    return x[..., 0] if x.shape[3:] == (1,) else x, records["label"]


def _features(records: Records, features: Mapping[str, Any]) -> XAndY:
    return records["features"], records["label"]


# Keras's coding has 0 for padding, 1 for the start, 2 for words that have no number, and words from 3 on.
START, FIRST_WORD, WORD_NUMBERS, REVIEW_LENGTH = 1, 3, 10_000, 256
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def _review(records: Records, features: Mapping[str, Any]) -> XAndY:
    """A start and the first 255 words. Keras numbers words by how frequent they are in these reviews, which would be a use of them."""
    x = np.zeros((len(records["text"]), REVIEW_LENGTH), np.int32)
    for row, text in zip(x, records["text"], strict=True):
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        words = _WORD.finditer(text.lower().replace("<br />", " "))
        numbers = [START, *(_number(word.group()) for word in itertools.islice(words, REVIEW_LENGTH - 1))]
        row[: len(numbers)] = numbers
    return x, records["label"]


def _number(word: str) -> int:
    return FIRST_WORD + zlib.crc32(word.encode()) % (WORD_NUMBERS - FIRST_WORD)


MOVIE_IDS, MOVIES = 3952, 3706


def _rating(records: Records, features: Mapping[str, Any]) -> XAndY:
    """Which 3,706 of the 3,952 numbers have ratings is known from the ratings only, so the last 246 share a row with the first."""
    try:
        user, movie = (np.asarray(records[name]).astype(np.int64) for name in ("user_id", "movie_id"))
    except ValueError as error:
        raise ValueError(
            f"MovieLens 1M has whole numbers for users and movies, and here are others: {error}"
        ) from error
    if np.any((movie < 1) | (movie > MOVIE_IDS)):
        raise ValueError(f"MovieLens 1M has movies of the numbers 1 to {MOVIE_IDS}, and here are others.")
    return np.stack([user - 1, (movie - 1) % MOVIES], axis=1), records["user_rating"]


def _connection(records: Records, features: Mapping[str, Any]) -> XAndY:
    """Categories one-hot, counts as log10(1 + count) / 3 (999 is 1), shares and yes or no as they are, by name in the alphabet's order."""
    # The 3 was chosen after a look at 70,000 records: without it their norm was 6.3 in the median, with it 3.1.
    columns = []
    for name in sorted(set(records) - {"label"}):
        values = records[name]
        if hasattr(features[name], "num_classes"):
            columns.append(np.eye(features[name].num_classes, dtype=np.float32)[_categories(name, records, features)])
        elif values.dtype.kind in "iu":
            if np.any(values < 0):
                raise ValueError(f"Of KDDCup99, {name} must not be negative.")
            columns.append(np.log10(1 + values.astype(np.float64))[:, None] / 3)
        else:
            columns.append(values[:, None])
    label = _categories("label", records, features)
    return np.concatenate(columns, axis=1, dtype=np.float32), label != features["label"].str2int("normal")


def _categories(name: str, records: Records, features: Mapping[str, Any]) -> np.ndarray:
    values, count = records[name], features[name].num_classes
    if np.any((values < 0) | (values >= count)):
        raise ValueError(f"Of KDDCup99, {name} must be one of {count} categories, counted from 0.")
    return values


_IMAGE = ("image", "label")
_FOUR_FIFTHS = ("train[:80%]", "train[80%:]")
BUILDERS = {
    "mnist": Builder("mnist", _image, _IMAGE),
    "fashion_mnist": Builder("fashion_mnist", _image, _IMAGE),
    "svhn": Builder("svhn_cropped", _image, _IMAGE),
    "cifar10": Builder("cifar10", _image, _IMAGE),
    "iris": Builder("iris", _features, parts=_FOUR_FIFTHS),
    "imdb": Builder("imdb_reviews/plain_text", _review),
    "movielens1m": Builder("movielens/1m-ratings", _rating, ("user_id", "movie_id", "user_rating"), parts=_FOUR_FIFTHS),
    "kddcup99": Builder("kddcup99", _connection, parts=("train[:56000]", "train[56000:70000]")),
}
