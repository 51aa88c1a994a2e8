"""From a budget to a run: how much noise it needs, or how many steps it allows. Never more than the target is
spent."""

from __future__ import annotations

from collections.abc import Callable

from tfdp.accounting import checks, gdp
from tfdp.accounting.accountants import epsilon
from tfdp.accounting.budgets import Budget, most_steps
from tfdp.accounting.events import Event, GaussianEvent
from tfdp.accounting.ledger import Ledger
from tfdp.accounting.samplings import Poisson, Sampling

_MOST_STEPS = 10**9
_NOTHING = Ledger()


def noise_multiplier(
    *,
    target_epsilon: float,
    delta: float,
    steps: int,
    sampling_rate: float | None = None,
    sampling: Sampling | None = None,
    accountant: str = "pld",
    spent: Ledger = _NOTHING,
    event: Callable[[float], Event] = GaussianEvent,
) -> float:
    """The noise multiplier with which `steps` Gaussian releases keep to the budget.

    Guarantee: with it, `epsilon` of the run (after what was `spent`) is at most `target_epsilon`, and at least
    99.8 % of it unless the accountant's epsilon jumps over that (the Renyi conversion jumps to 0). Where the
    budget does not bind (a record is hardly ever seen), 0.001 is returned, the least noise considered.

    Args:
        target_epsilon: the largest epsilon allowed at the end.
        delta: the delta it is meant at.
        steps: how many steps the run takes.
        sampling_rate: of Poisson lots. For any other sampling leave it out and give `sampling`.
        sampling: how records are chosen, where it is not Poisson by rate alone.
        accountant: "pld", "rdp", "moments" or "gdp".
        spent: what the same records have already paid for.
        event: makes a release of a multiplier, where it is not Gaussian: `lambda m: EncodedEvent(noise.scaled(m), codebook)`.

    Example:
        >>> sigma = noise_multiplier(target_epsilon=3.0, delta=1e-5, sampling_rate=256 / 60000, steps=4688)
        >>> 0.75 < sigma < 0.77
        True
    """
    budget = Budget(target_epsilon, delta, accountant)
    return budget.noise_multiplier(_one_of(sampling_rate, sampling), steps, spent, event)


def max_steps(
    *,
    target_epsilon: float,
    delta: float,
    sampling_rate: float,
    noise_multiplier: float,
    accountant: str = "pld",
) -> int:
    """How many Poisson-sampled Gaussian steps the budget allows: so many fit, one more does not.

    Example:
        >>> max_steps(target_epsilon=2.0, delta=1e-5, sampling_rate=256 / 60000, noise_multiplier=1.1)
        10206
    """
    event, sampling = GaussianEvent(noise_multiplier), Poisson(sampling_rate)
    return max_more_steps(_NOTHING, event, sampling, target_epsilon=target_epsilon, delta=delta, accountant=accountant)


def max_more_steps(
    ledger: Ledger,
    event: Event,
    sampling: Sampling,
    *,
    target_epsilon: float,
    delta: float,
    accountant: str = "pld",
) -> int:
    """How many further releases of `event` under `sampling` the budget allows after what `ledger` holds.

    Guarantee: `epsilon` of the ledger with that many further steps is at most `target_epsilon`, with one more
    step it is above. 0 if not even one step fits, or the budget is already overspent.
    """
    budget = Budget(target_epsilon, delta, accountant)
    steps = most_steps(budget, ledger, event, sampling, at_most=_MOST_STEPS)
    if steps >= _MOST_STEPS:
        raise ValueError(
            f"target_epsilon {budget.target_epsilon:g} at delta {budget.delta:g} allows more than {_MOST_STEPS:,} steps: "
            "it does not bind; lower target_epsilon or noise_multiplier, raise sampling_rate, or set the number of steps yourself"
        )
    return steps


def gdp_noise_multiplier(*, noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    """sigma~ of Bu et al. 2019, eqs. 7 and 8: its central-limit epsilon is the moments epsilon of
    `noise_multiplier`.

    Less noise for the same number, but a number of another kind: the moments epsilon is proven, the
    central-limit epsilon an approximation below the truth. Price the result with `epsilon` before relying on
    it.

    Example:
        >>> rate = 256 / 60000
        >>> round(gdp_noise_multiplier(noise_multiplier=1.3, sampling_rate=rate, steps=4688, delta=1e-5), 2)
        1.06
    """
    delta = checks.delta(delta)
    steps = checks.count("steps", steps, "write how many steps the run takes", at_least=1)
    if checks.noise_multiplier(noise_multiplier) == 0:
        raise ValueError("noise_multiplier must be above 0: without noise there is no epsilon to match")
    ledger = Ledger.poisson(sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=steps)
    target = epsilon(ledger, delta=delta, accountant="moments")
    return gdp.noise_for_mu(gdp.mu_for(target, delta), checks.sampling_rate(sampling_rate), steps)


def _one_of(sampling_rate: float | None, sampling: Sampling | None) -> Sampling:
    if (sampling_rate is None) == (sampling is None):
        raise ValueError(
            "give exactly one of sampling_rate and sampling: sampling_rate=256 / 60000 for Poisson lots, or "
            "a sampling "
            "such as FullBatch(60000)"
        )
    return Poisson(sampling_rate) if sampling is None else sampling
