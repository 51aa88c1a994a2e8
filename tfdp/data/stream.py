"""Lots of record numbers and the records they name, as one tf.data.Dataset."""

import atexit
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from tfdp.data.records import Records

# Python is entered once a block of lots, not once a lot: entering it from a tf.data thread costs more than
# reading a small lot does. A block is bounded, so that memory does not grow with the data set.
_BLOCK_BYTES = 2**22
_FIRST_BLOCK, _BLOCK_LOTS = 4, 32  # blocks begin small, for a fit of a few steps, and double

_NOTHING = -1


def stream(
    records: Records,
    lots: Iterable[np.ndarray],
    *,
    expected_rows: float,
    padded_rows: Callable[[int], int] | None = None,
) -> tf.data.Dataset:
    """An infinite dataset of (record, present), one element a lot, in the order of `lots`.

    Args:
        records: where to read from.
        lots: record numbers, without end; iterated anew by every iteration of the dataset.
        expected_rows: the usual size of a lot. Only decides how many lots are read at once.
        padded_rows: the number of rows a lot of so many members is filled up to, with copies of its first
            record that are not `present`: what a model can't take, a made-up record might be. Only an empty lot gets
            zeros (empty texts). None: no padding, and every row is present.
    """
    lots_a_block = 1
    if records.cheap:
        fitting = _BLOCK_BYTES / (max(1.0, expected_rows) * max(1, records.row_bytes))
        lots_a_block = int(min(max(1, fitting), _BLOCK_LOTS))

    def blocks() -> Iterator[tuple[np.ndarray, ...]]:
        _read_from.set()
        endless, now = iter(lots), min(_FIRST_BLOCK, lots_a_block)
        while not _exiting.is_set():
            drawn = [next(endless) for _ in range(now)]
            now = min(2 * now, lots_a_block)
            counts = np.array([len(lot) for lot in drawn])
            sizes = counts if padded_rows is None else np.array([padded_rows(count) for count in counts.tolist()])
            ends = np.cumsum(sizes)
            source, present = _places(counts, sizes)
            rows = _read(records, np.concatenate(drawn), source)
            yield (*rows, present, ends - sizes, ends)

    @tf.autograph.experimental.do_not_convert
    def lots_of(*block: tf.Tensor) -> tf.data.Dataset:
        *rows, present, starts, ends = block

        @tf.autograph.experimental.do_not_convert
        def lot(start: tf.Tensor, end: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
            return records.pack(part[start:end] for part in rows), present[start:end]

        return tf.data.Dataset.from_tensor_slices((starts, ends)).map(lot)

    vector = tf.TensorSpec((None,), tf.int64)
    signature = (*records.flat_spec, tf.TensorSpec((None,), tf.bool), vector, vector)
    dataset = tf.data.Dataset.from_generator(blocks, output_signature=signature)
    dataset = dataset.prefetch(1).flat_map(lots_of)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return dataset.with_options(_options())


def _places(counts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every row of lots of so many members that are padded to these sizes: which of all lots' members it shows, and
    whether it is one or padding."""
    begins = np.cumsum(counts) - counts
    number = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # of the row in its lot
    present = number < np.repeat(counts, sizes)
    shown = np.where(counts > 0, begins, _NOTHING)
    return np.repeat(shown, sizes) + np.where(present, number, 0), present


def _read(records: Records, members: np.ndarray, source: np.ndarray) -> list[np.ndarray]:
    if records.cheap and not (source == _NOTHING).any():
        return records.read(members[source])  # in one copy; what is on disk is read once, in order
    return [_spread(rows, source) for rows in records.read(members)]


def _spread(members: np.ndarray, source: np.ndarray) -> np.ndarray:
    """The members' rows at their places; zeros, or empty texts, where there is nothing to show."""
    if len(source) == len(members):
        return members
    nothing = source == _NOTHING
    spread = np.empty((len(source), *members.shape[1:]), members.dtype)
    spread[~nothing] = members[source[~nothing]]
    spread[nothing] = b"" if members.dtype == object else np.zeros([], members.dtype)
    return spread


def _options() -> tf.data.Options:
    options = tf.data.Options()
    # Sharding by dropping elements would throw lots away that are counted as drawn.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


# A prefetching thread that asks for Python while the interpreter shuts down waits forever, and TensorFlow
# waits for the thread: the process hangs at exit, once in a while, whenever an iterator is still alive. So
# the streams end first, and a block that is being read gets its time to finish.
_read_from = threading.Event()
_exiting = threading.Event()


@atexit.register
def _end_streams() -> None:
    _exiting.set()
    if _read_from.is_set():
        time.sleep(0.1)
