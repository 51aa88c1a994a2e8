"""What a private optimizer released, with the weights from the first step on: the ledger in the making, and the limit."""

import contextlib
import dataclasses
import json
import secrets
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tfdp.accounting import Budget, NotPrivateEvent, Schedule
from tfdp.accounting.fit_records import on_schedule
from tfdp.optimizers.past import Calibration, OpenLine, Past, unknown
from tfdp.optimizers.saved_ledger import Saved, read_texts

NO_LIMIT = 2**63 - 1


class Untracked:
    """Keeps what must not be saved out of the sight of Keras's and TensorFlow's tracking of attributes."""

    def __init__(self, value):
        self.value = value


class Book(tf.train.experimental.PythonState):
    """The ledger in the making: what is closed, and one line that is open from some step on.

    Steps are counted twice, in the graph that moves the weights. ``saved_steps`` is a variable of the optimizer: whatever
    carries the weights carries it, and if it shows more steps than the lines do, those are of unknown kind. ``_released``
    belongs to this process and never goes down, so that nothing that is done to the optimizer's variables in the middle
    of fit (resetting its moments, going back to a snapshot) takes a step out of the ledger or past the limit.

    Scheduled releases are counted in the same way: in ``_scheduled``, and in ``saved_steps`` together with the steps. Where one
    is due (``_due_at``) no step is taken before it was made, and it is made only where a step is within the limit.

    Nothing is ever taken out: what was released before a checkpoint is loaded stays in, for it may have been the reason.

    Being a PythonState, the book is written into a ``tf.train.Checkpoint`` of the optimizer and read from it.
    """

    def __init__(self, saved_steps: keras.Variable, when_restored: Callable[[], None] = lambda: None):
        self._when_restored = Untracked(when_restored)
        self._saved_steps = Untracked(saved_steps)
        with tf.init_scope():
            self._released = Untracked(tf.Variable(0, dtype=tf.int64, trainable=False))
            self._limit = Untracked(tf.Variable(NO_LIMIT, dtype=tf.int64, trainable=False))
            self._scheduled = Untracked(tf.Variable(0, dtype=tf.int64, trainable=False))
            self._due_at = Untracked(tf.Variable(NO_LIMIT, dtype=tf.int64, trainable=False))
            # Of several workers all get the chief's value.
            self._shared = Untracked(tf.Variable(secrets.randbits(63), dtype=tf.int64, trainable=False))
        self._opened = 0
        self._closed = Past()
        self._closed_at, self._closed_at_saved, self._closed_at_scheduled = 0, 0, 0
        self._line: OpenLine | None = None
        self.calibration: Calibration | None = None
        self.times_restored = 0
        self.written = self.described = 0  # releases in the ledger that was saved, or loaded, last: see Witness
        self.includes: dict[Book, int] = {}  # other books that went into this one, and with how many steps

    @classmethod
    def without_optimizer(cls, past: Past | None = None) -> "Book":
        """Of weights that were trained elsewhere: nothing is counted here."""
        with tf.init_scope():
            book = cls(keras.Variable(0, dtype="int64", trainable=False))
        if past is not None:
            book.adopt(past)
        return book

    def snapshot(self) -> "Book":
        """Of what was released until now, for a copy of the weights."""
        return self.without_optimizer(self.read())

    # In the graph of the step.

    def may_step(self) -> tf.Tensor:
        return (self._released.value < self._limit.value) & (self._released.value < self._due_at.value)

    @property
    def counters(self) -> list[tf.Variable]:
        """What is counted in a graph."""
        own = (self._released.value, self._scheduled.value, self._due_at.value)
        return [*own, self._saved_steps.value.value]

    def count_step(self) -> list[tf.Tensor]:
        return [counter.assign_add(1) for counter in (self._released.value, self._saved_steps.value.value)]

    # In the graph of a scheduled release.

    def must_release(self) -> tf.Tensor:
        return (self._released.value < self._limit.value) & (self._released.value >= self._due_at.value)

    def count_scheduled(self, every: tf.Tensor) -> list[tf.Tensor]:
        counted = [counter.assign_add(1) for counter in (self._scheduled.value, self._saved_steps.value.value)]
        return [*counted, self._due_at.value.assign_add(every)]

    # Reading.

    @property
    def released(self) -> int:
        """Steps of this process; never goes down."""
        return int(self._released.value.numpy())

    @property
    def scheduled(self) -> int:
        """Scheduled releases of this process; never goes down."""
        return int(self._scheduled.value.numpy())

    @property
    def due_at(self) -> int:
        """At so many released steps the next scheduled release comes first."""
        return int(self._due_at.value.numpy())

    @property
    def limit(self) -> int:
        """At so many released steps the step refuses."""
        return int(self._limit.value.numpy())

    def allow(self, steps: int) -> None:
        """So many more steps, and no more."""
        self._limit.value.assign(self.released + steps)

    @property
    def steps(self) -> int:
        """Releases in the ledger, of this process and of those before it."""
        return self.read().ledger.steps

    def read(self) -> Past:
        past = self._seen()
        turned_up = self.saved_steps - self._closed_at_saved - sum(self._since())
        return past.with_unknown(unknown(), turned_up) if turned_up > 0 else past

    def _since(self) -> tuple[int, int]:
        """Steps and scheduled releases since the lines were closed."""
        return self.released - self._closed_at, self.scheduled - self._closed_at_scheduled

    def _seen(self) -> Past:
        """Without what other variables' values say."""
        steps, scheduled = self._since()
        if self._line is not None:
            return self._line.after(self._closed, steps, scheduled)
        return self._closed.with_unknown(unknown(), steps + scheduled) if steps + scheduled else self._closed

    @property
    def saved_steps(self) -> int:
        """The count that files carry with the weights."""
        return int(self._saved_steps.value.numpy())

    # Writing.

    def open(self, line: OpenLine) -> None:
        """From now on every step is one of these, and no more than planned are taken."""
        self.close()
        self._line = dataclasses.replace(line, name=self._new_name())
        if line.schedule is not None:
            self._due_at.value.assign(self.released + line.schedule.first)
        self.allow(line.planned)

    def _new_name(self) -> str:
        """Of a fit, random: another one in a copy of this book, or in a fork of the process; on several workers the same, because
        one may load what another wrote."""
        self._opened += 1
        shared = self._shared.value
        strategy = getattr(shared, "distribute_strategy", None)
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return f"{int(shared.numpy()):016x}, {self._opened}"
        return secrets.token_hex(8)

    def begun(self, schedule: Schedule) -> Schedule:
        """What is left of a schedule, given as from the first step on, after all that the ledger holds of it."""
        return schedule.begun(*on_schedule(self.read().fits, schedule))

    def planned_releases(self, steps: int) -> int:
        """How many releases so many more steps of the open line are, with the scheduled ones."""
        schedule = self._schedule()
        return steps + (0 if schedule is None else schedule.releases(steps))

    def _schedule(self) -> Schedule | None:
        """Of the open line, as from the next step on."""
        schedule = self._line.schedule
        return schedule and dataclasses.replace(schedule, first=max(self.due_at - self.released, 0))

    def close(self) -> None:
        """Steps that turn up from now on (a checkpoint of another run was restored) are of unknown kind."""
        self._set_closed(self.read())

    def _set_closed(self, past: Past) -> None:
        self._closed, self._line = past, None
        self._closed_at, self._closed_at_saved, self._closed_at_scheduled = (
            self.released,
            self.saved_steps,
            self.scheduled,
        )
        self._due_at.value.assign(NO_LIMIT)

    def keep_within(self, budget: Budget) -> int:
        """Lowers the limit to what the budget allows the open line. Returns how many more steps may be taken."""
        past, line = self.read(), self._line
        budget = self._as_filter(budget, past)
        left = max(self.limit - self.released, 0)
        more = budget.steps_that_fit(past.ledger, line.event, line.sampling, left, self._schedule())
        self.allow(more)
        budgets = line.budgets if budget in line.budgets else (*line.budgets, budget)
        self._line = dataclasses.replace(line, planned=self.limit - self._closed_at, budgets=budgets)
        return more

    def _as_filter(self, budget: Budget, past: Past) -> Budget:
        """A filter keeps the order that was fixed before the first step, however the settings change."""
        for record in past.fits:
            for earlier in record.budgets:
                if dataclasses.replace(earlier, order=budget.order) == budget:
                    return earlier
        line = self._line
        return budget.as_filter(past.ledger, line.event, line.sampling, line.planned, self._schedule())

    def adopt(self, past: Past) -> None:
        """Go on from here: a past that holds this book's own, and what others wrote of the same weights."""
        self._set_closed(past)

    def take(self, past: Past) -> None:
        """Of weights that were just loaded. Nothing happens where this book holds it already."""
        own = self.read()
        joined = own.joined(past)
        if (joined.ledger, joined.origins) != (own.ledger, own.origins):
            self._set_closed(joined)
            self._was_restored()

    # Saving.

    def restore(self, saved: Saved) -> None:
        """From a file whose count of steps was just loaded: what the lines do not describe is of unknown kind."""
        past, self.calibration = saved.past, saved.calibration
        undescribed = self.saved_steps - past.ledger.steps
        if undescribed > 0:
            past = past.with_unknown(unknown(), undescribed)
        self._set_closed(self._seen().joined(past))
        self._was_restored()

    def _was_restored(self) -> None:
        """In the middle of a fit, too: not a step is taken before a line was opened, and the limit found, anew."""
        self.allow(0)
        self.times_restored += 1
        self._when_restored.value()

    def distrust(self, why: str) -> None:
        """Weights came from a file whose ledger can't be believed: from now on nothing is claimed of them."""
        self._set_closed(self.read().with_unknown(NotPrivateEvent(why), 1))
        self._was_restored()

    def as_saved(self, steps: int) -> Saved:
        """What goes into a file whose count of steps was ``steps``, or is read later."""
        return Saved(self.read(), self.calibration, steps)

    def serialize(self) -> str:
        saved = Saved(self._closed, self.calibration, self._closed_at_saved)
        with tf.init_scope():
            if tf.executing_eagerly():  # tf.saved_model.save can't read variables here: it leaves an open line out
                saved = self.as_saved(self.saved_steps)
        return json.dumps(saved.to_texts())

    def deserialize(self, text: bytes) -> None:
        with self.distrusted_if_damaged():
            saved = read_texts(json.loads(text))
            if saved is None:
                raise ValueError("it is empty")
        self.calibration = saved.calibration
        self._set_closed(self._seen().joined(saved.past))
        self._closed_at_saved = saved.steps  # the variable itself may be read before or after
        self._was_restored()

    @contextlib.contextmanager
    def distrusted_if_damaged(self) -> Iterator[None]:
        """Around the reading of a file: whoever goes on after an error goes on with the file's weights.

        Raises:
            ValueError: in place of any error inside.
        """
        try:
            yield
        except Exception as error:
            self.distrust("weights were loaded from a file whose ledger was damaged or edited")
            raise ValueError(
                f"The ledger in this file was damaged or edited ({error}), so nothing can be said of the privacy of its weights. "
                "Load an earlier file, or one saved elsewhere; of this model object nothing is claimed any more."
            ) from error
