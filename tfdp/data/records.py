"""Arrays and sources of all kinds as one thing: numbered records, of which any selection can be read."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data import columns
from tfdp.data.pipeline_records import FromPipeline


class Records:
    """(x, y, sample_weight) of any nesting, one record a row, read by record number. Nothing is copied.

    Attributes:
        size: the number of records.
        spec: a lot of them as tensor specs, leading dimension None: (x,), (x, y) or (x, y, sample_weight).
        cheap: every row has an address in memory.
        row_bytes: the size of one record.
    """

    def __init__(self, x: Any, y: Any = None, sample_weight: Any = None):
        if x is None:
            raise ValueError("x is None: there are no records to draw from.")
        if y is None and sample_weight is not None:
            raise ValueError("sample_weight was given without y. Give both, or leave out sample_weight.")
        if sample_weight is not None:
            sample_weight = _weights_like(y, sample_weight)
        given = {"x": x, "y": y, "sample_weight": sample_weight}
        parts = {name: map_leaves(_column, part, name) for name, part in given.items() if part is not None}
        self._columns = [column for column in tf.nest.flatten(tuple(parts.values())) if column is not None]
        if not self._columns:
            raise ValueError("x holds no arrays: there are no records to draw from.")
        self.size = _common_size(parts)
        self.cheap = all(column.cheap for column in self._columns)
        record = tuple(parts.values())
        spec = tf.nest.map_structure(lambda column: None if column is None else column.spec, record)
        whole_records = y is None and isinstance(parts["x"], columns.FromSource | FromPipeline)
        self.spec = _unwrapped(spec) if whole_records else spec

    @property
    def flat_spec(self) -> list[tf.TensorSpec]:
        """The specs of what `read` returns."""
        return [spec for spec in tf.nest.flatten(self.spec) if spec is not None]

    @property
    def row_bytes(self) -> int:
        return sum(math.prod(spec.shape[1:]) * spec.dtype.size for spec in self.flat_spec)

    def read(self, members: np.ndarray) -> list[np.ndarray]:
        """The rows of these record numbers, one array for each of `flat_spec`."""
        return [rows for column in self._columns for rows in column.read(members)]

    def pack(self, leaves: Iterable[Any]) -> tuple[Any, ...]:
        """Leaves in the order of `flat_spec` as a record."""
        leaves = iter(leaves)
        return tf.nest.map_structure(lambda spec: None if spec is None else next(leaves), self.spec)


def _weights_like(y: Any, sample_weight: Any) -> Any:
    """One array of weights serves every output, as in Keras."""
    if not _is_structure(y):
        return sample_weight
    if _is_structure(sample_weight):
        try:
            tf.nest.assert_same_structure(*(map_leaves(_nothing, part, "") for part in (y, sample_weight)))
        except (TypeError, ValueError):
            raise ValueError("sample_weight needs one array for each array of y, in the same structure.") from None
        return sample_weight
    return map_leaves(lambda leaf, name: None if leaf is None else sample_weight, y, "y")


def _nothing(leaf: Any, name: str) -> None:
    return None


def _unwrapped(spec: tuple[Any]) -> tuple[Any, ...]:
    """Where the items of a source are tuples, they are whole records: (x,), (x, y) or (x, y, sample_weight)."""
    (item,) = spec
    if not isinstance(item, tuple):
        return spec
    if not 1 <= len(item) <= 3:
        raise ValueError(
            f"The source gives tuples of {len(item)}. A record is x, (x, y) or (x, y, sample_weight); "
            "several inputs go into a tuple or a dict of their own: ((input_1, input_2), y)."
        )
    return item


def _common_size(parts: dict[str, Any]) -> int:
    sizes = {
        name: sorted({column.size for column in tf.nest.flatten(part) if column is not None})
        for name, part in parts.items()
    }
    distinct = {size for found in sizes.values() for size in found}
    if len(distinct) > 1:
        listed = ", ".join(f"{name} has {' and '.join(map(str, found))}" for name, found in sizes.items())
        raise ValueError(f"Every array needs one row for each record, but the lengths differ: {listed}.")
    return distinct.pop()


def _is_structure(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def map_leaves(function: Callable[[Any, str], Any], value: Any, name: str) -> Any:
    """Lists become tuples: tf.data would stack them into one tensor."""
    if isinstance(value, Mapping):
        return {key: map_leaves(function, part, f"{name}[{key!r}]") for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [map_leaves(function, part, f"{name}[{number}]") for number, part in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return function(value, name)


def _column(value: Any, name: str) -> columns.Column | None:
    """The reader that fits the value. What reads row by row comes before `__array__`, which may copy."""
    _refuse_what_has_no_rows(value, name)
    if value is None or isinstance(value, FromPipeline):
        return value
    if isinstance(value, np.ndarray):
        return columns.InMemory(value, name)
    if tf.is_tensor(value):
        shared = "device:CPU" in value.device and value.dtype != tf.string
        return columns.InMemory(np.asarray(value), name) if shared else columns.InTensor(value, name)
    if hasattr(value, "iloc"):
        return columns.InFrame(value, name)
    if hasattr(value, "__dlpack__"):  # arrays of other libraries that live in memory
        return columns.InMemory(np.asarray(value), name)
    if all(hasattr(value, needed) for needed in ("shape", "dtype", "__getitem__")):
        return columns.OnDisk(value, name)
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, (str, bytes)):
        return columns.FromSource(value, name)
    if hasattr(value, "__array__"):
        return columns.InMemory(np.asarray(value), name)
    raise ValueError(
        f"{name} is a {type(value).__name__}: records can't be drawn from it by number. Give an array, a "
        "tensor, a nested structure of them, or any object with __len__ and __getitem__. A plain list of "
        "numbers: np.asarray(...). A generator: write its records to a file or an array first."
    )


def _refuse_what_has_no_rows(value: Any, name: str) -> None:
    if isinstance(value, tf.data.Dataset):
        raise ValueError(
            f"{name} is a tf.data.Dataset: Poisson lots need records by number. Give the arrays or the "
            "source it was made from, or say how it samples: "
            'tfdp.data.declare_sampling(dataset, "shuffled", size=, batch_size=).'
        )
    if isinstance(value, keras.utils.PyDataset):
        raise ValueError(
            f"{name} is a keras.utils.PyDataset, which gives batches that it has chosen itself. Give an "
            "object whose __getitem__(i) is record number i and whose __len__ is the number of records."
        )
    sparse = isinstance(value, tf.SparseTensor) or type(value).__module__.startswith("scipy.sparse")
    if sparse or isinstance(value, tf.RaggedTensor):
        raise ValueError(
            f"{name} is a {type(value).__name__}: rows need one shape and explicit values. Write "
            "tf.sparse.to_dense, .toarray() or .to_tensor(), or give a source whose __getitem__(i) makes "
            "one dense row at a time."
        )
