"""A budget that is fixed before training: what it allows, and how much noise it needs. Never more than the target is
spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tfdp.accounting import accountants, checks, gdp, rdp
from tfdp.accounting.events import Event, GaussianEvent
from tfdp.accounting.largest_fitting import largest_fitting
from tfdp.accounting.ledger import Ledger, Line
from tfdp.accounting.samplings import FixedSize, Poisson, Sampling
from tfdp.accounting.schedules import Schedule

# The noise that is added ends at 10.2 standard deviations, which costs a little delta besides the Gaussian's
# (tfdp.accounting.finite_support_delta). A filter sets this share of its delta apart for it, so that its target is the
# epsilon of the whole at the whole delta. A constant, because the price itself depends on how many steps are taken with
# which noise, and these may be chosen by looking at releases: a run that would pay more has no proven claim.
TAILS_SHARE = 1e-4

_LEAST_NOISE, _MOST_NOISE = 1e-3, 1e9
# Noise is found for a little less than the target: what a statement adds for missing tails is still within it.
_ROOM_FOR_TAILS = 1e-9
_MANY_STEPS = 1e9


@dataclasses.dataclass(frozen=True)
class Budget:
    """At most `target_epsilon` at `delta`, as `accountant` counts.

    With an `order` ("rdp" only) it is a privacy filter (Feldman and Zrnic 2021, arXiv:2008.11193). Guarantee: fix
    order, target and delta before the first step, and take a step only if `epsilon` of the ledger with it is at most
    the target. Then the whole interaction is (target_epsilon, (1 - TAILS_SHARE) delta)-differentially private with
    exact Gaussian noise, and (target_epsilon, delta)-differentially private if the tails that the noise has not cost at
    most TAILS_SHARE delta: even if noise, sampling rate and number of the steps are chosen by looking at earlier
    releases.

    The argument: let r_1, r_2, ... be the steps' Renyi divergences at the order a, each given what was released
    before it, and P / Q the likelihood ratio of all releases so far on two neighbouring data sets. The mean under Q
    of (P / Q)^a exp(-(a - 1) (r_1 + ... + r_t)) starts at 1 and never grows, because each r_t is fixed by the past
    when its step is taken. The conversion to epsilon grows with the sum, so the rule keeps r_1 + r_2 + ... within one
    bound r, the largest that converts to the target: the whole has a divergence of at most r. The argument needs the
    one order: which of several is the best in hindsight is itself learnt from the releases.

    Example:
        >>> budget = Budget(2.0, 1e-5)
        >>> budget.steps_that_fit(Ledger(), GaussianEvent(1.1), Poisson(256 / 60000), planned=14062)
        10206
    """

    target_epsilon: float
    delta: float
    accountant: str = "pld"
    order: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "target_epsilon", checks.target_epsilon(self.target_epsilon))
        object.__setattr__(self, "delta", checks.delta(self.delta))
        accountants.named_accountant(self.accountant)
        if self.order is None:
            return
        if self.accountant != "rdp":
            raise ValueError(f"order={self.order!r} goes with accountant='rdp' only, not with {self.accountant!r}")
        advice = "write a Renyi order above 1, such as 8.0, or leave it out and call as_filter"
        order = checks.real("order", self.order, advice)
        if order <= 1:
            raise ValueError(f"order must be above 1, got {self.order!r}: {advice}")
        object.__setattr__(self, "order", order)

    def epsilon(self, ledger: Ledger) -> float:
        """What the ledger has spent of it; with an `order`, by the conversion at this order only, at the delta that is
        left when the tails' share is set apart."""
        if self.order is not None and ledger.steps:
            return rdp.report(ledger, self._without_tails().delta, (self.order,)).epsilon
        return accountants.epsilon(ledger, delta=self.delta, accountant=self.accountant)

    def steps_that_fit(
        self, ledger: Ledger, event: Event, sampling: Sampling, planned: int, schedule: Schedule | None = None
    ) -> int:
        """The largest number of steps, up to `planned`, with which the budget is kept after `ledger`.

        With a `schedule`, together with the releases that it puts between them. `planned` itself is priced first, and
        nothing else if it fits. 0 if not even one step fits or the budget is already overspent.
        """
        planned = checks.count("planned", planned, "write how many steps training would take")
        if planned == 0:
            return 0
        if self.epsilon(_with_steps(ledger, event, sampling, planned, schedule)) <= self.target_epsilon:
            return planned
        return most_steps(self, ledger, event, sampling, at_most=planned - 1, schedule=schedule)

    def as_filter(
        self, ledger: Ledger, event: Event, sampling: Sampling, planned: int, schedule: Schedule | None = None
    ) -> Budget:
        """For "rdp", this budget with the order fixed at the one that is best for the plan; otherwise this budget.

        Guarantee: the filter allows exactly as many steps of the plan as the budget does with the best of all orders at
        (1 - TAILS_SHARE) delta. The order is fixed here: neither the plan nor what `ledger` holds may have been chosen by
        looking at releases.
        """
        if self.accountant != "rdp" or self.order is not None:
            return self
        left = self._without_tails()
        fitting = left.steps_that_fit(ledger, event, sampling, planned, schedule)
        # Where no step fits, the first step's order: it allows none either.
        whole = _with_steps(ledger, event, sampling, max(fitting, 1), schedule)
        return dataclasses.replace(self, order=rdp.report(whole, left.delta).order)

    def noise_multiplier(
        self, sampling: Sampling, steps: int, spent: Ledger, event: Callable[[float], Event] = GaussianEvent
    ) -> float:
        """The noise multiplier with which `steps` Gaussian releases keep to the budget after what was `spent`.

        For other releases `event` makes one of a multiplier, a larger one being less costly, such as
        `lambda m: EncodedEvent(noise.scaled(m), codebook)`.

        Guarantee: `epsilon` of all together is at most the target, for "rdp" also that of the filter which `as_filter` makes
        of this budget and these steps; and at least 99.8 % of it unless the accountant's epsilon jumps over that (the Renyi
        conversion jumps to 0). Where the budget does not bind (a record is hardly ever seen), 0.001 is returned, the least
        noise considered.
        """
        priced = self._without_tails() if self.accountant == "rdp" and self.order is None else self
        steps = checks.count("steps", steps, "write how many steps the run takes", at_least=1)
        if (already := priced.epsilon(spent)) > self.target_epsilon:
            raise ValueError(
                f"epsilon {already:.4g} of the target {self.target_epsilon:g} at delta {self.delta:g} is already spent: no "
                "noise can win it back; raise target_epsilon, or train no further on these records"
            )

        # The cost grows with the precision 1 / sigma of the releases.
        def cost(precision: float) -> float:
            return priced.epsilon(spent.record(event(1 / precision), sampling, steps))

        below = dataclasses.replace(self, target_epsilon=self.target_epsilon * (1 - 2 * _ROOM_FOR_TAILS))
        precision = largest_fitting(
            cost,
            self.target_epsilon * (1 - _ROOM_FOR_TAILS),
            1 / _first_guess(below, sampling, steps),
            least=1 / _MOST_NOISE,
            most=1 / _LEAST_NOISE,
            close_enough=0.002,
        )
        if precision == 0:
            raise ValueError(
                f"no noise multiplier up to {_MOST_NOISE:g} keeps epsilon within {self.target_epsilon:g} at delta "
                f"{self.delta:g} by the {self.accountant!r} accountant: raise target_epsilon or delta, take fewer steps, or "
                "use accountant='pld'"
            )
        return 1 / precision

    def _without_tails(self) -> Budget:
        return dataclasses.replace(self, delta=self.delta * (1 - TAILS_SHARE))


def most_steps(
    budget: Budget,
    ledger: Ledger,
    event: Event,
    sampling: Sampling,
    *,
    at_most: int,
    schedule: Schedule | None = None,
) -> int:
    """The search under `Budget.steps_that_fit` and `max_more_steps`: so many further steps fit, one more does not."""

    def cost(steps: float) -> float:
        return budget.epsilon(_with_steps(ledger, event, sampling, int(steps), schedule))

    if at_most == 0 or cost(0) > budget.target_epsilon:
        return 0
    guess = _guessed_steps(budget, event, sampling)
    return int(largest_fitting(cost, budget.target_epsilon, guess, least=1, most=at_most, whole=True))


def _with_steps(ledger: Ledger, event: Event, sampling: Sampling, steps: int, schedule: Schedule | None) -> Ledger:
    ledger = ledger.record(event, sampling, steps)
    return ledger if schedule is None else schedule.recorded(ledger, steps)


def _first_guess(budget: Budget, sampling: Sampling, steps: int) -> float:
    """The central limit theorem's noise multiplier: near enough to begin with."""
    rate, count, sensitivity = _as_poisson(sampling, steps)
    return sensitivity * gdp.noise_for_mu(gdp.mu_for(budget.target_epsilon, budget.delta), rate, count)


def _guessed_steps(budget: Budget, event: Event, sampling: Sampling) -> float:
    event = event.at_worst
    if not isinstance(event, GaussianEvent):
        return 1000.0
    rate, count, sensitivity = _as_poisson(sampling, 1000)
    one = gdp.gdp_mu(sampling_rate=rate, noise_multiplier=event.noise_multiplier / sensitivity, steps=1)
    mu = gdp.mu_for(budget.target_epsilon, budget.delta)
    return (mu / one) ** 2 * 1000 / count if one > mu * 1e-6 else _MANY_STEPS


def _as_poisson(sampling: Sampling, steps: int) -> tuple[float, int, float]:
    """(rate, releases, sensitivity in clips): what `steps` steps roughly amount to."""
    if isinstance(sampling, Poisson):
        return sampling.sampling_rate, steps, 1.0
    if isinstance(sampling, FixedSize):
        return sampling.batch_size / sampling.size, steps, 2.0
    return 1.0, Line(GaussianEvent(1.0), sampling, steps).passes or steps, 1.0
