"""What NumPy does of encoding gradients: it sorts them, and cuts them to their codewords and adds them up.

TensorFlow sorts by comparing through indices, at a tenth of the speed of NumPy's vectorised sort of whole numbers, and takes
each step of a computation through memory. Here a row takes all steps while it lies in a core's cache, and the cores share the
rows between them: NumPy lets go of Python's lock while it computes.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_LOW = 0 if sys.byteorder == "little" else 1  # which half of a packed number decides last
_INFINITE = 0x7F800000  # the bits of float32 infinity; those of NaNs are larger
_WORTH_LEAVING_OUT = 0.1  # share of zeros

NOT_FINITE = -1
LARGEST = 2.0**21  # of the whole numbers that sums are rounded to
LARGEST_FLOAT = float(np.finfo(np.float32).max)


def sort(counts: np.ndarray, gradients: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorts each row that is there, by magnitude; zeros, whose order makes no difference, may be left out.

    Returns:
        places: of each row, at its end, its coordinates in ascending order; that which comes first first where magnitudes are equal.
        sums: of the sorted magnitudes over runs of so many ``counts``; 0 for rows without a size.
        sizes: how many coordinates of a row were sorted; ``NOT_FINITE`` for a row with a NaN or Inf, 0 for one that is not there.
    """
    width = gradients.shape[1]
    places, sizes = np.empty(gradients.shape, np.int32), np.zeros(len(gradients), np.int32)
    sums = np.zeros((len(gradients), len(counts)), np.float32)

    def some(rows: np.ndarray) -> None:
        packed, every_place = np.empty(width, np.int64), np.arange(width, dtype=np.int32)
        ordered = np.empty(width, np.float32)
        for row in rows:
            bits, where = gradients[row].view(np.int32) & 0x7FFFFFFF, every_place  # ordered like the magnitudes
            size = np.count_nonzero(bits)
            if size > (1 - _WORTH_LEAVING_OUT) * width:
                size = width
            else:
                where = np.flatnonzero(bits != 0)
                bits = bits[where]
            # One whole number each: the magnitude, which decides, and the place.
            numbers = packed[:size]
            low, high = numbers.view(np.int32)[_LOW::2], numbers.view(np.int32)[1 - _LOW :: 2]
            low[:], high[:] = where, bits
            numbers.sort()
            if size and high[-1] >= _INFINITE:
                sizes[row] = NOT_FINITE
                continue
            places[row, width - size :] = low
            ordered[: width - size], ordered[width - size :].view(np.int32)[:] = 0, high
            sizes[row], sums[row] = size, _sums_over_runs(ordered, counts)

    _on_all_cores(some, np.flatnonzero(there))
    return places, sums, sizes


def nearest(sums: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """For each row the column of ``distances`` with the largest product, whole numbers, exactly: the first one among equals."""
    sums = np.minimum(sums.astype(np.float64), LARGEST_FLOAT)
    whole = np.rint(sums * (LARGEST / np.maximum(sums.max(axis=1, keepdims=True), 1e-300)))
    return np.argmax(whole @ distances, axis=1)


def cut_and_add(
    codewords: np.ndarray,
    counts: np.ndarray,
    scale: float,
    gradients: np.ndarray,
    places: np.ndarray,
    sizes: np.ndarray,
    chosen: np.ndarray,
) -> np.ndarray:
    """The sum of the rows that have a size, each times ``scale``, cut to its codeword and rounded towards 0 to a whole number.

    Float64 adds whole numbers exactly up to 2^53.
    """
    width = gradients.shape[1]
    run_of_weight = np.repeat(np.arange(len(counts)), counts)

    def some(rows: np.ndarray) -> np.ndarray:
        total, bounds = np.zeros(width), np.zeros(width, np.float32)
        cut, negative = np.empty_like(bounds), np.empty_like(bounds)
        for row in rows:
            start = width - sizes[row]
            # What other rows left at the places of zeros makes no difference.
            bounds[places[row, start:]] = codewords[chosen[row]].take(run_of_weight[start:], mode="clip")
            with np.errstate(over="ignore"):
                np.multiply(gradients[row], np.float32(scale), out=cut)
            np.minimum(cut, bounds, out=cut)
            np.maximum(cut, np.negative(bounds, out=negative), out=cut)
            total += np.trunc(cut, out=cut)
        return total

    return sum(_on_all_cores(some, np.flatnonzero(sizes > 0)), np.zeros(width))


def _sums_over_runs(ordered: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Runs of one number are at the end; of the others all but the first are of one length."""
    runs = int((counts > 1).sum())
    if not runs:
        return ordered
    length = int(counts[runs - 1])
    begin, end = int(counts[0]) - length, int(counts[:runs].sum())
    sums = np.einsum("rl->r", ordered[begin:end].reshape(runs, length))
    sums[0] += ordered[:begin].sum()
    return np.concatenate([sums, ordered[end:]])


def _on_all_cores(work: Callable[[np.ndarray], object], rows: np.ndarray) -> list:
    threads = _threads()
    shares = [rows[first::threads] for first in range(min(threads, len(rows)))]
    return [work(share) for share in shares] if len(shares) < 2 else list(_pool().map(work, shares))


@functools.lru_cache(maxsize=1)
def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads(), thread_name_prefix="tfdp_sorted_rows")
