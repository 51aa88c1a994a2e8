"""Which noise distorts least at the same privacy (Nasr et al. 2020, figure 6), in numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from tfdp.accounting import checks
from tfdp.accounting.budgets import Budget
from tfdp.accounting.codebooks import Codebook
from tfdp.accounting.events import EncodedEvent
from tfdp.accounting.largest_fitting import largest_fitting
from tfdp.accounting.ledger import Ledger
from tfdp.accounting.sampled_noise import sampled_noise_rdp
from tfdp.accounting.samplings import Poisson
from tfdp.noise import Noise

_LEAST, _MOST = 1e-4, 1e6


@dataclasses.dataclass(frozen=True)
class NoiseComparison:
    """A noise at the size at which it costs what was asked, and what it does to a gradient, in units of the clip.

    `l1` is the expected l1 norm of the noise over all weights, `l2` the root of its expected squared l2 norm; infinite for
    tails too heavy. `renyi_divergence` is that of one step at order 2.
    """

    noise: Noise
    l1: float
    l2: float
    renyi_divergence: float


def compare_noises(
    noises: Iterable[Noise],
    codebook: Codebook,
    *,
    sampling_rate: float = 1.0,
    renyi_divergence: float | None = None,
    target_epsilon: float | None = None,
    delta: float | None = None,
    steps: int | None = None,
    accountant: str = "rdp",
) -> list[NoiseComparison]:
    """Each noise, scaled to cost the same, with its expected distortion; the least l1 distortion first.

    Equal cost is either the same `renyi_divergence` of one step at order 2, as in the paper's figure 6, or the same
    `target_epsilon` at `delta` after `steps` steps. The sizes the noises come with do not matter. The cost is met within
    0.2 % and never exceeded.

    Example:
        >>> from tfdp.noise import Gaussian, Laplace
        >>> found = compare_noises([Laplace(1.0), Gaussian(1.0)], Codebook(100, size=2), renyi_divergence=1.0)
        >>> [type(each.noise).__name__ for each in found], round(found[0].noise.stddev, 2)
        (['Gaussian', 'Laplace'], 1.0)
    """
    rate = checks.sampling_rate(sampling_rate)
    if (renyi_divergence is None) == (target_epsilon is None):
        raise ValueError(
            "give exactly one of renyi_divergence (at order 2, of one step) and target_epsilon (with delta and steps)"
        )
    if target_epsilon is not None and (delta is None or steps is None):
        raise ValueError("target_epsilon goes with delta and steps: write delta=1e-5, steps=4688")
    found = []
    for noise in noises:
        if renyi_divergence is not None:
            scaled = _at_divergence(
                noise, codebook, rate, checks.positive("renyi_divergence", renyi_divergence, "write 1.0")
            )
        else:
            budget = Budget(target_epsilon, delta, accountant)
            multiplier = budget.noise_multiplier(
                Poisson(rate), steps, Ledger(), lambda m, noise=noise: EncodedEvent(noise.scaled(m), codebook)
            )
            scaled = noise.scaled(multiplier)
        found.append(_compared(scaled, codebook, rate))
    return sorted(found, key=lambda each: each.l1)


def _at_divergence(noise: Noise, codebook: Codebook, rate: float, target: float) -> Noise:
    def cost(precision: float) -> float:
        return float(sampled_noise_rdp(noise.scaled(1 / precision), codebook, rate, [2])[0])

    precision = largest_fitting(
        cost, target, 1 / noise.unit, least=1 / _MOST / noise.unit, most=1 / _LEAST / noise.unit, close_enough=0.002
    )
    if precision == 0:
        raise ValueError(f"no size of {noise!r} keeps its Renyi divergence of order 2 within {target:g}: raise it")
    return noise.scaled(1 / precision)


def _compared(noise: Noise, codebook: Codebook, rate: float) -> NoiseComparison:
    return NoiseComparison(
        noise,
        l1=codebook.weights * noise.mean_absolute,
        l2=math.sqrt(codebook.weights * noise.variance),
        renyi_divergence=float(sampled_noise_rdp(noise, codebook, rate, [2])[0]),
    )
