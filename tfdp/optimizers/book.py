"""What a private optimizer released, with the weights from the first step on: the ledger, its circumstances, and the limit."""

import dataclasses
import json

import keras
import tensorflow as tf

from tfdp.accounting import Budget, Event, FitRecord, Ledger, NotPrivateEvent, Poisson, Sampling, Watcher
from tfdp.accounting.fit_records import dumps, loads, with_record

NO_LIMIT = 2**63 - 1


class Untracked:
    """Keeps what must not be saved out of the sight of Keras's and TensorFlow's tracking of attributes."""

    def __init__(self, value):
        self.value = value


@dataclasses.dataclass(frozen=True)
class Past:
    """What was released before: the ledger, and the circumstances of the fits that wrote it."""

    ledger: Ledger = dataclasses.field(default_factory=Ledger)
    fits: tuple[FitRecord, ...] = ()

    def and_then(self, later: "Past") -> "Past":
        fits = self.fits
        for record in later.fits:
            fits = with_record(fits, record)
        return Past(Ledger.combined(self.ledger, later.ledger), fits)

    def with_unknown(self, event: Event, steps: int) -> "Past":
        """Releases that no fit of ours made."""
        return Past(self.ledger.record(event, Poisson(1.0, None), steps), self.fits)


@dataclasses.dataclass(frozen=True)
class OpenLine:
    """The fit that is running: what each of its steps releases, and what was planned."""

    event: Event
    sampling: Sampling
    planned: int
    weights: int
    steps_per_pass: int | None = None
    unchecked: tuple[str, ...] = ()
    watchers: tuple[Watcher, ...] = ()
    budgets: tuple[Budget, ...] = ()

    def passes(self, steps: int) -> int | None:
        return None if self.steps_per_pass is None else -(-steps // self.steps_per_pass)

    def ledger(self, steps: int) -> Ledger:
        return Ledger().record(self.event, self.sampling, steps, self.passes(steps)) if steps > 0 else Ledger()

    def past(self, steps: int, *, ended: bool) -> Past:
        """The line after so many steps. Once it has ended, what is left of the plan was not taken."""
        if steps == 0:
            return Past()
        not_taken = self.ledger(self.planned - steps) if ended else Ledger()
        record = FitRecord(steps, self.weights, 1, self.unchecked, self.watchers, self.budgets, not_taken)
        return Past(self.ledger(steps), (record,))


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The noise that was found for a target, and the counts of released steps between which it was meant."""

    noise_multiplier: float
    began_at: int
    last_step: int


class Book(tf.train.experimental.PythonState):
    """The ledger in the making: closed lines, and one that is open from some step on.

    ``steps`` is a variable of the optimizer, so it is saved wherever the weights are. ``limit`` is none: it belongs to one
    fit. The private step asks for ``may_step`` in its graph, so whatever calls it, no step is taken past the limit.

    Being a PythonState, the book is written into a ``tf.train.Checkpoint`` of the optimizer and read from it.
    """

    def __init__(self, steps: keras.Variable):
        self._steps = Untracked(steps)
        with tf.init_scope():
            self._limit = Untracked(tf.Variable(NO_LIMIT, dtype=tf.int64, trainable=False))
        self._closed = Past()
        self._closed_at = 0
        self._line: OpenLine | None = None
        self.calibration: Calibration | None = None
        self.times_restored = 0

    @property
    def steps(self) -> int:
        return int(self._steps.value.numpy())

    def read(self) -> Past:
        return self._read(ended=False)

    def _read(self, *, ended: bool) -> Past:
        since = max(self.steps - self._closed_at, 0)
        if self._line is not None:
            return self._closed.and_then(self._line.past(since, ended=ended))
        return self._closed.with_unknown(unknown(), since) if since else self._closed

    def open(self, line: OpenLine) -> None:
        """From now on every step is one of these, and no more than planned are taken."""
        self.close()
        self._line = line
        self.limit = self.steps + line.planned

    def close(self) -> None:
        """Steps that turn up from now on (a checkpoint of another run was restored) are of unknown kind."""
        self._closed, self._closed_at, self._line = self._read(ended=True), self.steps, None

    def keep_within(self, budget: Budget) -> int:
        """Lowers the limit to what the budget allows the open line. Returns how many more steps may be taken."""
        past, line = self.read(), self._line
        budget = self._as_filter(budget, past)
        more = budget.steps_that_fit(past.ledger, line.event, line.sampling, max(self.limit - self.steps, 0))
        self.limit = self.steps + more
        budgets = line.budgets if budget in line.budgets else (*line.budgets, budget)
        self._line = dataclasses.replace(line, planned=self.limit - self._closed_at, budgets=budgets)
        return more

    def _as_filter(self, budget: Budget, past: Past) -> Budget:
        """A filter keeps the order that was fixed before the first step, however the settings change."""
        for record in past.fits:
            for earlier in record.budgets:
                if dataclasses.replace(earlier, order=budget.order) == budget:
                    return earlier
        return budget.as_filter(past.ledger, self._line.event, self._line.sampling, self._line.planned)

    @property
    def limit(self) -> int:
        return int(self._limit.value.numpy())

    @limit.setter
    def limit(self, steps: int) -> None:
        self._limit.value.assign(steps)

    def may_step(self) -> tf.Tensor:
        return self._steps.value.value < self._limit.value

    def restore(self, past: Past) -> None:
        """From a file: steps that the weights hold beyond the ledger's are of unknown kind, an infinite line."""
        unknown_steps = self.steps - past.ledger.steps
        self._closed = past.with_unknown(unknown(), unknown_steps) if unknown_steps > 0 else past
        self._closed_at = self.steps
        self._was_restored()

    def adopt(self, past: Past, *, own_included: bool) -> None:
        """Go on from the past of a model, which may or may not hold this optimizer's own lines."""
        self.restore(past if own_included else past.and_then(self.read()))

    def _was_restored(self) -> None:
        """In the middle of a fit, too: not a step is taken before a line was opened, and the limit found, anew."""
        self._line = None
        self.limit = 0
        self.times_restored += 1

    def circumstances_to_json(self, fits: tuple[FitRecord, ...]) -> str:
        """All that is saved beside the ledger and the count of steps."""
        calibration = self.calibration and dataclasses.asdict(self.calibration)
        return json.dumps({"fits": dumps(fits), "calibration": calibration})

    def circumstances_from_json(self, text: str) -> tuple[FitRecord, ...]:
        stored = json.loads(text)
        self.calibration = stored["calibration"] and Calibration(**stored["calibration"])
        return loads(stored["fits"])

    def serialize(self) -> str:
        past, steps = self._closed, self._closed_at
        with tf.init_scope():
            if tf.executing_eagerly():  # tf.saved_model.save can't read variables here: it leaves an open line out
                past, steps = self.read(), self.steps
        circumstances = self.circumstances_to_json(past.fits)
        return json.dumps({"ledger": past.ledger.to_json(), "steps": steps, "circumstances": circumstances})

    def deserialize(self, text: bytes) -> None:
        stored = json.loads(text)  # its own count of steps: the variable may be read before or after
        fits = self.circumstances_from_json(stored["circumstances"])
        self._closed, self._closed_at = Past(Ledger.from_json(stored["ledger"]), fits), stored["steps"]
        self._was_restored()


def unknown() -> Event:
    return NotPrivateEvent("steps that no line of the ledger describes")
