"""Poisson lots as plain arrays of record numbers."""

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
class Buckets:
    """A few sizes that lots are padded to, for compilers that want static shapes.

    The sizes are m, m + 2s, m + 4s, ... with m and s the mean and standard deviation of the lot size, never
    above `size`. The expected padding is about 1.05 s, and s / m <= 1 / sqrt(m): 6.5 % at 256 expected rows,
    less above. All but 1 in 10,000 lots fall into the first three sizes, and a larger lot takes the next one:
    no lot is cut.
    """

    size: int
    rate: float

    def rows(self, members: int) -> int:
        """The number of rows a lot of so many members is padded to."""
        mean = self.size * self.rate
        first = math.ceil(mean)
        step = max(1, math.ceil(2 * math.sqrt(mean * (1 - self.rate))))
        return min(self.size, first + step * max(0, math.ceil((members - first) / step)))
