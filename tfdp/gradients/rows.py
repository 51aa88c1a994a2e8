"""What one lot shows of each of its rows: all that the engine makes a row's gradient of.

That is the row's own loss, its row of the inputs of every recorded call, and its row of the gradient there (the cotangent),
taken from the joint objective as the step takes it. Rules treat rows one by one, so if none of this depends on the other rows, no
gradient does. Of large tensors a few random projections are compared: a difference hides from them with probability 0.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients.draws import SEED, following
from tfdp.gradients.layer_tree import flat_tensors
from tfdp.gradients.made_up import size_of
from tfdp.gradients.one_trace import further
from tfdp.gradients.plan import Plan
from tfdp.gradients.recording import Call
from tfdp.gradients.reuse import NotedForward, Use
from tfdp.gradients.trial import Trial, traced, unpacked, values

PROJECTIONS = 4
_POOL = 2**16 + 1  # random numbers that projections are made of


@dataclasses.dataclass
class Sight:
    """One lot, seen row by row.

    Attributes:
        own: ``[B]``, each row's own loss.
        tensors: ``[n, B, 1 + projections]`` of each tensor that a recorded call is made of: size and projections of the row.
        of_the_lot: what a loss that makes one number of a lot says of this one, and activity regularisers; each with ``[B]``,
            what it says of each row alone.
        added: what each loss added for the whole lot is.
    """

    own: np.ndarray
    tensors: np.ndarray
    of_the_lot: list[tuple[np.ndarray, np.ndarray]]
    added: list[np.ndarray]

    def rows(self, places: Any) -> "Sight":
        return Sight(self.own[places], self.tensors[:, places], self.of_the_lot, self.added)

    @property
    def values(self) -> list[np.ndarray]:
        """Own losses first, then tensor after tensor."""
        return [self.own[:, None], *self.tensors]


@dataclasses.dataclass
class Pass:
    """What was traced: a pass, and the gradients of its objective at the taps of all calls and in the weights. ``row`` is a place in the lot."""

    forward: NotedForward
    calls: list[Call]
    at_taps: list
    at_weights: list
    row: tf.Tensor


class View:
    """A traced look at lots, by a plan. Tensors are numbered; ``layers`` says whose they are."""

    def __init__(self, trial: Trial, plan: Plan):
        self.trial, self.plan = trial, plan
        self.rules: set[tuple] = set()  # the plan's, as they were traced
        self.layers: list[keras.Layer] = []
        self.calls: list[Call] = []
        self.uses: list[Use] = []  # of weights, that the plan does not follow
        self.added_by: list[str] = []
        self.draws = self.draws_for_all = self.draws_hidden = self.reduces_by_itself = False
        self.folded: set[int] = set()  # by id, layers that see several rows an example
        whole = tf.TensorSpec([], tf.int32)
        spec = (trial.spec, tf.TensorSpec([None]), tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32), whole, SEED)
        self._function = traced(self._look, list(spec))

    @property
    def graph(self) -> tf.Graph:
        return self._function.get_concrete_function().graph

    def __call__(self, lot: Any, order: Any = None, scales: Any = None) -> Sight:
        """
        Args:
            lot: the records.
            order: where each row's random numbers are taken from; in order if not given.
            scales: what each row's own loss counts in the joint objective; 1 if not given.
        """
        own, tensors, of_the_lot, added, rows, drawn = self._run(self._function, lot, order, scales)
        size = size_of(lot)
        self.draws_for_all |= bool(np.any(drawn % size))
        self.folded |= {
            id(layer) for layer, r in zip(self._rows_of, rows, strict=True) if r > size > 1 and r % size == 0
        }
        return Sight(own, tensors, of_the_lot, added)

    @property
    def replays_random_numbers(self) -> bool:
        """Whether a layer that draws some is run a second time: it would draw others."""
        sites = self.plan.sites
        return any(
            c.drew_random_numbers and sites[id(c.layer)].runs_again for c in self._pass.calls if c.rows_of_its_own
        )

    def further(self, made: Callable[[Pass], Any]) -> Callable[..., Any]:
        """What is ``made`` of the same pass, as a function of a lot, ``scales`` and a ``row`` of it."""
        function = further(self._function.get_concrete_function(), lambda: made(self._pass))
        return lambda lot, scales=None, row=0: self._run(function, lot, None, scales, row)

    def _run(self, function: Callable, lot: Any, order: Any = None, scales: Any = None, row: int = 0) -> Any:
        size = size_of(lot)
        order = np.arange(size) if order is None else order
        scales = np.ones(size) if scales is None else scales
        shares = self.plan.shares or ["mean"] * len(self.added_by)
        factors = [{"mean": float(size), "sum": 1.0, "none": 0.0}[share] for share in shares]
        arguments = np.float32(scales), np.float32(factors), np.int32(order), np.int32(row)
        return self.trial.run(function, lot, *arguments, self.trial.secret)

    def _look(self, record, scales, factors, order, row, secret):
        x, y, sample_weight = unpacked(record)
        weights = values(self.trial.model)
        with tf.GradientTape(watch_accessed_variables=False) as tape, following(order) as lengths:
            tape.watch(weights)
            forward = NotedForward(tape, self.trial.model, self.plan, x, y, sample_weight, secret)
            losses, model = forward.losses, self.trial.model
            own = losses.own()
            objective = tf.reduce_sum(scales * own)
            objective += sum(loss * factors[number] for number, loss in enumerate(losses.added))
            objective *= forward.scale
        self.uses, self.rules = forward.used_elsewhere(objective), self.plan.rules_in_use
        calls = forward.sites(objective)
        taps = [tap for call in calls for tap in call.taps]
        gradients = tape.gradient(objective, [*taps, *weights])
        self._pass = Pass(forward, calls, gradients[: len(taps)], gradients[len(taps) :], row)
        found = iter(self._pass.at_taps)
        tensors, self.layers = [], []
        for call in calls:
            cotangents = [next(found) for _ in call.taps]
            seen = [t for t in flat_tensors((call.args, call.kwargs, call.kept)) if _is_number(t)]
            seen += [t._keras_mask for t in seen if getattr(t, "_keras_mask", None) is not None]
            for tensor in (*seen, *(tf.convert_to_tensor(d) for d in cotangents if d is not None)):
                tensors.append(by_row(tensor, forward.batch, len(tensors)))
                self.layers.append(call.layer)
        self.calls, self.added_by, self.draws = forward.record.calls, losses.added_by, forward.drawn.count > 0
        self.draws_for_all, self.draws_hidden = lengths.shared, lengths.hidden
        self.reduces_by_itself = losses.reduces_by_itself
        of_the_lot = list(losses.activity_of_the_lot)
        if losses.reduces_by_itself:
            of_the_lot.append((losses.of_the_lot(model, x, y, forward.y_pred, sample_weight), losses.main))
        stacked = tf.stack(tensors) if tensors else tf.zeros([0, forward.batch, 1 + PROJECTIONS])
        with_rows = [call for call in calls if call.rows_of_its_own]
        self._rows_of = [call.layer for call in with_rows]
        rows = [tf.shape(call.taps[0])[0] for call in with_rows]
        return own, stacked, of_the_lot, losses.added, rows, tf.stack(lengths.known or [0])


def by_row(tensor: tf.Tensor, batch: tf.Tensor, number: int) -> tf.Tensor:
    """``[B, 1 + projections]``. A tensor that has no rows, or not as many for each example, is the same to all.

    The ``number`` chooses the projections.
    """
    may_have_rows = bool(tensor.shape.rank and tensor.shape[0] is None)
    has_columns = bool(tensor.shape.rank and tensor.shape.rank > 1)
    flags = tf.constant(may_have_rows), tf.constant(has_columns)
    return _by_row()(tf.cast(tensor, tf.float32), *flags, batch, tf.constant(number * 7919))


@functools.cache
def _by_row() -> Callable:
    """One function for all tensors: they are many, and a graph that calls it has one operation for each, also where it runs.

    A direction is the outer product of two random vectors: one of the last axis, one of all between it and the rows. No difference is
    at right angles to all of them, and few numbers make a direction.
    """
    flag, whole = tf.TensorSpec([], tf.bool), tf.TensorSpec([], tf.int32)

    apart = {"_noinline": True}

    @tf.function(
        input_signature=[tf.TensorSpec(None), flag, flag, whole, whole], autograph=False, experimental_attributes=apart
    )
    def seen(values, may_have_rows, has_columns, batch, start):
        first = tf.reduce_prod(tf.shape(values)[:1])
        rows = tf.where(may_have_rows & (first % batch == 0) & (first > 0), batch, 1)
        columns = tf.where(has_columns, tf.reduce_prod(tf.shape(values)[-1:]), 1)
        width = tf.size(values) // rows
        between = width // tf.maximum(columns, 1)
        size = tf.sqrt(tf.reduce_mean(tf.square(tf.reshape(values, tf.stack([rows, width]))), 1, keepdims=True))
        lines = tf.matmul(tf.reshape(values, tf.stack([rows * between, columns])), _directions(start, columns))
        lines = tf.reshape(lines, tf.stack([rows, between, PROJECTIONS]))
        projected = tf.reduce_sum(lines * _directions(start + _POOL // 2, between), 1)
        projected /= tf.sqrt(tf.cast(tf.maximum(width, 1), tf.float32))
        return tf.broadcast_to(tf.concat([size, projected], 1), tf.stack([batch, 1 + PROJECTIONS]))

    return seen.get_concrete_function()


def _directions(start: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """``[count, projections]``"""
    return tf.gather(_pool(), (start + tf.range(count)) % _POOL)


@functools.cache
def _pool() -> tf.Tensor:
    with tf.init_scope():  # one for all graphs
        return tf.constant(np.random.default_rng(7).normal(size=[_POOL, PROJECTIONS]), tf.float32)


def _is_number(tensor: tf.Tensor) -> bool:
    """Keras's variables count as tensors there, and have no rows."""
    dtype = tensor.dtype if isinstance(tensor, tf.Tensor) else tf.string
    return dtype.is_floating or dtype.is_integer or dtype.is_bool
