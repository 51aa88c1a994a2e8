"""One call of fit: what is planned, within which budgets, and when that is settled."""

import bisect
import dataclasses
import math
from collections.abc import Callable

import keras

from tfdp.accounting import Budget, Event, Ledger
from tfdp.optimizers.full_pass import FullPass
from tfdp.optimizers.past import Calibration, OpenLine
from tfdp.optimizers.private_optimizer import PrivateOptimizer


class Run:
    """Opens the ledger's line, finds the noise for a target and sets the limit of steps, before the first step.

    That is at the beginning of the first epoch that runs and not earlier: BackupAndRestore brings back weights, ledger and
    noise after fit has begun. Whenever a checkpoint is restored in the middle of fit, the step refuses (``Book.restore``)
    until everything was settled anew.

    All counts are of steps in this process (``Book.released``).
    """

    def __init__(
        self,
        optimizer: PrivateOptimizer,
        line: OpenLine,
        freeze: Callable[[], Event],
        steps_per_epoch: int,
        epochs: int,
        full_pass: FullPass | None = None,
    ):
        self.optimizer, self.book = optimizer, optimizer.book
        self._template, self._freeze = line, freeze
        self._steps_per_epoch, self._epochs = steps_per_epoch, epochs
        self.full_pass = full_pass
        self._restored_before = self._settled_at = self.book.times_restored
        self.settled = False
        self.event: Event = line.event
        self._kept: dict[Budget, int] = {}
        self.began_at = self.epoch_began_at = self.planned_end = self.limit = self.book.released

    def settle(self, epoch: int) -> None:
        """Called as each epoch begins, and when a checkpoint was restored in the middle of it.

        Raises:
            ValueError: the steps that are left would cost more than the optimizer's target.
        """
        self.epoch_began_at = self.book.released
        if self.is_settled:
            return
        self.settled, self._settled_at = True, self.book.times_restored
        planned = (self._epochs - epoch) * self._steps_per_epoch
        budgets, self._kept = list(self._kept), {}
        self.began_at = self.book.released
        self.planned_end = self.limit = self.began_at + planned
        budget = self.optimizer.budget
        if budget is not None:
            self._find_noise(budget, planned)
        self.event = self._freeze()
        schedule = self.full_pass and self.book.begun(self.full_pass.schedule())
        self.book.open(dataclasses.replace(self._template, event=self.event, planned=planned, schedule=schedule))
        if budget is not None:
            self._hold_to(budget, planned)
        for budget in budgets:  # of callbacks, if this is not the first time
            self.keep_within(budget)

    @property
    def is_settled(self) -> bool:
        return self.settled and self._settled_at == self.book.times_restored

    def keep_within(self, budget: Budget) -> int:
        """No step past the budget. Returns the count of released steps at which it ends."""
        if budget not in self._kept:
            self._kept[budget] = self.book.released + self.book.keep_within(budget)
            self.limit = self.book.limit
        return self._kept[budget]

    def first_step(self) -> Ledger:
        """What one step of this fit releases by itself, with the scheduled release that comes before it."""
        ledger, schedule = Ledger(), self.full_pass and self.full_pass.schedule()
        if schedule:
            ledger = ledger.record(schedule.event, schedule.sampling, 1)
        return ledger.record(self.event, self._template.sampling, 1)

    @property
    def is_cut_short(self) -> bool:
        return self.limit < self.planned_end

    def release_if_due(self, batch: int) -> None:
        """The scheduled release that comes before this batch of the epoch, if there is one."""
        # The variables are read only where it may be: batches that were refused took no step.
        if self.full_pass is not None and self.epoch_began_at + batch >= self.book.due_at:
            self.full_pass.release()

    def _find_noise(self, budget: Budget, planned: int) -> None:
        """Once; from the first step with it on it is the same noise, in this process or in another."""
        mechanism, full, book = self.optimizer.mechanism, self.optimizer.mechanism.full_gradient, self.book
        if book.calibration is None or book.calibration.began_at == book.steps:
            spent = book.read().ledger
            own = spent
            if full is not None:
                own = self.full_pass.calibrate(full, budget, planned).recorded(spent, planned)
            mechanism.calibrate(budget, self._template.sampling, planned, spent=own)
            found = (mechanism.noise_multiplier, spent.steps, own.steps + planned)
            book.calibration = Calibration(*found, None if full is None else full.noise_multiplier)
        else:
            mechanism.noise_multiplier = book.calibration.noise_multiplier
            if full is not None:
                full.noise_multiplier = book.calibration.full_gradient_noise_multiplier

    def _hold_to(self, budget: Budget, planned: int) -> None:
        book, own = self.book, self.optimizer.mechanism.has_own_accounting
        releases = book.calibration.last_step - book.steps
        left = bisect.bisect_right(range(planned + 1), releases, key=book.planned_releases) - 1
        # A claim of its own is about so many steps; no accountant could say more.
        more = max(min(planned, left), 0) if own else self.keep_within(budget) - book.released
        if book.times_restored > self._restored_before and planned - left <= self._steps_per_epoch:
            # An epoch that was broken off is run again from its start: steps beyond the plan are not taken.
            book.allow(max(min(more, left), 0))
            self.limit = book.limit
        elif more < planned:
            book.allow(0)
            raise ValueError(
                f"This fit plans {planned} steps, of which {more} {_keep_to(budget, own)} after what was spent already, with "
                f"the noise that the first fit was given ({book.calibration.noise_multiplier:.4g}). Plan fewer epochs or "
                "steps_per_epoch (to go on with a fit that was broken off, give initial_epoch), or compile with a new "
                "optimizer that has a larger target_epsilon; the model keeps its ledger."
            )


def _keep_to(budget: Budget, own_accounting: bool) -> str:
    target = f"target_epsilon={budget.target_epsilon:g} at delta={budget.delta:g}"
    if own_accounting:
        return f"are left of those for which the paper claims {target}"
    return f"keep to {target} ({budget.accountant})"


class Opening(keras.callbacks.Callback):
    """Comes before all other callbacks, so that they see a run whose limits are settled, and ends one that reached them."""

    async_safe = True

    def __init__(self, begin_epoch: Callable[[int], Run], end_epoch: Callable[[], None]):
        super().__init__()
        self._begin_epoch, self._end_epoch = begin_epoch, end_epoch
        self._run: Run | None = None
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._run = epoch, self._begin_epoch(epoch)

    def on_train_batch_begin(self, batch, logs=None):
        if not self._run.is_settled:
            self._begin_epoch(self._epoch)
        self._run.release_if_due(batch)

    def on_train_batch_end(self, batch, logs=None):
        run = self._run
        # The variable is read only where the end is near: reading it waits for the step.
        if run.is_cut_short and run.epoch_began_at + batch + 1 >= run.limit and run.book.released >= run.limit:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        self._end_epoch()
        if logs and self._run.book.released == self._run.epoch_began_at:
            # Keras's metrics say 0 of what they never saw.
            logs.update({name: math.nan for name in logs if not name.startswith("val_")})
