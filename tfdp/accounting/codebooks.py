"""The public codebook of encoded gradients: sorted magnitudes under which each record's gradient is cut.

It is drawn from a public distribution with a public seed and never from data, so that anyone can rebuild it; a ledger
holds its description.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from tfdp.accounting import checks
from tfdp.noise import Gaussian, Noise

# Nasr et al. 2020, section 5: smaller draws are replaced by 0.
_SMALLEST = 1e-5
_LARGEST = 1e140  # so that squares, of 10^27 weights, have a sum
_ALONE = 2**10  # of the largest magnitudes; and about as many runs
_STANDARD_NORMAL = Gaussian(1.0)


@dataclasses.dataclass(frozen=True)
class Codebook:
    """`size` vectors of `weights` magnitudes in ascending order, of l2 norm at most 1, in units of the clip.

    A codeword is stored as runs of equal magnitudes, at most 2,048 of them: the largest 1,024 magnitudes each by itself,
    the others in runs of equal length, the remainder of the division going to the smallest. With more weights than runs,
    only one draw a run is made: the largest of the run's order statistics, from its exact distribution. The bound is
    computed for what is stored, so this costs no exactness: 1,000 codewords take 8 MB whatever the model's size.

    | member         | shape          | what it is                                               |
    |----------------|----------------|----------------------------------------------------------|
    | `magnitudes`   | (size, runs)   | float32, ascending in each row                           |
    | `counts`       | (runs,)        | how many weights each run covers; they sum to `weights`  |

    Formal guarantee: the float32 magnitudes as they are, squared, weighted by `counts` and added in float64, sum to at
    most 1 in each row.

    Args:
        weights: how many weights the model has.
        size: how many codewords there are.
        distribution: of one coordinate before the norm is scaled.
        seed: public. The same seed gives the same codebook: NumPy keeps the streams of `RandomState` as they are.
    """

    weights: int
    size: int = 1000
    distribution: Noise = _STANDARD_NORMAL
    seed: int = 0

    def __post_init__(self) -> None:
        for name, advice in (("weights", "the model's number of weights"), ("size", "the number of codewords")):
            number = checks.count(name, getattr(self, name), f"write {advice}", at_least=1)
            object.__setattr__(self, name, number)
        seed = checks.count("seed", self.seed, "write a public seed of at most 32 bits, such as 0")
        if seed >= 2**32:
            raise ValueError(f"seed must be below 2**32, got {seed}: write a public seed such as 0")
        object.__setattr__(self, "seed", seed)
        if not isinstance(self.distribution, Noise):
            raise ValueError(
                f"distribution must be a tfdp.noise.Noise such as Gaussian(1.0), not {self.distribution!r}"
            )

    @property
    def counts(self) -> np.ndarray:
        return _counts(self.weights)

    @property
    def magnitudes(self) -> np.ndarray:
        return _magnitudes(self)

    def codeword(self, index: int) -> np.ndarray:
        """One codeword in full: a magnitude for each weight, ascending."""
        return np.repeat(self.magnitudes[index], self.counts)


@functools.lru_cache(maxsize=64)
def _counts(weights: int) -> np.ndarray:
    if weights <= 2 * _ALONE:
        counts = np.ones(weights, dtype=np.int64)
    else:
        length = -(-(weights - _ALONE) // _ALONE)
        runs, rest = divmod(weights - _ALONE, length)
        counts = np.concatenate([np.full(runs, length, dtype=np.int64), np.ones(_ALONE, dtype=np.int64)])
        counts[0] += rest
    counts.setflags(write=False)
    return counts


@functools.lru_cache(maxsize=2)
def _magnitudes(codebook: Codebook) -> np.ndarray:
    counts = codebook.counts
    random = np.random.RandomState(codebook.seed)
    rows = np.empty((codebook.size, len(counts)), dtype=np.float32)
    for row in rows:
        draws = _sorted_draws(codebook, random)
        if not draws[-1] < _LARGEST:
            raise ValueError(
                f"codewords of {codebook.distribution!r} cannot be priced or encoded with: their norm is beyond all floats. They are "
                "scaled to norm 1 whatever the distribution's size, so write a smaller one"
            )
        row[:] = _unit_norm(draws, counts)
    rows.setflags(write=False)
    return rows


def _sorted_draws(codebook: Codebook, random: np.random.RandomState) -> np.ndarray:
    """The run-wise largest of `weights` magnitudes drawn from the distribution and sorted.

    The order statistics of n uniform draws are the partial sums of n + 1 exponential variables over their total (Renyi
    1953); between the largest of one run and that of the next lie as many exponentials as the run has weights, whose
    sum is a Gamma variable. Summed from the top, so that the smallest tail probabilities keep their digits.
    """
    gaps = np.append(1.0, codebook.counts[:0:-1].astype(float))
    sums = np.cumsum(random.standard_gamma(gaps))
    tails = sums / (sums[-1] + random.standard_gamma(float(codebook.counts[0])))
    magnitudes = codebook.distribution.upper_quantile(tails / 2)[::-1]
    return np.where(magnitudes < _SMALLEST, 0.0, magnitudes)


def _unit_norm(magnitudes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Scaled to l2 norm 1 and rounded to float32, the norm of the result at most 1."""
    norm = np.sqrt((magnitudes**2 * counts).sum())
    if norm == 0:
        return magnitudes.astype(np.float32)
    scaled = (magnitudes / norm).astype(np.float32)
    excess = np.sqrt((scaled.astype(float) ** 2 * counts).sum())
    return (scaled * (1 - 2.0**-22)).astype(np.float32) if excess > 1 else scaled
