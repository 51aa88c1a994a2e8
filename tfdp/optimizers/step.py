"""One private step: lot in, one noised release, weights moved."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import Plan, lot_gradients
from tfdp.gradients.compilation import compiling
from tfdp.gradients.layer_tree import differentiable, map_tensors
from tfdp.gradients.losses import overrides_the_loss
from tfdp.mechanisms import GaussianMechanism, denoised
from tfdp.mechanisms.gaussian import if_any
from tfdp.optimizers.private_optimizer import ONLY_FIT, PrivateOptimizer


class PrivateStep:
    """The ``train_step`` of a privately compiled model.

    A step takes ``(record, present)`` from ``tfdp.data``, in one or several physical batches adds up clipped gradients,
    noises the sum once, divides by the expected lot size, adds the gradient of the weights' regularisers (no data in it),
    counts the step and applies the inner optimizer. An empty lot is released like any other.
    """

    def __init__(self, model: keras.Model, optimizer: PrivateOptimizer, plan: Plan, expected_lot_size: float):
        self.model, self.optimizer, self.plan = model, optimizer, plan
        self.expected_lot_size = float(expected_lot_size)
        self.mechanism: GaussianMechanism | None = None
        self.jit_compile = bool(model.jit_compile) and not model.run_eagerly
        with tf.init_scope():
            self._open = tf.Variable(False, trainable=False, name="fit_is_running")

    @property
    def masks_all_it_shows(self) -> bool:
        """Whether padding can't be seen in metrics. In a loss of the whole lot (``add_loss``, a ``compute_loss`` of the
        user's own) rows can't be told apart."""
        return not self.plan.shares and not overrides_the_loss(self.model)

    def freeze(self) -> bool:
        """From now on the optimizer's mechanism as it is now. Returns whether that is another one than before.

        A copy: what the ledger's line says of this fit holds whatever becomes of the optimizer's own meanwhile.
        """
        own, before = self.optimizer.mechanism, self.mechanism
        frozen = own.copy()
        changed = before is not None and not _same_mechanism(before, frozen)
        self.mechanism = frozen
        if changed or before is None:
            # A trace holds the clip that it was made with; noise, added outside of it, would be of the new one.
            self._compiled = tf.function(self._core, jit_compile=self.jit_compile or None, autograph=False)
        return changed

    def open(self) -> None:
        self._open.assign(True)

    def close(self) -> None:
        """Graphs kept from this fit no longer train: their steps would be in no line of the ledger."""
        self._open.assign(False)

    def __call__(self, data: Any) -> dict:
        model, optimizer = self.model, self.optimizer
        if model.optimizer is not optimizer:
            raise RuntimeError("The model's optimizer was replaced after compile(). Compile again.")
        if not _is_lot(data):
            raise RuntimeError(ONLY_FIT)
        with tf.control_dependencies([tf.debugging.Assert(self._open, [ONLY_FIT])]):  # before anything moves
            # Ending fit takes Keras a step or more, steps_per_execution of them: past the limit the step itself refuses.
            self._take_if_allowed(*data)
            return model.get_metrics_result()

    def _take_if_allowed(self, record, present) -> None:
        tf.cond(self.optimizer.book.may_step(), lambda: self._take(record, present), lambda: None)

    def _take(self, record, present) -> None:
        state = self.optimizer.state_of_mechanism
        ellipsoid = self.mechanism.ellipsoid(state)
        sums, not_finite = self._sums(record, present, ellipsoid)
        self._release(state, sums, ellipsoid, not_finite, self.optimizer.generator)

    def _release(self, state, sums, ellipsoid, not_finite, generator) -> None:
        """Noise the lot's sum and move the weights by it. Without a generator the noise is in the sum already."""
        model, optimizer, mechanism = self.model, self.optimizer, self.mechanism
        released, state = mechanism.release(state, sums, ellipsoid, self.expected_lot_size, generator)
        if optimizer.denoise is not None:
            noise = mechanism.noise_of_release
            unit = mechanism.unit_of_release(self.expected_lot_size)
            released = denoised(optimizer.denoise, released, noise, unit, ellipsoid)
        variables = model.trainable_variables
        gradients = self._with_regularizers(released, variables)
        gradients = [tf.cast(g, v.dtype) for g, v in zip(gradients, variables, strict=True)]
        optimizer.release(gradients, variables, state)
        if not optimizer.private_logs:
            optimizer.count_not_finite(not_finite)

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
        limit = self.optimizer.max_physical_batch
        record, present = _not_empty(record, present)
        if limit is None:
            return self._physical(record, present, ellipsoid)
        zeros = [tf.zeros(v.shape, self.mechanism.sum_dtype) for v in self.model.trainable_variables]
        rows = tf.shape(present)[0]

        def part(start, sums, not_finite):
            more, bad = self._physical(*self._part(record, present, start, limit), ellipsoid)
            return start + limit, [a + b for a, b in zip(sums, more, strict=True)], not_finite + bad

        def unfinished(start, sums, not_finite):
            return start < rows

        start = tf.zeros([], tf.int32)
        state = [start, zeros, tf.zeros([], tf.int64)]
        # One part after the other: side by side they would need the memory that they are there to save.
        _, sums, not_finite = tf.while_loop(unfinished, part, state, parallel_iterations=1)
        return sums, not_finite

    def _part(self, record, present, start, limit: int):
        """Rows ``start, start + 1, ...`` of a lot. The last part is as long as the others (a library sets itself up for every
        new length), with copies of the lot's last row that are not present; not where padding would be seen."""
        rows = tf.shape(present)[0]
        places = start + tf.range(tf.minimum(limit, rows))
        if not (self.jit_compile or self.masks_all_it_shows):
            places = places[: rows - start]
        shown = tf.minimum(places, rows - 1)
        record, present = map_tensors(lambda t: tf.gather(t, shown), (record, present))
        return record, present & (places < rows)

    def _physical(self, record, present, ellipsoid) -> tuple[list[tf.Tensor], tf.Tensor]:
        x, y, sample_weight = (*record, None, None)[:3]
        if self.jit_compile:
            found = self._compiled(x, y, sample_weight, present, ellipsoid)
        elif tf.executing_eagerly():
            # The engine tells examples by the dimension that a graph does not know: run_eagerly, too, needs one.
            tensors = (x, y, sample_weight, present)
            specs = map_tensors(lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), tensors)
            found = self._compiled.get_concrete_function(*specs, ellipsoid)(*tensors, ellipsoid)
        else:
            found = self._core(x, y, sample_weight, present, ellipsoid)
        sums, not_finite, y_pred, loss, outputs = found
        self._update_metrics(x, y, sample_weight, y_pred, present, loss, outputs)
        return sums, not_finite

    def _core(self, x, y, sample_weight, present, ellipsoid):
        with compiling(xla=self.jit_compile):
            found = lot_gradients(self.model, self.plan, x, y, sample_weight)
            sums, not_finite = self.mechanism.bounded_sum(found.gradients, present, *if_any(ellipsoid))
        loss = found.losses.reported(self.plan.shares, present)
        masks = keras.tree.map_structure(lambda t: getattr(t, "_keras_mask", None), found.y_pred)
        return sums, not_finite, (found.y_pred, masks), loss, found.losses.outputs

    def _update_metrics(self, x, y, sample_weight, y_pred, present, loss, outputs) -> None:
        """Keras's metrics over the records of the lot alone. They are not private."""
        model = self.model
        count = tf.reduce_sum(tf.cast(present, tf.float32))
        penalties = self._penalties(model.trainable_variables)
        model._loss_tracker.update_state(loss + (tf.add_n(penalties) if penalties else 0.0), sample_weight=count)
        if model._compile_loss is not None:
            for tracker, values in zip(model._compile_loss.metrics, outputs, strict=False):
                tracker.update_state(tf.boolean_mask(values, present))
        y_pred, masks = y_pred
        kept = lambda t: tf.boolean_mask(t, present)  # noqa: E731
        x, y, sample_weight, y_pred = map_tensors(kept, (x, y, sample_weight, y_pred))
        for value, mask in zip(keras.tree.flatten(y_pred), keras.tree.flatten(masks), strict=True):
            if mask is not None:
                value._keras_mask = kept(mask)
        model.compute_metrics(x, y, y_pred, sample_weight)


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


def _not_empty(record, present):
    """A model can't be run on no rows: an empty lot becomes one of zeros, or empty texts, that is not present."""
    empty = tf.equal(tf.shape(present)[0], 0)

    def filled(t):
        row = tf.concat([[1], tf.shape(t)[1:]], 0)
        return tf.fill(row, "") if t.dtype == tf.string else tf.zeros(row, t.dtype)

    def one_row_at_least(t):
        return tf.cond(empty, lambda: filled(t), lambda: tf.identity(t))

    return map_tensors(one_row_at_least, record), one_row_at_least(present)
