"""Lots as plain arrays of record numbers: Poisson samples, and all records one after the other."""

import dataclasses
import math
import os
from collections.abc import Iterator

import numpy as np

_ROWS_AT_ONCE, _LOTS_AT_ONCE = 2**13, 32


@dataclasses.dataclass(frozen=True)
class PoissonLots:
    """Lots of `size` records, numbered first, first + stride, ...: each joins each lot at `rate`.

    Exact (to about 2^-53 a coin, the resolution of the generator's doubles), and never a coin per record: all records of several lots in a row are one sequence of independent coins, and
    from one that shows heads to the next are Geometric(rate) of them. `rate` is a double, the very same one that the
    accountant gets.

    Each iteration starts a new generator on the operating system's entropy, and so does a process after
    `os.fork`: no two runs, resumes or forks share lots, and no global seed moves them. With `seed` every
    iteration gives the same lots, which is for tests only.

    | rate | size | lot                                    |
    |------|------|----------------------------------------|
    | 1    | any  | every record, in every lot             |
    | < 1  | any  | 0 to size records, in increasing order |
    """

    size: int
    rate: float
    seed: tuple[int, ...] | None = None
    first: int = 0
    stride: int = 1

    def __iter__(self) -> Iterator[np.ndarray]:
        generator, process = np.random.default_rng(self.seed), os.getpid()
        drawn: list[np.ndarray] = []
        while True:
            if process != os.getpid() and self.seed is None:
                generator, process, drawn = np.random.default_rng(), os.getpid(), []
            drawn = drawn or self._several(generator)[::-1]
            yield drawn.pop()

    def _several(self, generator: np.random.Generator) -> list[np.ndarray]:
        """Some lots at once, because each call of the generator takes longer than drawing a small lot."""
        if self.rate == 1.0:
            return [self.first + self.stride * np.arange(self.size)]
        lots = int(min(max(1, _ROWS_AT_ONCE / (self.size * self.rate)), _LOTS_AT_ONCE))
        heads = self._heads(generator, lots * self.size)
        members = self.first + self.stride * (heads % self.size)
        return np.split(members, np.searchsorted(heads, self.size * np.arange(1, lots)))

    def _heads(self, generator: np.random.Generator, coins: int) -> np.ndarray:
        """Which of so many independent coins show heads, in increasing order."""
        expected, found, last = coins * self.rate, [], -1
        while last < coins:
            gaps = generator.geometric(self.rate, int(expected + 4 * math.sqrt(expected)) + 4)
            found.append(last + np.cumsum(np.clip(gaps, 1, coins + 1)))
            last = found[-1][-1]
        heads = np.concatenate(found)
        return heads[: np.searchsorted(heads, coins)]


@dataclasses.dataclass(frozen=True)
class Consecutive:
    """`size` records, numbered first, first + stride, ..., so many `rows` at a time, in order, again and again.

    One round has `len` of them; its last one may have fewer rows.
    """

    size: int
    rows: int
    first: int = 0
    stride: int = 1

    def __len__(self) -> int:
        return math.ceil(self.size / self.rows)

    def __iter__(self) -> Iterator[np.ndarray]:
        while True:
            for start in range(0, self.size, self.rows):
                yield self.first + self.stride * np.arange(start, min(start + self.rows, self.size))


@dataclasses.dataclass(frozen=True)
class Buckets:
    """A few sizes that lots are padded to: libraries keep code and memory for every shape that they have met.

    With m and s the mean and standard deviation of the lot size, the sizes are m, m + 2s, m + 4s, ..., or, if `fine`,
    all m + k s/2; none is above `size`, and a large lot takes the next one: no lot is cut.

    |                      | coarse, for XLA               | fine, for kernels          |
    |----------------------|-------------------------------|----------------------------|
    | a new size costs     | compiling the step            | kernels set up, and kept   |
    | sizes                | 3 for all but 1 lot in 10,000 | 17 for all but 1 in 10,000 |
    | expected padding     | about 1.05 s                  | about s/4                  |
    | of 256 expected rows | 6.5 %                         | 1.6 %                      |
    """

    size: int
    rate: float
    fine: bool = False

    def rows(self, members: int) -> int:
        """The number of rows a lot of so many members is padded to."""
        mean = self.size * self.rate
        middle, deviation = math.ceil(mean), math.sqrt(mean * (1 - self.rate))
        step = max(1, math.ceil(deviation / 2 if self.fine else 2 * deviation))
        steps = math.ceil((members - middle) / step)
        return min(self.size, max(1, middle + step * (steps if self.fine else max(0, steps))))
