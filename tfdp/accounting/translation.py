"""From a ledger's lines to dp-accounting's events: the one place that knows which release costs what.

A line is an (event, sampling) pair; the table below says, by their types, which `dp_accounting.DpEvent`
prices it and how often. The accountants know DpEvents, and `SampledNoise`, for which dp-accounting has none. A new
mechanism adds its rows to the table; a pair without a row is refused, never guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfdp.accounting.codebooks import Codebook
from tfdp.accounting.events import EncodedEvent, Event, GaussianEvent, NotPrivateEvent
from tfdp.accounting.ledger import Ledger, Line
from tfdp.accounting.samplings import FixedSize, FullBatch, Poisson, Sampling, Shuffled
from tfdp.noise import Noise

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclasses.dataclass(frozen=True)
class SampledNoise:
    """Noise of any family on a sum of vectors that lie under codewords, Poisson-sampled (`sampled_noise`)."""

    noise: Noise
    codebook: Codebook
    sampling_rate: float


@dataclasses.dataclass(frozen=True)
class Term:
    """`count` compositions of one release. Equal terms of a ledger are merged, in the order of first
    appearance."""

    event: DpEvent | SampledNoise
    count: int


def terms(ledger: Ledger) -> list[Term]:
    """What the accountants have to compose. Lines of no steps cost nothing and give no term."""
    counts: dict[DpEvent | SampledNoise, int] = {}
    for line in ledger:
        if line.steps:
            term = _term(line)
            counts[term.event] = counts.get(term.event, 0) + term.count
    return [Term(event, count) for event, count in counts.items()]


def is_sampled_gaussian(event: DpEvent | SampledNoise) -> bool:
    """Other noise has a noise multiplier too, of another meaning."""
    import dp_accounting

    sampled = isinstance(event, dp_accounting.PoissonSampledDpEvent)
    return sampled and isinstance(event.event, dp_accounting.GaussianDpEvent)


def _term(line: Line) -> Term:
    line = dataclasses.replace(line, event=line.event.at_worst)
    for event_type in type(line.event).__mro__:
        for sampling_type in type(line.sampling).__mro__:
            if rule := _RULES.get((event_type, sampling_type)):
                return rule(line)
    raise ValueError(
        f"no accountant prices {type(line.event).__name__} under {type(line.sampling).__name__} sampling: "
        "record the "
        "release as an event whose cost is known, or as NotPrivateEvent"
    )


# Between these the square of a noise multiplier neither underflows nor overflows. Less noise counts as none,
# more as the largest: both overstate the cost.
_LEAST_NOISE, _MOST_NOISE = 1e-100, 1e100


def _gaussian(noise_multiplier: float) -> DpEvent:
    import dp_accounting

    if noise_multiplier < _LEAST_NOISE:
        return dp_accounting.NonPrivateDpEvent()
    return dp_accounting.GaussianDpEvent(min(noise_multiplier, _MOST_NOISE))


def _poisson_gaussian(line: Line) -> Term:
    import dp_accounting

    inner = _gaussian(line.event.noise_multiplier)
    rate = line.sampling.sampling_rate
    if rate == 1 or isinstance(inner, dp_accounting.NonPrivateDpEvent):
        return Term(inner, line.steps)
    return Term(dp_accounting.PoissonSampledDpEvent(rate, inner), line.steps)


def _full_batch_gaussian(line: Line) -> Term:
    return Term(_gaussian(line.event.noise_multiplier), line.steps)


def _shuffled_gaussian(line: Line) -> Term:
    """A record takes part at most once a pass, the other batches of the pass do not depend on it."""
    return Term(_gaussian(line.event.noise_multiplier), line.passes)


def _fixed_size_gaussian(line: Line) -> Term:
    """Replacing a record moves the sum by up to 2 C, so that half the noise multiplier is left.

    dp-accounting wants it so: its without-replacement event follows Wang et al. 2019 (arXiv:1808.00087,
    theorem 27), where the noise multiplier is relative to the sensitivity under replacement.
    """
    import dp_accounting

    inner = _gaussian(line.event.noise_multiplier / 2)
    if isinstance(inner, dp_accounting.NonPrivateDpEvent) or line.sampling.batch_size == line.sampling.size:
        return Term(inner, line.steps)
    event = dp_accounting.SampledWithoutReplacementDpEvent(line.sampling.size, line.sampling.batch_size, inner)
    return Term(event, line.steps)


def _poisson_encoded(line: Line) -> Term:
    return Term(SampledNoise(line.event.noise, line.event.codebook, line.sampling.sampling_rate), line.steps)


def _full_batch_encoded(line: Line) -> Term:
    return Term(SampledNoise(line.event.noise, line.event.codebook, 1.0), line.steps)


def _shuffled_encoded(line: Line) -> Term:
    """As for the Gaussian: once a pass."""
    return Term(SampledNoise(line.event.noise, line.event.codebook, 1.0), line.passes)


def _fixed_size_encoded(line: Line) -> Term:
    raise ValueError(
        "no accountant prices EncodedEvent under FixedSize sampling: a replaced record moves the sum by the difference of "
        "two encoded vectors, which lies under no codeword; draw Poisson lots"
    )


def _not_private(line: Line) -> Term:
    import dp_accounting

    return Term(dp_accounting.NonPrivateDpEvent(), line.steps)


_RULES: dict[tuple[type[Event], type[Sampling]], Callable[[Line], Term]] = {
    (GaussianEvent, Poisson): _poisson_gaussian,
    (GaussianEvent, FullBatch): _full_batch_gaussian,
    (GaussianEvent, Shuffled): _shuffled_gaussian,
    (GaussianEvent, FixedSize): _fixed_size_gaussian,
    (EncodedEvent, Poisson): _poisson_encoded,
    (EncodedEvent, FullBatch): _full_batch_encoded,
    (EncodedEvent, Shuffled): _shuffled_encoded,
    (EncodedEvent, FixedSize): _fixed_size_encoded,
    (NotPrivateEvent, Sampling): _not_private,
}
