"""What a fit has to tell when it ends: of gradients that were not finite, and of a proof that is lost."""

import contextlib
import warnings
from collections.abc import Iterator

from tfdp.accounting import FitRecord, Ledger, NotPrivateEvent
from tfdp.optimizers.private_optimizer import PrivateOptimizer


@contextlib.contextmanager
def told_at_the_end(optimizer: PrivateOptimizer, lot_size: int) -> Iterator[None]:
    """Around a fit. Warns of what the user could not see; says nothing of a fit that raised."""
    bad, steps, kinds = optimizer.non_finite_examples, optimizer.book.released, _kinds(optimizer)
    yield
    if bad is not None and optimizer.non_finite_examples > bad:
        drawn = (optimizer.book.released - steps) * lot_size
        _warn_of_gradients(optimizer.non_finite_examples - bad, drawn)
    if max(kinds, 1) < _kinds(optimizer) and not (_is_lost(optimizer.ledger) or _is_filtered(optimizer.fits)):
        _warn_of_settings()


def _kinds(optimizer: PrivateOptimizer) -> int:
    """How many kinds of steps there were. Releases between steps, on a schedule, make no kind of their own."""
    between = {record.schedule.kind for record in optimizer.fits if record.schedule is not None}
    return len({(line.event, line.sampling) for line in optimizer.ledger if line.steps} - between)


def _is_lost(ledger: Ledger) -> bool:
    """Whether nothing is claimed of the run, whatever its settings are."""
    events = [line.event.at_worst for line in ledger if line.steps]
    return any(isinstance(event, NotPrivateEvent) or getattr(event, "noise_multiplier", 1) == 0 for event in events)


def _is_filtered(fits: tuple[FitRecord, ...]) -> bool:
    """Whether one limit, fixed before the first step, held in all fits: it allows any choice of settings."""
    return any(b.order is not None and all(b in record.budgets for record in fits) for b in fits[0].budgets)


def _warn_of_gradients(count: int, drawn: int) -> None:
    warnings.warn(
        f"In this fit an example's gradient was not finite (NaN or infinite) {count:,} times; examples were drawn about {drawn:,.0f} "
        "times. Such an example adds nothing to its step: the model learns nothing from it, and the step costs as much privacy as any "
        "other. Look for NaN and infinite values in the data, or take a smaller learning rate. (This count carries no noise; "
        "private_logs=True leaves it out.)",
        stacklevel=2,
    )


def _warn_of_settings() -> None:
    warnings.warn(
        "This fit took steps with other settings than an earlier one (batch size, noise or number of records). Epsilon is now only "
        "approximate, and privacy_statement(model).epsilon is None: the settings may have been chosen by looking at results. If you had "
        "planned them beforehand, say so: tfdp.privacy_statement(model, settings_fixed_beforehand=True). To be free to choose, train from "
        'the first step on with target_epsilon=, delta= and accountant="rdp".',
        stacklevel=2,
    )
