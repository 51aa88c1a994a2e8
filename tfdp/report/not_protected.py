"""What no claim covers: a list that belongs to every statement."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tfdp.accounting import FitRecord, GaussianOnGridEvent, Ledger, Watcher
from tfdp.report.facts import Facts


@dataclasses.dataclass(frozen=True)
class Limit:
    """Something that is not covered. `id` is for machines and never changes, `text` is for people."""

    id: str
    text: str


_ALWAYS = (
    Limit("training_metrics", "Training metrics and logs (loss, accuracy, History): they carry no noise."),
    Limit(
        "searches",
        "Hyperparameter search and sibling runs on the same records. tfdp.accounting.Ledger.combined adds up their ledgers.",
    ),
    Limit("preprocessing", "Preprocessing fitted on the records (Normalization.adapt, vocabularies)."),
    Limit("validation", "Validation records: they pay nothing, and anything chosen by them reveals them."),
    Limit(
        "earlier_training",
        "Earlier training: this covers training since the private optimizer was first compiled in. Weights that had been "
        "trained on the same records before, or were set by hand, are not in it.",
    ),
    Limit(
        "example_independence",
        "Models that mix examples in a way the check before the first step did not find: it is a test, not a proof.",
    ),
    Limit(
        "pseudo_random_noise",
        "Whoever can invert the generators: Philox makes the noise, NumPy's PCG64 the lots, both seeded by the "
        "operating system's entropy. They are pseudo-random, not cryptographic.",
    ),
    Limit(
        "float32_sums",
        "Rounding of float32 sums: as measured, it adds up to about lot size * 2^-23 clips to what one record moves (with AdaClip "
        "eleven times as much); in theory it could be far more.",
    ),
)
_LAST_BITS = Limit(
    "floating_point_noise",
    "Attacks on the last bits of floating-point noise (Mironov 2012): grid=True of the noisy optimizers leaves nothing to them.",
)
_NOT_FINITE = Limit("non_finite_examples", "optimizer.non_finite_examples, a diagnostic count: it carries no noise.")
_EVERYTHING = Limit("everything", "Everything: no privacy is claimed for this training.")
_UNPROVEN = Limit("everything", "Everything: nothing is proven of this training.")


def limits_of(facts: Facts) -> tuple[Limit, ...]:
    if facts.not_private or facts.nothing_is_known:
        return (_UNPROVEN if facts.published else _EVERYTHING,)
    diagnostics = (_NOT_FINITE,) if facts.counts_not_finite else ()
    on_grid = all(type(line.event) is GaussianOnGridEvent for line in facts.ledger if line.steps)
    last_bits = () if on_grid and facts.ledger.steps else (_LAST_BITS,)
    return (*_number_of_steps(facts), *_callbacks(facts.fits), *_ALWAYS, *last_bits, *diagnostics)


def _number_of_steps(facts: Facts) -> Iterator[Limit]:
    """A plan that was fixed beforehand is taken for granted where no callback is known to have changed it."""
    calls = sum(record.fits for record in facts.fits if record.steps)
    if calls > 1:
        yield Limit(
            "number_of_fits",
            f"The choice to call fit again ({calls} calls): their number counts as planned, not as chosen by looking.",
        )
    planned = Ledger.covering(facts.ledger, *(record.planned for record in facts.fits))
    left = planned.steps - facts.priced.steps
    if left > 0:
        yield Limit(
            "ended_early",
            f"The choice to stop: training ended {left:,} steps before its plan, by hand or by an error. If it was by "
            "looking at results, those steps have to be paid for as well.",
        )


def _callbacks(fits: tuple[FitRecord, ...]) -> Iterator[Limit]:
    watchers = dict.fromkeys(watcher for record in fits for watcher in record.watchers)
    for watcher in sorted(watchers, key=str):
        yield Limit("callback", _of_callback(watcher))


def _of_callback(watcher: Watcher) -> str:
    if watcher.action == "unknown":
        return (
            f"{watcher.callback}, a callback that tfdp can't see into. It was handed the metrics; if it acted on those of "
            "training records, the claims do not hold."
        )
    of = "training records" if watcher.saw_training_records else "validation records, which that choice reveals"
    return f"{watcher.callback}: it {watcher.action} by {watcher.metric or 'a metric that is not known'}, a metric of {of}."
