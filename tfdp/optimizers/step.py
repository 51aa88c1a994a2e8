"""One private step: lot in, one noised release, weights moved."""

import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import MixesExamples, Plan
from tfdp.gradients.layer_tree import differentiable, map_tensors
from tfdp.gradients.losses import overrides_the_loss
from tfdp.gradients.once import computed_once
from tfdp.gradients.state import knowing_only, only_metrics_written
from tfdp.mechanisms import GaussianMechanism, denoised
from tfdp.mechanisms.gaussian import State
from tfdp.optimizers import parts
from tfdp.optimizers.core import Core
from tfdp.optimizers.metric_errors import told_by_name
from tfdp.optimizers.private_optimizer import ONLY_FIT, PrivateOptimizer
from tfdp.optimizers.proven import Proven

_ONE_AT_A_TIME = threading.RLock()  # two models may share layers, whose calls are recorded


class PrivateStep:
    """The ``train_step`` of a privately compiled model.

    A step takes ``(record, present)`` from ``tfdp.data``, in one or several physical batches adds up clipped gradients,
    noises the sum once, divides by the expected lot size, adds the gradient of the weights' regularisers (no data in it),
    counts the step and applies the inner optimizer. An empty lot is released like any other.

    It has three parts, each checked on its graph (``gradients/state.py``): the core (model, loss, clipped sum), which is traced
    right after it was proven; Keras's metrics, which write nothing but metrics; and the release, which knows of the lot the
    noised sum alone.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: PrivateOptimizer,
        record_spec: Any,
        expected_lot_size: float,
        prove: Callable[[], Plan],
        known: Proven | None = None,
    ):
        self.model, self.optimizer = model, optimizer
        self.record_spec, self.expected_lot_size = record_spec, float(expected_lot_size)
        self._prove, self._known = prove, known
        self.mechanism: GaussianMechanism | None = None
        self.jit_compile = bool(model.jit_compile) and not model.run_eagerly
        self.traced_beside: list[Callable[[], None]] = []  # what else is traced of a proven model, at once
        with tf.init_scope():
            self._open = tf.Variable(False, trainable=False, name="fit_is_running")
        self.prove_and_trace()

    @property
    def masks_all_it_shows(self) -> bool:
        """Whether padding can't be seen in metrics. In a loss of the whole lot (``add_loss``, a ``compute_loss`` of the
        user's own) rows can't be told apart."""
        return not self.plan.shares and not overrides_the_loss(self.model)

    def prove_and_trace(self) -> None:
        """Nothing of the user's runs in between, so that what is proven is what runs, whatever changes later."""
        with _ONE_AT_A_TIME:
            self.trained = list(self.model.trainable_variables)
            self._traced = self.optimizer.mechanism.copy()
            if not self._is_proven():
                self.plan = self._prove()
                self.core = self._new_core(self._traced)
            self._check_parts()
            for trace in self.traced_beside:
                trace()
        if self.model.run_eagerly:
            self._check_metrics()
        self._finished = tf.function(self._finish, autograph=False)  # used where nothing else is traced

    def _is_proven(self) -> bool:
        """Whether the core, traced by a plan that was proven, is the very one that it was proven for."""
        known, self._known = self._known, None
        if known is None or overrides_the_loss(
            self.model
        ):  # by the plan a loss of the user's own is more than its core
            return False
        self.plan = known.plan
        try:
            self.core = self._new_core(self._traced)
        except Exception:  # what is wrong, the proof can say
            return False
        return known.holds_for(self.core)

    @property
    def _cut(self) -> str | None:
        """What cuts a lot into parts that draw random numbers of their own."""
        return None if self.optimizer.max_physical_batch is None else "max_physical_batch"

    def _check_parts(self) -> None:
        if self.plan.shared_draws and self._cut is not None:
            raise MixesExamples(
                f"A layer of the model {self.model.name!r} draws random numbers that all examples of a lot share, such as Dropout with "
                f"noise_shape=(1, ...). {self._cut} cuts a lot into parts that would draw their own, and which part a record is in "
                "depends on the other records. Draw for each example (noise_shape=(None, ...)), or run lots whole."
            )

    def _new_core(self, mechanism: GaussianMechanism) -> Core:
        return self._core_of(mechanism).traced(self.record_spec, self._ellipsoid_spec(mechanism))

    def _core_of(self, mechanism: GaussianMechanism) -> Core:
        generator = self.optimizer.generator if mechanism.noise_multiplier != 0 else None
        return Core(self.model, self.plan, mechanism.bounded_sum, generator, self.jit_compile, self.optimizer.counts)

    def _ellipsoid_spec(self, mechanism: GaussianMechanism) -> Any:
        """What it looks like does not depend on how much noise there is, but it may be made of that."""
        if mechanism.noise_multiplier is None:
            mechanism = mechanism.copy()
            for name in mechanism.calibrated:
                if getattr(mechanism, name, 0) is None:
                    setattr(mechanism, name, 1.0)
        return _spec_of(mechanism.ellipsoid(self.optimizer.state_of_mechanism))

    def freeze(self) -> bool:
        """From now on the optimizer's mechanism as it is now. Returns whether that is another one than before.

        A copy: what the ledger's line says of this fit holds whatever becomes of the optimizer's own meanwhile. The core holds
        the clip that it was traced with: another one makes it be traced anew, and proven anew before that.
        """
        own, before = self.optimizer.mechanism, self.mechanism
        if not _bounds_alike(self._traced, own):
            self.prove_and_trace()
        self.mechanism = own.copy()
        return before is not None and not _same_mechanism(before, self.mechanism)

    def open(self) -> None:
        """Steps may be taken from now on.

        Raises:
            ValueError: other weights are trainable than those that the step was proven for, or the mechanism changed, or lots are
                cut into parts since whose examples share random numbers.
        """
        self._check_trained()
        self._check_parts()
        self.check_mechanism()
        self._open.assign(True)

    def check_mechanism(self) -> None:
        """Raises a ValueError if it is another one than when the ledger's line was opened."""
        if not _same_mechanism(self.mechanism, self.optimizer.mechanism):
            raise ValueError(
                "The mechanism's settings were changed while fit runs (by a callback), and they are settled when it begins. Call fit again "
                "for steps with other settings: the ledger then has a line for each."
            )

    def _check_trained(self) -> None:
        if [id(v) for v in self.model.trainable_variables] != [id(v) for v in self.trained]:
            raise ValueError(
                "The set of trainable weights changed after fit began (a callback froze or unfroze a layer). Change it before fit, and "
                "compile again with a new optimizer; the model keeps its ledger."
            )

    def close(self) -> None:
        """Graphs kept from this fit no longer train: their steps would be in no line of the ledger."""
        self._open.assign(False)

    def __call__(self, data: Any) -> dict:
        model, optimizer = self.model, self.optimizer
        if model.optimizer is not optimizer:
            raise RuntimeError("The model's optimizer was replaced after compile(). Compile again.")
        if not _is_lot(data):
            raise RuntimeError(ONLY_FIT)
        self._check_trained()
        with tf.control_dependencies([tf.debugging.Assert(self._open, [ONLY_FIT])]):  # before anything moves
            # Ending fit takes Keras a step or more, steps_per_execution of them: past the limit the step itself refuses.
            self._take_if_allowed(*data)
            return model.get_metrics_result()

    def _take_if_allowed(self, record, present) -> None:
        tf.cond(self.optimizer.book.may_step(), lambda: self._take(record, present), lambda: None)

    def _take(self, record, present) -> None:
        state = self.optimizer.state_of_mechanism
        ellipsoid = self.mechanism.ellipsoid(state)
        with computed_once():
            sums, not_finite = self._sums(record, present, ellipsoid)
        self._release(state, sums, ellipsoid, not_finite, self.optimizer.generator)

    def _release(self, state, sums, ellipsoid, not_finite, generator) -> None:
        """Noise the lot's sum and move the weights by it. Without a generator the noise is in the sum already."""
        if tf.executing_eagerly():
            self._finished(state, sums, ellipsoid, not_finite, generator)
        else:
            self._finish(state, sums, ellipsoid, not_finite, generator)

    def _finish(self, state, sums, ellipsoid, not_finite, generator) -> None:
        with computed_once():
            released, state = self._released(state, sums, ellipsoid, generator)
        known = [t for t in tf.nest.flatten((released, state)) if tf.is_tensor(t)]
        with knowing_only(self.model, known, self.optimizer.written, self.optimizer.not_noised), computed_once():
            gradients = self._with_regularizers(released, self.trained)
            gradients = [tf.cast(g, v.dtype) for g, v in zip(gradients, self.trained, strict=True)]
            self.optimizer.release(gradients, self.trained, state)
        if not self.optimizer.private_logs:
            self.optimizer.count_not_finite(not_finite)

    def _released(self, state, sums, ellipsoid, generator) -> tuple[list[tf.Tensor], State]:
        """The private gradient, and what the mechanism remembers from now on."""
        denoise, mechanism = self.optimizer.denoise, self.mechanism
        released, state = mechanism.release(state, sums, ellipsoid, self.expected_lot_size, generator)
        if denoise is None:
            return released, state
        unit = mechanism.unit_of_release(self.expected_lot_size)
        return denoised(denoise, released, mechanism.noise_of_release, unit, ellipsoid), state

    def _penalties(self, variables) -> list[tf.Tensor]:
        """Of weights with a regulariser, as often as the model's ``compute_loss`` counts it."""
        watched = [v for v in variables if v.regularizer is not None]
        return [tf.cast(v.regularizer(v), tf.float32) * self.plan.penalties.get(id(v), 1.0) for v in watched]

    def _with_regularizers(self, gradients, variables):
        """Weight regularisers depend on weights alone: their gradient needs neither clip nor noise."""
        watched = [v for v in variables if v.regularizer is not None]
        if not watched:
            return gradients
        with tf.GradientTape() as tape:
            penalty = tf.add_n(self._penalties(variables))
        found = iter(tape.gradient(penalty, differentiable(watched), unconnected_gradients="zero"))
        return [
            g if v.regularizer is None else g + tf.cast(next(found), tf.float32)
            for g, v in zip(gradients, variables, strict=True)
        ]

    def _sums(self, record, present, ellipsoid) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Clipped gradients of the lot, summed, physical batch by physical batch."""
        record, present = parts.not_empty(record, present)
        rows = tf.shape(present)[0]
        limit = self._at_once(rows)
        if limit is None:
            return self._physical(record, present, ellipsoid)
        zeros = [tf.zeros(v.shape, self.mechanism.sum_dtype) for v in self.trained]
        padded = self.jit_compile or self.masks_all_it_shows

        def part(start, sums, not_finite):
            more, bad = self._physical(*parts.part_of(record, present, start, limit, padded), ellipsoid)
            return start + limit, [a + b for a, b in zip(sums, more, strict=True)], not_finite + bad

        def unfinished(start, sums, not_finite):
            return start < rows

        start = tf.zeros([], tf.int32)
        state = [start, zeros, tf.zeros([], tf.int64)]
        # One part after the other: side by side they would need the memory that they are there to save.
        _, sums, not_finite = tf.while_loop(unfinished, part, state, parallel_iterations=1)
        return sums, not_finite

    def _at_once(self, rows: tf.Tensor) -> int | tf.Tensor | None:
        """How many rows to run at once: all of them if None."""
        limit, most = self.optimizer.max_physical_batch, self.plan.most_at_once
        if most is None:
            return limit
        return parts.even(rows, most, self.mechanism.microbatch_size) if limit is None else min(limit, most)

    def _physical(self, record, present, ellipsoid) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, y, sample_weight = (*record, None, None)[:3]
        sums, not_finite, y_pred, loss, outputs = self.core(x, y, sample_weight, present, ellipsoid)
        with only_metrics_written(self.model, "metrics"):
            self._update_metrics(x, y, sample_weight, y_pred, present, loss, outputs)
        return sums, not_finite

    def _check_metrics(self) -> None:
        """Of metrics that run eagerly no graph can be read: they are traced once, to be looked at."""
        record, present, made = self.core.arguments_and_results

        @tf.function(autograph=False)
        def update(record, present, y_pred, loss, outputs):
            x, y, sample_weight = (*record, None, None)[:3]
            with only_metrics_written(self.model, "metrics"):
                self._update_metrics(x, y, sample_weight, y_pred, present, loss, outputs)

        update.get_concrete_function(record, present, *made)

    def _update_metrics(self, x, y, sample_weight, y_pred, present, loss, outputs) -> None:
        """Keras's metrics over the records of the lot alone. They are not private."""
        model = self.model
        count = tf.reduce_sum(tf.cast(present, tf.float32))
        kept = lambda t: tf.gather(t, tf.reshape(tf.where(present), [-1]))  # noqa: E731
        penalties = self._penalties(self.trained)
        model._loss_tracker.update_state(loss + (tf.add_n(penalties) if penalties else 0.0), sample_weight=count)
        if model._compile_loss is not None:
            for tracker, values in zip(model._compile_loss.metrics, outputs, strict=False):
                tracker.update_state(kept(values))
        if model._compile_metrics is None and type(model).compute_metrics is keras.Model.compute_metrics:
            return
        y_pred, masks = y_pred
        if type(model).compute_metrics is not keras.Model.compute_metrics:  # Keras's own does not look at x
            x = map_tensors(kept, x)
        y, sample_weight, y_pred = map_tensors(kept, (y, sample_weight, y_pred))
        for value, mask in zip(keras.tree.flatten(y_pred), keras.tree.flatten(masks), strict=True):
            if mask is not None:
                value._keras_mask = kept(mask)
        with told_by_name(model):
            model.compute_metrics(x, y, y_pred, sample_weight)


def _bounds_alike(one: GaussianMechanism, other: GaussianMechanism) -> bool:
    """Whether they bound examples' gradients in the same way; how much noise comes later is no part of that."""
    noise = one.calibrated if type(one).bounded_sum.__module__.startswith("tfdp.") else ()
    settings = [{k: v for k, v in m.get_config().items() if k not in noise} for m in (one, other)]
    unnoised = [m.noise_multiplier == 0 for m in (one, other)]
    return type(one) is type(other) and _equal(*settings) and _equal(*unnoised)


def _spec_of(tensors: Any) -> Any:
    return map_tensors(lambda t: tf.TensorSpec(t.shape, t.dtype), tensors)


def _same_mechanism(one: GaussianMechanism, other: GaussianMechanism) -> bool:
    """Whether they do the same with the same numbers: all that a traced step holds of a mechanism."""
    return type(one) is type(other) and _equal(one.get_config(), other.get_config())


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


def _is_lot(data: Any) -> bool:
    return (
        isinstance(data, tuple)
        and len(data) == 2
        and isinstance(data[0], tuple)
        and tf.is_tensor(data[1])
        and data[1].dtype.is_bool
        and len(data[1].shape) == 1
    )
