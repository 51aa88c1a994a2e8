"""BudgetStopping: training ends before the step that would exceed the budget."""

import math

from tfdp.accounting import Budget, NotPrivateEvent
from tfdp.accounting.claims import rounded_up
from tfdp.callbacks.privacy_logger import PrivacyLogger


class BudgetStopping(PrivacyLogger):
    """Stops training at a budget: never one step past it.

    The last step that keeps to the budget is computed before the first one is taken, from all that the model's ledger holds
    and from what this fit is about to release. Beyond it the private step itself refuses, so nothing gets through with
    ``steps_per_execution`` or after a resume; then training ends, in the middle of an epoch if need be. A budget that is spent
    already means no step at all (training metrics of that epoch are NaN). If nothing was released before and not one step fits, fit
    raises. ``epsilon`` is written into the logs of every epoch,
    as by ``PrivacyLogger``.

    Guarantee: when fit returns, ``tfdp.accounting.epsilon(model.optimizer.ledger, delta=delta, accountant=accountant)`` is at
    most ``target_epsilon``, unless it was above before. With ``accountant="rdp"`` it is a privacy filter (Feldman and Zrnic
    2021): its order is fixed before the first step, and what is kept to holds even if the settings of later fits are chosen by
    looking at the results of earlier ones.

    Example:

    >>> model.compile(optimizer=tfdp.NoisyAdam(1e-3, l2_norm_clip=1.0, noise_multiplier=1.1), loss="mse")  # 60,000 records
    >>> stop = tfdp.callbacks.BudgetStopping(target_epsilon=3.0, delta=1e-5)
    >>> history = model.fit(x, y, batch_size=256, epochs=1000, callbacks=[stop])
    BudgetStopping: ended after 21362 of 235000 planned steps: one more would cost more than epsilon 3 at delta 1e-05, pld.
    >>> history.history["epsilon"][-1] <= 3.0
    True

    Args:
        target_epsilon: the largest epsilon that may be spent, over everything that the model was trained with.
        delta: the delta it is meant at; well below 1 / (number of records).
        accountant: "pld" (tight), "rdp" (a privacy filter), "moments", or "gdp" (approximate: the true epsilon can be larger).
        verbose: 0 says nothing; the reason is in ``stopped_because`` all the same.
    """

    def __init__(self, target_epsilon: float, delta: float, accountant: str = "pld", verbose: int = 1):
        super().__init__(delta, accountant)
        self.budget = Budget(target_epsilon, delta, accountant)
        self._spending = self.budget
        self.verbose = verbose
        self.stopped_because: str | None = None

    @property
    def target_epsilon(self) -> float:
        return self.budget.target_epsilon

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self.stopped_because = None

    def on_epoch_begin(self, epoch, logs=None):
        """Raises ValueError if the budget is too small for the first step of all."""
        run, book = self.training.run, self.training.optimizer.book
        if run.keep_within(self.budget) > run.began_at or run.planned_end == run.began_at or book.steps:
            return
        cost = self.budget.epsilon(run.first_step())
        if math.isinf(cost):
            raise ValueError(f"Nothing was trained, because not one step fits: {self._reason()}.")
        raise ValueError(
            f"Nothing was trained, because not one step fits the budget of epsilon {self.target_epsilon:g} at delta {self.delta:g} "
            f"({self.accountant}): the first one alone costs {rounded_up(cost)}. Give the optimizer target_epsilon= and delta= in place of "
            "noise_multiplier=, and fit finds the noise that its steps need. Or give it more noise, a smaller batch_size or a larger budget."
        )

    def on_train_end(self, logs=None):
        run = self.training.run
        if not run.settled:  # there was no epoch to run
            return
        last, released = run.keep_within(self.budget), run.book.released
        if last < run.planned_end and released >= last:
            taken, planned = released - run.began_at, run.planned_end - run.began_at
            self.stopped_because = f"ended after {taken} of {planned} planned steps: {self._reason()}."
            if self.verbose:
                print(f"{type(self).__name__}: {self.stopped_because}")

    def _reason(self) -> str:
        ledger, event = self.training.optimizer.ledger, self.training.run.event.at_worst
        priced = [line.event.at_worst for line in ledger if line.steps]
        lost = [event.reason for event in priced if isinstance(event, NotPrivateEvent)]
        if lost:
            return f"no budget can be kept, because the ledger's epsilon is infinite already ({'; '.join(dict.fromkeys(lost))})"
        because = f" ({event.reason})" if isinstance(event, NotPrivateEvent) else ""
        return f"one more would cost more than epsilon {self.target_epsilon:g} at delta {self.delta:g}, {self.accountant}{because}"
