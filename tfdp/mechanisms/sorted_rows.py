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
_PLACE = 0xFFFFFFFF  # the bits of a packed number that hold it
_WITHOUT_SIGN = np.int32(
    0x7FFFFFFF
)  # so much of a float32's bits, read as a whole number, is ordered like its magnitude
_INFINITE = 0x7F800000  # the bits of float32 infinity; those of NaNs are larger
_WORTH_LEAVING_OUT = 0.1  # share of zeros

_ALIGNMENT = 64  # bytes

NOT_FINITE = -1


def sort(counts: np.ndarray, gradients: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorts each row that is there, by magnitude; zeros, whose order makes no difference, may be left out.

    Returns:
        places: of each row, at its end, its coordinates in ascending order; that which comes first first where magnitudes are equal.
        sums: of the sorted magnitudes over runs of so many ``counts``; 0 for rows without a size.
        sizes: how many coordinates of a row were sorted; ``NOT_FINITE`` for a row with a NaN or Inf, 0 for one that is not there.
    """
    width = gradients.shape[1]
    places, sizes = _aligned(gradients.shape), np.zeros(len(gradients), np.int32)
    sums = np.zeros((len(gradients), len(counts)), np.float32)

    def some(rows: np.ndarray) -> None:
        # One whole number each: the magnitude, which decides, and the place.
        numbers, every_place = np.empty(width, np.int64), np.arange(width)
        low, high = numbers.view(np.int32)[_LOW::2], numbers.view(np.int32)[1 - _LOW :: 2]
        magnitudes = numbers.view(np.float32)[1 - _LOW :: 2]
        for row in rows:
            bits = gradients[row].view(np.int32) & _WITHOUT_SIGN
            size = np.count_nonzero(bits)
            if size > (1 - _WORTH_LEAVING_OUT) * width:
                size = width
                numbers[:], high[:] = every_place, bits
            else:
                numbers[: width - size] = 0
                where = np.flatnonzero(bits)
                low[width - size :], high[width - size :] = where, bits[where]
            numbers[width - size :].sort()
            if high[-1] >= _INFINITE:
                sizes[row] = NOT_FINITE
                continue
            np.bitwise_and(numbers, _PLACE, out=places[row])
            sizes[row], sums[row] = size, _sums_over_runs(magnitudes, counts)

    _on_all_cores(some, np.flatnonzero(there))
    return places, sums, sizes


def nearest(distances: np.ndarray, farthest: np.ndarray, whole: np.ndarray, products: np.ndarray) -> np.ndarray:
    """For each row of ``whole`` numbers the row of ``distances`` with the largest product, exactly: the first one among equals.

    Given all products as float32 computes them, and the largest size in each column of distances, ``farthest``. A sum of n
    products, of factors rounded to 2^-24, is off by at most (n + 2) 2^-24 / (1 - (n + 2) 2^-24) times the sum of their sizes,
    in whatever order it is taken (Higham 2002, section 3.1). So what lies within twice that of the largest is multiplied again, in
    float64, where whole numbers this small have no rounding errors. Rows of zeros get the first.
    """
    unit = (whole.shape[1] + 2) * 2.0**-24
    sizes = np.einsum("nr,r->n", whole, farthest, dtype=np.float64)
    least = products.max(axis=1) - 2.01 * unit / (1 - unit) * sizes
    chosen = np.zeros(len(whole), np.int64)
    for row in np.flatnonzero(sizes > 0):
        near = np.flatnonzero(products[row] >= least[row])
        exactly = np.einsum("kr,r->k", distances[near], whole[row], dtype=np.float64) if len(near) > 1 else [0.0]
        chosen[row] = near[np.argmax(exactly)]
    return chosen


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

    def some(rows: np.ndarray) -> np.ndarray:
        total, bounds = np.zeros(width), np.zeros(width, np.float32)
        codeword, cut, negative = (np.empty_like(bounds) for _ in range(3))
        for row in rows:
            start = width - sizes[row]
            _spread(codewords[chosen[row]], counts, codeword)
            # What other rows left at the places of zeros makes no difference.
            bounds[places[row, start:]] = codeword[start:]
            with np.errstate(over="ignore"):
                np.multiply(gradients[row], np.float32(scale), out=cut)
            np.minimum(cut, bounds, out=cut)
            np.maximum(cut, np.negative(bounds, out=negative), out=cut)
            total += np.trunc(cut, out=cut)
        return total

    return sum(_on_all_cores(some, np.flatnonzero(sizes > 0)), np.zeros(width))


def _sums_over_runs(ordered: np.ndarray, counts: np.ndarray) -> np.ndarray:
    runs, length, begin, end = _runs(counts)
    if not runs:
        return ordered
    sums = np.einsum("rl->r", ordered[begin:end].reshape(runs, length))
    sums[0] += ordered[:begin].sum()
    return np.concatenate([sums, ordered[end:]])


def _spread(codeword: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> None:
    """Gives each weight the magnitude of its run."""
    runs, length, begin, end = _runs(counts)
    weights[end:] = codeword[runs:]
    if runs:
        weights[:begin] = codeword[0]
        weights[begin:end].reshape(runs, length)[:] = codeword[:runs, None]


def _runs(counts: np.ndarray) -> tuple[int, int, int, int]:
    """How many runs have more than one weight, and how many each; where such runs begin, the first one cut to that length, and end.

    Runs of one weight are at the end; of the others all but the first are of one length.
    """
    runs = int((counts > 1).sum())
    if not runs:
        return 0, 1, 0, 0
    length = int(counts[runs - 1])
    return runs, length, int(counts[0]) - length, int(counts[:runs].sum())


def _aligned(shape: tuple[int, int]) -> np.ndarray:
    """An empty array of int64 that TensorFlow takes as it is; it copies those that do not begin where its own do."""
    memory = np.empty(shape[0] * shape[1] * 8 + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + shape[0] * shape[1] * 8].view(np.int64).reshape(shape)


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
