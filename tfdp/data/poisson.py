"""Poisson lots of arrays and random-access sources."""

import copy
import hashlib
import operator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.accounting import FullBatch, Poisson, checks
from tfdp.data.lots import Buckets, Consecutive, PoissonLots
from tfdp.data.numbered import NotNumbered
from tfdp.data.pipeline_records import FromPipeline
from tfdp.data.records import Records
from tfdp.data.stream import stream

_ROWS_OF_A_FINGERPRINT = 256


class PoissonBatches:
    """Lots that every record joins independently, with probability `batch_size / size`.

    Guarantees:

    * Every lot is an exact Poisson sample at `sampling_rate`: independent of the other lots and of what the
      records hold, of any size from 0 to all. At rate 1 every lot holds every record.
    * Lots come from the operating system's entropy. No global seed moves them, no state of the generator is
      kept anywhere, and every iteration of `dataset()` (so every resume, every fork) draws fresh lots.
    * Nothing is copied: memory holds a few lots, whatever the size of the data.

    | case                                    | what happens                                       |
    |-----------------------------------------|----------------------------------------------------|
    | a lot with no record                    | comes through with 0 rows                          |
    | `batch_size` >= number of records       | every record in every lot, as in Keras: a `FullBatch` |
    | float64, float16, bfloat16 values       | cast to `keras.config.floatx()`, as Keras does     |
    | one `sample_weight` for several outputs | serves each of them, as in Keras                   |
    | `sampling_seed` given                   | the same lots every time: no claim of privacy      |

    Example:

    >>> batches = PoissonBatches(x, y, batch_size=256)
    >>> for (features, labels), present in batches.dataset().take(batches.steps_per_epoch):
    ...     ...

    Args:
        x: an array (numpy, memory map, tensor, pandas frame), an h5py dataset, a nested structure of these,
            a `tf.data.Dataset` whose records can be read by number (`tfdp.data.pipeline_numbered`; its own shuffle(), batch() and
            repeat() are taken off), or a random-access source with `__len__` and `__getitem__` (and `__getitems__`, used where there
            is one). The items of a source may be whole records: tuples `(x, y)` or `(x, y, sample_weight)`,
            dicts with exactly these keys, or what a `tfds.data_source` with supervised keys gives.
        y: targets, like x, or None.
        sample_weight: weights of the records, like y, or None.
        batch_size: the expected number of records in a lot; at most their number, or `public_size`, counts.
        public_size: a rounded number of records that anyone may know, in place of the number itself: rate and
            steps are computed from it, and neighbours differ by one record more or less.
        sampling_seed: for tests only.

    Attributes:
        size: the number of records.
        batch_size, public_size: as given, batch_size at most the number of records.
        sampling_rate: batch_size / (public_size or size).
        steps_per_epoch: ceil((public_size or size) / batch_size).
        sampling: how lots are drawn, for the ledger.
        expected_rows: the expected number of rows of a lot from here: batch_size, or the shard's part of it.
        record_spec: what the record of a lot looks like: a tuple of tensor specs with leading dimension None.
        seeded: whether there is a `sampling_seed`.
        unchecked: what could not be seen of a `tf.data.Dataset`, as sentences.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch_size: int,
        public_size: int | None = None,
        sampling_seed: int | None = None,
    ):
        if isinstance(x, tf.data.Dataset):
            x = _by_number(x)
        self.unchecked: tuple[str, ...] = x.unchecked if isinstance(x, FromPipeline) else ()
        self._records = Records(x, y, sample_weight)
        self.public_size = None if public_size is None else _positive_int("public_size", public_size)
        self.batch_size = min(_positive_int("batch_size", batch_size), self._counted_size)
        if sampling_seed is not None:
            sampling_seed = checks.count(
                "sampling_seed", sampling_seed, "write a whole number, or None for secret lots"
            )
        self._sampling_seed = sampling_seed
        self._first, self._stride = 0, 1

    @property
    def size(self) -> int:
        return len(range(self._first, self._records.size, self._stride))

    @property
    def sampling_rate(self) -> float:
        return self.batch_size / self._counted_size

    @property
    def steps_per_epoch(self) -> int:
        return -(-self._counted_size // self.batch_size)

    @property
    def sampling(self) -> Poisson | FullBatch:
        public = self.public_size is not None
        if self.sampling_rate == 1.0:
            return FullBatch(self._counted_size, public_size=public)
        return Poisson(self.sampling_rate, self._counted_size, public_size=public)

    @property
    def part(self) -> tuple[int, int]:
        """Which records these are of: (index, count) as in `shard`; (0, 1) are all."""
        return self._first, self._stride

    @property
    def expected_rows(self) -> float:
        return self.batch_size / self._stride

    @property
    def record_spec(self) -> tuple[Any, ...]:
        return self._records.spec

    @property
    def seeded(self) -> bool:
        return self._sampling_seed is not None

    @property
    def _counted_size(self) -> int:
        """The number of records that rate and steps are computed from. It is public."""
        return self.public_size or self._records.size

    def dataset(self, bucketed: bool = False, fine: bool = False) -> tf.data.Dataset:
        """An infinite dataset of `(record, present)`: a lot's rows, and which of them are records.

        Without buckets all rows are present and a lot has any number of rows, 0 included. With
        `bucketed=True` lots are padded, with copies of a record that are not present (an empty lot with zeros), to one
        of a few sizes: three for compilers that need static shapes, more that lie closer (`fine`) for kernels that are
        set up for every new shape.
        """
        size, rate = self.size, self.sampling_rate
        seed = (self._sampling_seed, self._first, self._stride) if self.seeded else None
        lots = PoissonLots(size, rate, seed, first=self._first, stride=self._stride)
        padded_rows = Buckets(size, rate, fine).rows if bucketed else None
        return stream(self._records, lots, expected_rows=size * rate, padded_rows=padded_rows)

    def once_through(self, rows: int) -> tf.data.Dataset:
        """Every record exactly once, so many rows at a time: a finite dataset of `(record, present)`.

        The last element is filled up with copies of a record that are not present, so that all have one shape.
        """
        rows = min(_positive_int("rows", rows), self.size)
        parts = Consecutive(self.size, rows, self._first, self._stride)
        return stream(self._records, parts, expected_rows=rows, padded_rows=lambda members: rows).take(len(parts))

    def head(self, rows: int) -> tuple[Any, ...]:
        """The first records, as arrays: to build and check a model with. Fewer, if there are not so many."""
        members = self._first + self._stride * np.arange(min(rows, self.size))
        return self._records.pack(self._records.read(members))

    def fingerprint(self) -> bytes:
        """A digest of the number of records and of some that lie evenly among all, whatever the shard: workers that were not
        given the same records in the same order have different ones."""
        members = np.unique(np.linspace(0, self._records.size - 1, _ROWS_OF_A_FINGERPRINT).astype(np.int64))
        digest = hashlib.sha256(str(self._records.size).encode())
        for leaf in self._records.read(members):
            texts = leaf.dtype == object
            digest.update(repr(leaf.tolist()).encode() if texts else np.ascontiguousarray(leaf).tobytes())
        return digest.digest()

    def shard(self, index: int, count: int) -> "PoissonBatches":
        """Lots over records index, index + count, index + 2 count, ..., at the rate of the whole.

        One shard a worker: the workers' lots together are one Poisson lot of the whole, because each record
        has its own coin. (Workers that each drew lots of the whole would let a record in once for each of
        them.) Rate, steps, `batch_size` and `sampling` stay those of the whole; `size` and `expected_rows`
        are the shard's own.
        """
        index, count = operator.index(index), operator.index(count)
        if not 0 <= index < count <= self.size:
            raise ValueError(
                f"shard({index}, {count}): index goes from 0 to count - 1, count up to the number of records."
            )
        part = copy.copy(self)
        part._first = self._first + self._stride * index
        part._stride = self._stride * count
        return part


def _by_number(dataset: tf.data.Dataset) -> FromPipeline:
    try:
        return FromPipeline(dataset)
    except NotNumbered as reason:
        raise ValueError(
            f"The records of this tf.data.Dataset can't be read by number: {reason}. Give the arrays or the source it was made "
            'from, or say how it samples: tfdp.data.declare_sampling(dataset, "shuffled", size=, batch_size=).'
        ) from reason


def _positive_int(name: str, value: Any) -> int:
    return checks.count(name, value, "write a whole number of at least 1", at_least=1)
