"""One kind of storage a class: how rows are read from it, by number, without ever copying the whole.

Every column has `size` (its number of records), `spec` (what one lot of it looks like, leading dimension
None), `cheap` (rows are read by an address in memory, so that several lots may be read at once) and `read(members)`: the
rows of these record numbers, in their order, as a flat list of arrays in the order of
`tf.nest.flatten(spec)`.

Floating-point values are cast to `keras.config.floatx()` as Keras does for arrays, but lot by lot.
"""

import math
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf


class Column(Protocol):
    size: int
    spec: Any
    cheap: bool

    def read(self, members: np.ndarray) -> list[np.ndarray]: ...


class InMemory:
    """A numpy array, or anything that shares its memory with one. A memory map too: its rows are read as those of an array."""

    cheap = True

    def __init__(self, array: np.ndarray, name: str):
        self._array = np.asarray(array)
        self.size = leading_size(array.shape, name)
        self.spec = row_spec(array.shape[1:], array.dtype, name)

    def read(self, members: np.ndarray) -> list[np.ndarray]:
        if self.spec.dtype == tf.string:
            return [as_spec(self._array[members], self.spec)]
        rows = aligned_rows(len(members), self.spec)
        flags = self._array.flags
        if self._array.dtype == rows.dtype and flags.c_contiguous and flags.aligned:
            # "clip" writes straight into `rows`, "raise" would fill a buffer first. All are in range.
            np.take(self._array, members, axis=0, out=rows, mode="clip")
        else:  # here np.take would copy the whole array
            rows[...] = self._array[members]
        return [rows]


class InTensor:
    """A TensorFlow tensor that numpy can't see without copying it: strings, or one on another device."""

    cheap = True

    def __init__(self, tensor: tf.Tensor, name: str):
        self._tensor = tensor
        self.size = leading_size(tensor.shape, name)
        self.spec = row_spec(tensor.shape[1:], tensor.dtype, name)

    def read(self, members: np.ndarray) -> list[np.ndarray]:
        return [as_spec(tf.gather(self._tensor, members).numpy(), self.spec)]


class InFrame:
    """A pandas DataFrame, or a Series, which Keras turns into a column of its own: shape (rows, 1)."""

    cheap = True

    def __init__(self, frame: Any, name: str):
        self._frame = frame
        self.size = leading_size(frame.shape, name)
        self.spec = row_spec(frame.shape[1:] or (1,), frame.iloc[:0].to_numpy().dtype, name)

    def read(self, members: np.ndarray) -> list[np.ndarray]:
        rows = self._frame.iloc[members].to_numpy()
        return [as_spec(rows.reshape(len(members), -1), self.spec)]


class OnDisk:
    """An array outside memory that reads slices: an h5py dataset and its like.

    Reads forwards, a slice at a time: h5py refuses record numbers that do not increase, and its selection by
    a list of numbers takes time that grows with the square of the list. Close neighbours share one slice.
    """

    cheap = False
    _SKIPPED_BYTES = 2**14  # reading this much in vain costs no more than one more read
    _SLICE_BYTES = 2**24  # what one slice may take beside the lot

    def __init__(self, array: Any, name: str):
        self._array = array
        self.size = leading_size(array.shape, name)
        self.spec = row_spec(array.shape[1:], array.dtype, name)
        row_bytes = max(1, math.prod(array.shape[1:]) * array.dtype.itemsize)
        self._gap = 1 + self._SKIPPED_BYTES // row_bytes
        self._slice_rows = 1 + self._SLICE_BYTES // row_bytes

    def read(self, members: np.ndarray) -> list[np.ndarray]:
        if not len(members):
            return [np.empty((0, *self.spec.shape[1:]), _numpy_dtype(self.spec))]
        wanted, places = np.unique(members, return_inverse=True)
        far = np.diff(wanted) > self._gap
        full = np.diff(wanted // self._slice_rows) > 0
        runs = np.split(wanted, np.flatnonzero(far | full) + 1)
        rows = np.concatenate([self._array[int(run[0]) : int(run[-1]) + 1][run - run[0]] for run in runs])
        return [as_spec(rows[places], self.spec)]


class FromSource:
    """A random-access source of whole items, such as `tfds.data_source`: `source[i]` is record number i.

    Uses `source.__getitems__(numbers)` where there is one. Every item is shaped like the first.
    """

    cheap = False

    def __init__(self, source: Any, name: str):
        self._source = source
        self._name = name
        self.size = len(source)
        if not self.size:
            raise ValueError(f"{name} holds no records.")
        self._supervised = _supervised_keys(source)
        first = self._as_record(source[0])
        self.spec = tf.nest.map_structure(lambda row: row_spec(row.shape, row.dtype, f"a record of {name}"), first)

    def read(self, members: np.ndarray) -> list[np.ndarray]:
        specs = tf.nest.flatten(self.spec)
        numbers = members.tolist()
        if not numbers:
            return [np.empty((0, *spec.shape[1:]), _numpy_dtype(spec)) for spec in specs]
        if hasattr(self._source, "__getitems__"):
            items = self._source.__getitems__(numbers)
        else:
            items = [self._source[number] for number in numbers]
        records = [self._as_record(item) for item in items]
        for record in records:
            tf.nest.assert_same_structure(record, self.spec)
        leaves = zip(*(tf.nest.flatten(record) for record in records), strict=True)
        return [self._stack(rows, spec) for rows, spec in zip(leaves, specs, strict=True)]

    def _as_record(self, item: Any) -> Any:
        """The item with arrays for leaves, and as a tuple (x, y) or (x, y, sample_weight) if it names these."""
        if self._supervised and isinstance(item, dict):
            item = tuple(item[key] for key in self._supervised)
        elif isinstance(item, dict) and set(item) in ({"x", "y"}, {"x", "y", "sample_weight"}):
            item = tuple(item[key] for key in ("x", "y", "sample_weight") if key in item)
        return _arrays(item)

    def _stack(self, rows: tuple[np.ndarray, ...], spec: tf.TensorSpec) -> np.ndarray:
        for row in rows:
            if row.shape != tuple(spec.shape[1:]):
                raise ValueError(
                    f"{self._name} gives records of different shapes, {tuple(spec.shape[1:])} and "
                    f"{row.shape}: resize or pad inside the source."
                )
        return as_spec(np.stack(rows), spec)


def _arrays(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _arrays(part) for key, part in item.items()}
    if isinstance(item, tuple):
        return tuple(_arrays(part) for part in item)
    return np.asarray(item)


def _supervised_keys(source: Any) -> tuple[str, ...] | None:
    """(features, label), where a tfds source says which of its fields are these."""
    keys = getattr(getattr(source, "dataset_info", None), "supervised_keys", None)
    simple = isinstance(keys, tuple) and 2 <= len(keys) <= 3 and all(isinstance(key, str) for key in keys)
    return keys if simple else None


def leading_size(shape: tuple[int, ...], name: str) -> int:
    if len(shape) == 0:
        raise ValueError(f"{name} is a single number, not an array with one row a record.")
    if not shape[0]:
        raise ValueError(f"{name} holds no records: its shape is {tuple(shape)}.")
    return int(shape[0])


def row_spec(shape: tuple[int, ...], dtype: Any, name: str) -> tf.TensorSpec:
    """What a lot of rows of this shape and type is as a tensor."""
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        raise ValueError(
            f"{name} is an array of Python objects. Give it a type: np.asarray({name}, dtype='float32') for "
            "numbers, dtype=str for texts. Rows of different lengths need padding first."
        )
    if isinstance(dtype, np.dtype) and dtype.kind in "SU":
        return tf.TensorSpec((None, *shape), tf.string)
    try:
        dtype = tf.as_dtype(dtype)
    except TypeError:
        raise ValueError(f"{name} has the type {dtype}, unknown to TensorFlow. Turn it into numbers.") from None
    return tf.TensorSpec((None, *shape), keras.config.floatx() if dtype.is_floating else dtype)


def as_spec(rows: np.ndarray, spec: tf.TensorSpec) -> np.ndarray:
    """Rows in the type of their spec."""
    if rows.dtype.kind == "U":
        return np.char.encode(rows, "utf-8")
    return rows.astype(_numpy_dtype(spec), copy=False) if rows.dtype.kind not in "SO" else rows


def aligned_rows(rows: int, spec: tf.TensorSpec) -> np.ndarray:
    """Room for so many rows, placed in memory where TensorFlow takes it over without a copy (at 64 bytes)."""
    dtype = _numpy_dtype(spec)
    shape = (rows, *spec.shape[1:])
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def _numpy_dtype(spec: tf.TensorSpec) -> np.dtype:
    return np.dtype("S1" if spec.dtype == tf.string else spec.dtype.as_numpy_dtype)
