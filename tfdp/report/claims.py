"""Which claims a training run gives: the rules, each with the argument it stands on.

1. Kinds of steps. The accountants compose steps whose settings are fixed beforehand, or chosen without looking at the
   records or at results. Steps of one kind (one line of the ledger) leave no setting to choose. With several kinds the
   composition is proven only on the caller's word, or through a filter (2.).
   Releases on a schedule (``tfdp.accounting.Schedule``) count as one kind with the steps they lie between: two lines, one
   plan. The plan is one infinite sequence of releases, fixed before its first: which of the two kinds the next one is, and
   with which noise, follows from how many there were. A run is a beginning of that sequence, so that, as with steps of one
   kind, nothing is left to choose but where it ends. ``Facts.on_one_schedule`` is true only where the ledger shows that:
   every release is described by a fit on that schedule, there are no other kinds, and their numbers are those of a beginning.
2. A filter. Every step was refused unless it kept to a limit that was fixed before the first one, at one Renyi order:
   proven whatever was chosen by looking at earlier releases (``tfdp.accounting.Budget``).
3. Callbacks on training metrics. These are computed from the records without noise. What acts on them brings something
   of the records into the run that no step paid for: neither 1. nor 2. is proven any more.
4. Callbacks on validation metrics compute with released weights and other records. What they choose among the weights is
   post-processing. Where they stop, the number of steps was chosen by looking at releases: ``Facts.priced``.
5. Noise without the last of its tails: delta is priced smaller by what each event says of its own
   (``tfdp.accounting.Event.missing_tails_delta``). Of an event that says nothing, nothing is proven.
6. Weights that had ordinary training before the first private step, which is legitimate on public records: the claims are of the
   private steps, on the caller's word that it was on other records, and say so.
7. What a paper claims of its own algorithm, and does not follow, is repeated beside what is proven, with the reason.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from tfdp.accounting import (
    Budget,
    FixedSize,
    Ledger,
    Line,
    MicrobatchedEvent,
    PublishedEvent,
    Report,
    Status,
    mutual_information_bound,
    report,
)
from tfdp.accounting.budgets import TAILS_SHARE
from tfdp.accounting.claims import MEMBERSHIP, Claim
from tfdp.accounting.published import claim_is_the_papers
from tfdp.report.facts import Facts

INFORMATION = "what all releases together say about the records (mutual information)"


def claims_of(facts: Facts, delta: float | None, settings_fixed_beforehand: bool) -> tuple[Claim, ...]:
    """All claims, the main one first. `delta` is None only where no claim depends on it."""
    ledger = facts.ledger
    if not ledger.steps and not facts.private_optimizer:
        reason = (
            "The model was not trained with a private optimizer of tfdp: no gradient was clipped, no noise was added."
        )
        return (_no_claim(facts, delta, (reason,)),)
    if not ledger.steps and facts.trained_before:
        reason = f"No private step was taken. {_ordinary(facts)} came before, and of that nothing is known."
        return (_no_claim(facts, delta, (reason,)),)
    if not ledger.steps:
        return (Claim(MEMBERSHIP, ledger.relation, 0.0, delta, None, Status.PROVEN, "nothing was released"),)
    if facts.not_private:
        return (_no_claim(facts, delta, facts.not_private), *_published(facts, delta))
    return _Claims(facts, delta, settings_fixed_beforehand).all()


def _no_claim(facts: Facts, delta: float | None, reasons: tuple[str, ...]) -> Claim:
    relation = facts.ledger.relation
    return Claim(MEMBERSHIP, relation, math.inf, delta, None, Status.NONE, "no bound is known", reasons)


class _Claims:
    """Of a run in which every step was noised."""

    def __init__(self, facts: Facts, delta: float, settings_fixed_beforehand: bool):
        self.facts, self.delta = facts, delta
        self.tails = facts.price_of_tails(facts.priced)
        self.watched = _watched(facts)
        self.chosen, self.attested = _chosen(facts, settings_fixed_beforehand)
        self.before = _before(facts)
        self.refusals: list[str] = []

    def all(self) -> tuple[Claim, ...]:
        priced = [claim for claim in map(self._accounted, ("pld", "rdp", "gdp")) if claim is not None]
        if not priced or math.isinf(priced[0].epsilon):
            refused = ("No accountant can price this run.", *dict.fromkeys(self.refusals))
            reasons = ("The noise is too small for any finite bound.",) if priced else refused
            return (_no_claim(self.facts, self.delta, reasons), *_published(self.facts, self.delta))
        main, *others = priced
        filters = [self._filtered(budget) for budget in _filters(self.facts)]
        return (main, *filters, *_published(self.facts, self.delta), *others, _information(main))

    def _delta_left(self) -> float:
        return self.delta - self.tails if self.tails < self.delta else self.delta

    def _accounted(self, accountant: str) -> Claim | None:
        """What the accountant says of the whole ledger; None if it can't price it."""
        try:
            found = report(self.facts.priced, delta=self._delta_left(), accountant=accountant)
        except ValueError as refusal:
            self.refusals.append(f"{str(refusal).rstrip('.')}.")
            return None
        doubts = self.chosen + self.watched + _unproven_tails(self.facts, self.facts.priced, self.delta)
        if found.status is not Status.PROVEN:
            doubts = ("The central limit theorem is no bound: the true epsilon can be larger.", *doubts)
        status = Status.APPROXIMATE if doubts else Status.PROVEN
        relation = self.facts.ledger.relation
        how, reasons = self._how(found), self.before + doubts + self.attested
        return Claim(MEMBERSHIP, relation, found.epsilon, self.delta, found.mu, status, how, reasons)

    def _how(self, found: Report) -> str:
        parts = [f"{found.accountant}: {found.how}"]
        planned, taken = self.facts.priced.steps, self.facts.ledger.steps
        if planned > taken:
            parts.append(f"priced at the {planned:,} steps that were planned, {taken:,} of which were taken")
        if 0 < self.tails < self.delta:
            parts.append(f"{self.tails:.2g} of delta pays for the noise's missing tails")
        return "; ".join(parts)

    def _filtered(self, budget: Budget) -> Claim:
        """Every step was held to the target at the delta that is left without the tails' share (``TAILS_SHARE``)."""
        doubts = self.watched + _unproven_tails(self.facts, self.facts.ledger, TAILS_SHARE * budget.delta)
        status = Status.APPROXIMATE if doubts else Status.PROVEN
        how = (
            f"filter: each step was held to target_epsilon={budget.target_epsilon:g} at Renyi order {budget.order:g}, fixed "
            "before the first one, so this holds whatever was chosen by looking at earlier releases; a ten-thousandth of "
            "delta pays for the noise's missing tails"
        )
        relation = self.facts.ledger.relation
        return Claim(MEMBERSHIP, relation, budget.target_epsilon, budget.delta, None, status, how, self.before + doubts)


def _unproven_tails(facts: Facts, ledger: Ledger, allowed: float) -> tuple[str, ...]:
    unknown = dict.fromkeys(map(_of_what, facts.without_a_price_of_tails(ledger)))
    if unknown:
        return tuple(f"What noise without the last of its tails costs is not derived for {what}." for what in unknown)
    price = facts.price_of_tails(ledger)
    if price < allowed:
        return ()
    return (
        f"The noise has an end (a Gaussian at 10.2 standard deviations), which costs {price:.2g} of delta, more than there is. Use more noise, "
        "fewer steps or a larger delta.",
    )


def _of_what(line: Line) -> str:
    if isinstance(line.sampling, FixedSize):
        return "lots of a fixed size"
    return f"the noise of {type(line.event).__name__} under {type(line.sampling).__name__} sampling"


def _ordinary(facts: Facts) -> str:
    times = facts.trained_before
    return f"Ordinary training ({times:,} {'call' if times == 1 else 'calls'} of fit or train_on_batch)"


def _before(facts: Facts) -> tuple[str, ...]:
    """Rule 6."""
    if not facts.trained_before:
        return ()
    return (
        f"This covers the private steps only. {_ordinary(facts)} of these weights came before: if it was on the same records, nothing is "
        "private.",
    )


_CURE = "Watch a metric of validation records, such as monitor='val_loss',"
_CURE_OF_NAME = "Give fit validation_data that holds other records, give no training metric such a name,"


def _watched(facts: Facts) -> tuple[str, ...]:
    """Rule 3. What a callback of unknown action did is not known either: it is listed, not judged."""
    acted = {
        (watcher.callback, watcher.action, watcher.metric)
        for record in facts.fits
        for watcher in record.watchers
        if watcher.saw_training_records and watcher.action != "unknown"
    }
    return tuple(
        f"{callback} {action} by {metric or 'a metric that is not known'}, which is computed from training records without "
        f"noise. {_CURE_OF_NAME if (metric or '').startswith('val_') else _CURE} or leave the callback out."
        for callback, action, metric in sorted(acted, key=str)
    )


def _chosen(facts: Facts, settings_fixed_beforehand: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rule 1: (doubts, what stands on the caller's word)."""
    kinds = sum(line.steps > 0 for line in facts.priced)
    if kinds < 2 or facts.on_one_schedule:
        return (), ()
    if settings_fixed_beforehand:
        said = f"the settings of all {kinds} kinds of steps were fixed beforehand, or chosen without looking"
        return (), (f"Declared by the caller: {said} at the records or at results.",)
    return (
        f"Settings changed between fits: there are {kinds} kinds of steps. This is proven only if they were fixed beforehand "
        "or chosen without looking at the records or at results: if so, say settings_fixed_beforehand=True. If not, train "
        'with target_epsilon= and accountant="rdp", a limit that holds whatever is chosen on the way.',
    ), ()


def _filters(facts: Facts) -> list[Budget]:
    """Rule 2: the budgets with a fixed order that every step of the ledger had to keep to."""
    if not facts.fits or sum(record.steps for record in facts.fits) != facts.ledger.steps:
        return []
    kept_by_all = [b for b in facts.fits[0].budgets if all(b in record.budgets for record in facts.fits)]
    return [b for b in kept_by_all if b.order is not None and b.epsilon(facts.ledger) <= b.target_epsilon]


def _published(facts: Facts, delta: float | None) -> Iterator[Claim]:
    """Rule 7: a claim about each line by itself, and the releases on its schedule; the papers know of no others. Only where what
    was run is what the paper claims it of."""
    ledger = facts.ledger
    for line in ledger:
        if not line.steps:
            continue
        if isinstance(line.event, PublishedEvent) and claim_is_the_papers(line):
            how, claimed = "the paper's own theorem, Xiang et al. 2021, theorem 1", line.event
            epsilon, delta_of_claim = claimed.claimed_epsilon, claimed.claimed_delta
        elif isinstance(line.event, MicrobatchedEvent) and delta is not None:
            how = "the paper's own theorem, Nasr et al. 2020, theorem 1"
            taken_for = Ledger((dataclasses.replace(line, event=line.event.claimed),))
            try:
                epsilon, delta_of_claim = report(taken_for, delta=delta, accountant="rdp").epsilon, delta
            except ValueError:  # lots of a fixed size, of which the paper says nothing
                continue
        else:
            continue
        reasons = (*_before(facts), line.event.reason)
        if ledger.steps > line.steps and not facts.on_one_schedule:
            reasons += (f"It is about {line.steps:,} of the {ledger.steps:,} steps alone.",)
        yield Claim(
            MEMBERSHIP, line.sampling.relation, epsilon, delta_of_claim, None, Status.AS_PUBLISHED, how, reasons
        )


def _information(main: Claim) -> Claim:
    nats = mutual_information_bound(main.epsilon)
    how = f"at most {nats:.4g} nats: theorem 2 of Xiang et al. 2021, with the epsilon of the first claim"
    reason = (
        "The theorem needs a delta of 0 for every two data sets, and this noise need not have a finite epsilon at that."
    )
    return Claim(INFORMATION, None, main.epsilon, 0.0, None, Status.AS_PUBLISHED, how, (reason,))
