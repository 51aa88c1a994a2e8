"""A tf.data pipeline as a column of records that are read by number."""

import dataclasses
import threading
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfdp.data.numbered import NotNumbered, Numbered
from tfdp.data.pipeline_functions import draws, draws_from_a_seed
from tfdp.data.pipeline_graph import ONE_OUT_OF_ONE, OWN_ELEMENT
from tfdp.data.pipeline_joins import check_joins
from tfdp.data.pipeline_numbered import numbered

_AT_ONCE = 16  # records that are made at the same time
_FEW = 4  # records on which functions are tried
SECRET_SEEDS = (
    "Nobody knows the seeds of the random numbers that map() draws: with keras.utils.set_random_seed or seed= of known numbers, what "
    "becomes of a record may tell how many were drawn before it"
)


class FromPipeline:
    """The records of a dataset, each read by its number, whatever shuffle(), batch() and repeat() would have done with them.

    Functions of map() are called anew for every record that is read, so that random ones draw anew. What the dataset caches in
    memory is read once.

    Attributes:
        size, spec, cheap, read: as of any column (`tfdp.data.columns`).
        batch_size: of the dataset's batch(); None if it has none.
        unchecked: what could not be seen of it and stands on the user's word, as sentences.

    Raises:
        NotNumbered: records of this dataset can't be read by number.
        ValueError: a record can be seen to enter another one.
    """

    def __init__(self, dataset: tf.data.Dataset):
        found = numbered(dataset)
        self.size, self.batch_size = int(found.size), found.batch_size
        joined = check_joins(dataset, self.size, with_constants=True)
        self.unchecked = tuple(dict.fromkeys((*_unchecked(found), *joined)))
        self.cheap = found.vectorised and not found.after and found.kept is None
        self._rows = _Rows(found)
        try:
            first = self._rows.read(np.arange(min(self.size, _FEW)))
            self._rows.check()
        except tf.errors.InvalidArgumentError as error:
            if not found.maps:
                raise
            raise NotNumbered(
                "a map() fails on a record, or a batch of one record, alone, or gives records of several shapes"
            ) from error
        leaves = [
            tf.TensorSpec((None, *rows.shape[1:]), spec.dtype)
            for rows, spec in zip(first, tf.nest.flatten(dataset.element_spec), strict=True)
        ]
        self.spec = tf.nest.pack_sequence_as(dataset.element_spec, leaves)

    def read(self, members: np.ndarray) -> list[np.ndarray]:
        if not len(members):
            specs = tf.nest.flatten(self.spec)
            return [
                np.empty((0, *s.shape[1:]), object if s.dtype == tf.string else s.dtype.as_numpy_dtype) for s in specs
            ]
        try:
            return self._rows.read(members)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                "The records of the data set can't be put into one lot. They need one shape each: resize or pad them in a map(). A "
                "map() after batch() is called with a batch of one record: what it pads to needs a fixed length."
            ) from error


def _unchecked(found: Numbered) -> Iterator[str]:
    if found.maps or found.unchecked:
        yield ONE_OUT_OF_ONE
        yield f"{OWN_ELEMENT}."
    if any(map(draws_from_a_seed, found.maps)):
        yield f"{SECRET_SEEDS}."
    yield from found.unchecked


class _Rows:
    """Reads rows by number, many at once."""

    def __init__(self, found: Numbered):
        self._found = found
        self._kept = None if found.kept is None else _Kept(found.kept)
        self._lot = None  # traced once, for any number of rows

    def read(self, numbers: np.ndarray) -> list[np.ndarray]:
        places = self._found.places(numbers)
        with tf.device("CPU:0"):
            given = [places] if self._kept is None else self._kept.read(places)
            given = [tf.convert_to_tensor(part) for part in given]
            if self._lot is None:
                specs = [tf.TensorSpec((None, *part.shape[1:]), part.dtype) for part in given]
                self._lot = tf.function(self._made_of, autograph=False).get_concrete_function(*specs)
            return [rows.numpy() for rows in self._lot(*given)]

    def _made_of(self, *given: tf.Tensor) -> list[tf.Tensor]:
        found = self._found
        if found.vectorised and not found.after:
            return found.element(*given)
        elements = [tf.TensorSpec(tensor.shape[1:], tensor.dtype) for tensor in given]
        one = tf.function(self._one, autograph=False).get_concrete_function(*elements)
        rows = [tf.TensorSpec(made.shape, made.dtype) for made in one.structured_outputs]
        return tf.map_fn(lambda row: one(*row), given, fn_output_signature=rows, parallel_iterations=_AT_ONCE)

    def _one(self, *given: tf.Tensor) -> list[tf.Tensor]:
        record = self._found.element(*given)
        if not self._found.after:
            return record
        return [tf.squeeze(tensor, 0) for tensor in self.after([tensor[tf.newaxis] for tensor in record])]

    def after(self, batch: list[tf.Tensor]) -> list[tf.Tensor]:
        """What becomes of a batch after batch()."""
        for function in self._found.after:
            batch = function(*batch)
        return batch

    def check(self) -> None:
        """Raises ValueError where a map() after batch() can be seen to make a record's row of its neighbours as well.

        Such a function would not do to a record alone what it is there for.
        """
        found = self._found
        if self._kept is not None:
            self._kept.rows.check()
        if not found.after:
            return
        numbers = np.arange(min(found.size, found.batch_size, _FEW))
        batch, alone = _Rows(dataclasses.replace(found, after=())).read(numbers), self.read(numbers)
        if any(map(draws, found.maps)):
            mixed = _mixes_at_random(self, batch, alone)
        else:
            mixed = not all(map(_alike, alone, _after(self, batch)))
        if mixed:
            raise ValueError(
                "A map() after batch() makes a record's row of its neighbours as well (of the batch's mean, of a mixture, of the length of "
                "the longest). Private training draws its own lots, and a record must be what it is alone: write such a map() before "
                "batch(), with fixed lengths, or leave it out."
            )


def _after(rows: _Rows, batch: list[np.ndarray]) -> list[np.ndarray]:
    return [part.numpy() for part in rows.after([tf.convert_to_tensor(part) for part in batch])]


def _mixes_at_random(rows: _Rows, batch: list[np.ndarray], alone: list[np.ndarray]) -> bool:
    """What is drawn differs each time, but a neighbour that is no number shows."""
    lone = [_without_numbers(part) for part in batch]
    try:
        return any(_shows(_after(rows, lone), alone) for _ in range(_FEW))
    except tf.errors.InvalidArgumentError:  # the function needs numbers, such as places in a table of colours
        return False


def _without_numbers(part: np.ndarray) -> np.ndarray:
    """Of all rows but the first there is nothing left, if they are floats."""
    if part.dtype.kind == "f":
        part = part.copy()
        part[1:] = np.nan
    return part


def _shows(together: list[np.ndarray], alone: list[np.ndarray]) -> bool:
    """Whether the first row has become another length, or no number where it is one alone."""
    return any(
        one.shape != other.shape or (one.dtype.kind == "f" and np.isnan(one[0]).any() > np.isnan(other[0]).any())
        for one, other in zip(together, alone, strict=True)
    )


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    return np.allclose(one, other, rtol=1e-3, atol=1e-5 * np.max(np.abs(other), initial=0.0), equal_nan=True)


class _Kept:
    """Rows that are read once and kept in memory, as cache() would."""

    def __init__(self, found: Numbered):
        self.rows = _Rows(found)
        self._have = np.zeros(int(found.size), bool)
        self._store: list[np.ndarray] = []
        self._writing = threading.Lock()

    def read(self, numbers: np.ndarray) -> list[np.ndarray]:
        with self._writing:
            missing = np.unique(numbers[~self._have[numbers]])
            if len(missing):
                new = self.rows.read(missing)
                self._store = self._store or [np.empty((len(self._have), *rows.shape[1:]), rows.dtype) for rows in new]
                for store, rows in zip(self._store, new, strict=True):
                    store[missing] = rows
                self._have[missing] = True
        return [store[numbers] for store in self._store]
