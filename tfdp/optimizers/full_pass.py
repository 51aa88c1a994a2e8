"""A pass over all records between two steps, and what a mechanism releases of it."""

import dataclasses

import keras
import tensorflow as tf

from tfdp.accounting import Budget, FullBatch, Ledger, NotPrivateEvent, Schedule
from tfdp.data import DeclaredDataset, PoissonBatches
from tfdp.mechanisms import FullGradient
from tfdp.optimizers.core import Core
from tfdp.optimizers.step import PrivateStep


def check_full_gradient(model: keras.Model, lots: PoissonBatches | DeclaredDataset) -> None:
    """Whether all records can be looked at between any two steps.

    Raises:
        ValueError: they can't.
    """
    if isinstance(lots, DeclaredDataset):
        raise ValueError(
            "The mechanism looks at all records between two steps (direction='full_gradient'), and of a declared dataset it "
            "can't be seen that a pass shows each of them exactly once. Give fit the arrays or a random-access source, or "
            "tfdp.data.PoissonBatches(...); or take direction='noisy_gradient'."
        )
    if model.steps_per_execution != 1:
        raise ValueError(
            f"The mechanism looks at all records between two steps (direction='full_gradient'), which is not possible inside "
            f"an execution of several: steps_per_execution is {model.steps_per_execution!r}. Compile with "
            "steps_per_execution=1."
        )


class RecordSum:
    """The sum over all records of what a core makes of their gradients, physical batch by physical batch.

    Weights stay as they are, metrics see nothing of it, and memory holds one physical batch. Batches are added up in float64.
    """

    def __init__(self, core: Core, shapes: list[tf.TensorShape]):
        self._core, self._shapes = core, shapes

    def __call__(self, parts: tf.data.Dataset) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The sum, float64, and how many gradients were not finite; of all records, ``PoissonBatches.once_through``."""
        sums = [tf.zeros(shape, tf.float64) for shape in self._shapes]
        not_finite = tf.zeros([], tf.int64)
        for record, present in parts:
            x, y, sample_weight = (*record, None, None)[:3]
            more, bad, *_ = self._core(x, y, sample_weight, present)
            sums = [total + tf.cast(new, tf.float64) for total, new in zip(sums, more, strict=True)]
            not_finite += bad
        return sums, not_finite


class FullPass:
    """The full gradient that the mechanism of a private step asks for (``FullGradient``).

    Graphs are kept from fit to fit; ``over`` says which records the fit has.
    """

    def __init__(self, step: PrivateStep):
        self.step = step
        self._optimizer, self._book = step.optimizer, step.optimizer.book
        self._trace()
        step.traced_beside.append(self._trace)

    def _trace(self) -> None:
        """Of the model that was just proven, with the step's own core."""
        step, mechanism = self.step, self._optimizer.mechanism.copy()
        core = Core(
            step.model, step.plan, mechanism.full_gradient.bounded_sum, self._optimizer.generator, step.jit_compile
        )
        self._sum = RecordSum(core.traced(step.record_spec), [v.shape for v in step.trained])
        self._release = tf.function(self._privatised, autograph=False)
        self._mechanism = None

    def over(self, records: PoissonBatches) -> None:
        self.records = records
        self._parts = records.once_through(self._optimizer.max_physical_batch or records.batch_size)

    def close(self) -> None:
        """Fit has ended: nothing here holds on to its data."""
        self.records = self._parts = None

    @property
    def size(self) -> int:
        """The public number of records."""
        return self.records.sampling.size

    @property
    def sampling(self) -> FullBatch:
        return FullBatch(self.size, public_size=self.records.sampling.public_size)

    def schedule(self) -> Schedule:
        """Of the step's frozen mechanism, as from the first step on."""
        full = self.step.mechanism.full_gradient
        return Schedule(self._optimizer.event_of(full), self.sampling, self._every(full))

    def calibrate(self, full: FullGradient, budget: Budget, planned: int) -> Schedule:
        """Give ``full`` the noise for its share of the budget, at so many planned steps from the first one on."""
        unsettled = Schedule(NotPrivateEvent("not settled yet"), self.sampling, self._every(full))
        full.calibrate(budget, self.sampling, unsettled.releases(planned), Ledger())
        return dataclasses.replace(unsettled, event=full.event())

    def _every(self, full: FullGradient) -> int:
        return full.every or self.records.steps_per_epoch

    def release(self) -> None:
        """Run over all records and release what was asked for, if the book says that it is due."""
        if not self._book.must_release():
            return
        full = self.step.mechanism.full_gradient
        if self._mechanism is not self.step.mechanism:  # the noise is in the trace
            self._mechanism = self.step.mechanism
            self._release = tf.function(self._privatised, autograph=False)
        sums, not_finite = self._sum(self._parts)
        self._release(sums, tf.constant(self.size, tf.float64), tf.constant(self._every(full), tf.int64))
        if not self._optimizer.private_logs:
            self._optimizer.count_not_finite(not_finite)

    def _privatised(self, sums: list[tf.Tensor], size: tf.Tensor, every: tf.Tensor) -> None:
        """Noise the sum once; count the release before anything depends on it."""
        mechanism, optimizer = self.step.mechanism, self._optimizer

        def released() -> None:
            found = mechanism.full_gradient.privatise(sums, size, optimizer.generator)
            found = [tf.cast(g, tf.float32) for g in found]
            state = mechanism.with_full_gradient(optimizer.state_of_mechanism, found, size)
            with tf.control_dependencies(self._book.count_scheduled(every)):
                optimizer.remember(state)

        tf.cond(self._book.must_release(), released, lambda: None)
