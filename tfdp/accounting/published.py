"""How much noise a paper's own formula finds for its own target: Xiang et al. 2021, section 4.3."""

from __future__ import annotations

import math

from tfdp.accounting import checks
from tfdp.accounting.ledger import Line
from tfdp.accounting.samplings import Poisson


def published_tau(epsilon: float, delta: float, steps: int) -> float:
    """The bound of constraint (8): `tau = 2 (epsilon + ln(delta) / beta) / (k (1 + beta))` for k steps.

    beta is the best positive integer. `delta` may be 1 or more, where the paper divides it by the sampling rate.

    With L = -ln(delta) > 0, tau grows with beta up to `(L + sqrt(L^2 + epsilon L)) / epsilon` and falls from there on.
    """

    def tau(beta: int) -> float:
        return 2 * (epsilon + math.log(delta) / beta) / (steps * (1 + beta))

    missing = max(-math.log(delta), 0.0)
    best = max(math.floor((missing + math.sqrt(missing**2 + epsilon * missing)) / epsilon), 1)
    return max(tau(best), tau(best + 1))


def published_noise_multiplier(epsilon: float, delta: float, sampling_rate: float, steps: int) -> float:
    """Noise in units of the clip, equal in all coordinates (w = 1): `1 / sqrt(tau)` at epsilon / q and delta / q.

    Dividing both by the sampling rate q is how the paper accounts for sampling.

    Example:
        >>> round(published_noise_multiplier(1.0, 1e-5, 512 / 55000, 60 * 55000 // 512), 2)
        8.0
    """
    epsilon, delta = checks.target_epsilon(epsilon), checks.delta(delta)
    rate = checks.sampling_rate(sampling_rate)
    steps = checks.count("steps", steps, "write how many steps the run takes", at_least=1)
    return 1 / math.sqrt(published_tau(epsilon / rate, delta / rate, steps))


def claim_is_the_papers(line: Line) -> bool:
    """Whether the paper's own formula, for the lots and the number of steps that were run, asks for no more noise than there was.

    If not (more steps than were planned, lots of another rate, noise found for another target), the paper claims nothing of
    this line.
    """
    event, sampling = line.event, line.sampling
    if event.published_noise is None:
        return True
    if not isinstance(sampling, Poisson):
        return False
    epsilon, delta = event.share * event.claimed_epsilon, event.share * event.claimed_delta
    needed = published_noise_multiplier(epsilon, delta, sampling.sampling_rate, line.steps)
    return needed <= event.published_noise * (1 + 1e-9)
