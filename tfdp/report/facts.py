"""What is known of a model's training, as plain data: all that claims are made from."""

from __future__ import annotations

import dataclasses
import functools
import math

import keras

from tfdp.accounting import (
    Event,
    FitRecord,
    GaussianEvent,
    Ledger,
    Line,
    MicrobatchedEvent,
    NotPrivateEvent,
    PublishedEvent,
)
from tfdp.accounting.exposure import trained_before
from tfdp.accounting.fit_records import on_schedule
from tfdp.optimizers import PrivateOptimizer, hook


@dataclasses.dataclass(frozen=True)
class Facts:
    """The training of one model.

    Attributes:
        ledger: what was released.
        fits: the circumstances of the fits that wrote the ledger.
        model_weights: how many numbers the model holds.
        delta: the one that the optimizer was given.
        private_optimizer: whether one is compiled in.
        counts_not_finite: whether the optimizer counts examples whose gradients were not finite.
        ordinary_before: how many times the model's weights were trained in another way before private training.
    """

    ledger: Ledger
    fits: tuple[FitRecord, ...] = ()
    model_weights: int = 0
    delta: float | None = None
    private_optimizer: bool = True
    counts_not_finite: bool = False
    ordinary_before: int = 0

    @property
    def size(self) -> int | None:
        """The number of records, the largest of the lines'; None if no line knows it."""
        sizes = [line.sampling.size for line in self.ledger if getattr(line.sampling, "size", None)]
        return max(sizes, default=None)

    @property
    def trained_before(self) -> int:
        """How many times the weights were trained in another way before, by the model or by what its fits knew."""
        return max([self.ordinary_before, *(record.trained_before for record in self.fits)])

    @property
    def nothing_is_known(self) -> bool:
        """Whether all training that there was, if any, was not private."""
        return not self.ledger.steps and (not self.private_optimizer or self.trained_before > 0)

    @property
    def weights(self) -> int:
        """At least as many numbers as got noise in any step: steps that no fit describes may be of all the model's."""
        described = sum(record.steps for record in self.fits)
        undescribed = [self.model_weights] if described < self.ledger.steps else []
        return max([record.weights for record in self.fits] + undescribed, default=0)

    @property
    def not_private(self) -> tuple[str, ...]:
        """Why lines of the ledger have no price; empty if all have one."""
        reasons = (_why_not_private(line.event) for line in self.ledger if line.steps)
        return tuple(reason for reason in reasons if reason is not None)

    @property
    def published(self) -> bool:
        """Whether a paper claims something of a line."""
        return any(line.steps and isinstance(line.event, PublishedEvent | MicrobatchedEvent) for line in self.ledger)

    @functools.cached_property
    def priced(self) -> Ledger:
        """The ledger, or what was planned if that is more and a callback may have had a hand in it.

        Whether to go on, or which of the weights in between became the model, was then decided by looking at results. The
        run that takes all planned steps reveals at least as much as one that stops, or hands out one of its checkpoints:
        what was seen, and where, can be computed from it.
        """
        return Ledger.covering(self.ledger, *(record.planned for record in self.fits if _may_have_been_chosen(record)))

    @functools.cached_property
    def on_one_schedule(self) -> bool:
        """Whether the ledger is a beginning of one plan: steps of one kind, and releases between them on one schedule."""
        schedule = self.fits[0].schedule if self.fits else None
        kinds = {(line.event, line.sampling) for line in self.priced if line.steps}
        if schedule is None or len(kinds) != 2 or schedule.kind not in kinds:
            return False
        steps, releases = on_schedule(self.fits, schedule)
        scheduled = sum(line.steps for line in self.ledger if (line.event, line.sampling) == schedule.kind)
        described = (steps + releases, releases) == (self.ledger.steps, scheduled)
        return described and schedule.begins_with(steps, releases)

    def price_of_tails(self, ledger: Ledger) -> float:
        """What it costs in delta that the noise has an end, over all steps of `ledger` of which that is known."""
        return sum(line.missing_tails_delta(self.weights) or 0.0 for line in ledger)

    def without_a_price_of_tails(self, ledger: Ledger) -> tuple[Line, ...]:
        """The lines of which it is not known: nothing is proven of them."""
        return tuple(line for line in ledger if line.missing_tails_delta(self.weights) is None)


def _may_have_been_chosen(record: FitRecord) -> bool:
    actions = {watcher.action for watcher in record.watchers}
    return record.steps > 0 and bool(actions & {"stops training", "chooses weights", "unknown"})


def _why_not_private(event: Event) -> str | None:
    event = event.at_worst
    if isinstance(event, NotPrivateEvent):
        return event.reason
    if isinstance(event, GaussianEvent) and event.noise_multiplier == 0:
        return "gradients were released without noise"
    return None


def facts_of(model: keras.Model | PrivateOptimizer) -> Facts:
    """Of a model: everything the model object was trained with. Of an optimizer: what its ledger says."""
    if isinstance(model, PrivateOptimizer):
        return _with_optimizer(Facts(model.ledger, model.fits, _count(model._trainable_variables)), model)
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"privacy_statement takes a keras.Model, or a private optimizer of tfdp, not {type(model).__name__}. For planned "
            "settings use tfdp.accounting.report(Ledger.poisson(...), delta=...)."
        )
    facts = Facts(
        hook.ledger_of(model),
        hook.fits_of(model),
        _count(model.weights),
        private_optimizer=False,
        ordinary_before=trained_before(model.weights),
    )
    training = hook.training_of(model)
    return facts if training is None else _with_optimizer(facts, training.optimizer)


def _with_optimizer(facts: Facts, optimizer: PrivateOptimizer) -> Facts:
    return dataclasses.replace(
        facts, private_optimizer=True, delta=optimizer.delta, counts_not_finite=not optimizer.private_logs
    )


def _count(variables: list[keras.Variable]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)
