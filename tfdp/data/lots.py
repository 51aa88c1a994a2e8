"""Lots as plain arrays of record numbers: Poisson samples, and all records one after the other."""

import dataclasses
import math
import os
from collections.abc import Iterator

import numpy as np


@dataclasses.dataclass(frozen=True)
class PoissonLots:
    """Lots of `size` records, numbered first, first + stride, ...: each joins each lot at `rate`.

    Exact, and never a coin per record: given its size k ~ Binomial(size, rate), a Poisson lot is a uniformly
    random set of k records. `rate` is a double, the very same one that the accountant gets.

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
        while True:
            if process != os.getpid() and self.seed is None:
                generator, process = np.random.default_rng(), os.getpid()
            yield self.first + self.stride * self._draw(generator)

    def _draw(self, generator: np.random.Generator) -> np.ndarray:
        if self.rate == 1.0:
            return np.arange(self.size)
        rows = generator.binomial(self.size, self.rate)
        members = generator.choice(self.size, rows, replace=False, shuffle=False)
        members.sort()  # a lot is a set; in order, files on disk are read forwards
        return members


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
