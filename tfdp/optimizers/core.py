"""The core of a private step: from a lot to the sum of its clipped gradients, as one traced function."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients import Plan, lot_gradients
from tfdp.gradients.compilation import compiling
from tfdp.gradients.draws import SEED
from tfdp.gradients.layer_tree import map_tensors
from tfdp.gradients.once import computed_once
from tfdp.gradients.state import check_model, handles, metrics_of
from tfdp.gradients.traced import digest
from tfdp.mechanisms import SecretGenerator
from tfdp.mechanisms.gaussian import if_any

# Of a lot's gradients and of which of its rows are records: a sum, and how many gradients were not finite.
BoundedSum = Callable[..., tuple[list[tf.Tensor], tf.Tensor]]


class Core:
    """Model, loss, per-example gradients and their bounded sum.

    Formal guarantee: once it is traced it is a function of records, weights, the mechanism's state and a secret that is drawn
    anew in every call. Whatever becomes of Python objects later does not change it. It writes metrics of layers and nothing else,
    and what it puts out depends on none of them.

    Args:
        model: the model.
        plan: where its gradients are taken, as proven.
        bounded_sum: the mechanism's.
        generator: where the secret of layers' random numbers comes from. None, where nothing is noised either: layers then
            draw what Keras draws, so that a step can be compared with one of Keras.
        jit_compile: whether XLA compiles it.
        unreadable: variables that it must not depend on: they change in every step.
    """

    def __init__(
        self,
        model: keras.Model,
        plan: Plan,
        bounded_sum: BoundedSum,
        generator: SecretGenerator | None,
        jit_compile: bool,
        unreadable: Sequence[tf.Variable] = (),
    ):
        self._model, self._plan, self._bounded_sum = model, plan, bounded_sum
        self._generator, self._jit_compile, self._unreadable = generator, jit_compile, unreadable
        self._seeds: list[tf.Variable] = []
        self._of_the_model = 0  # operations, in the graph

    def traced(self, record_spec: Any, ellipsoid: Any = None) -> "Core":
        """Trace it for lots of any size, and check the graph."""
        self._arguments = (*record_spec, None, None)[:3]
        self._function = self._new_function(ellipsoid)
        return self

    def _new_function(self, ellipsoid: Any) -> Callable:
        function = tf.function(self._run, jit_compile=self._jit_compile or None, autograph=False)
        present = tf.TensorSpec([None], tf.bool, name="present")
        secret = None if self._generator is None else SEED
        concrete = function.get_concrete_function(*self._arguments, present, ellipsoid, secret)
        argument = None
        if secret is not None:
            argument = next(tensor for tensor in concrete.graph.inputs if tensor.op.name == "secret")
        self._draws = secret is not None and _is_used(concrete.graph, argument)
        check_model(self._model, concrete.graph, argument, self._seeds, self._of_the_model, self._unreadable)
        return concrete

    def __call__(self, x, y, sample_weight, present, ellipsoid=None) -> Any:
        """``(sums, not finite, (y_pred, masks), loss, losses of outputs)``."""
        return self._function(x, y, sample_weight, present, ellipsoid, self._secret())

    def _secret(self) -> tf.Tensor | None:
        if self._generator is None:
            return None
        if not self._draws:
            return tf.zeros(SEED.shape, SEED.dtype)
        # Below 2^62: Keras makes seeds of these numbers modulo 2^31 - 2, and adds small ones to them before.
        return tf.cast(tf.bitwise.right_shift(self._generator.random_bits(2), tf.constant(2, tf.uint64)), tf.int64)

    def digest(self) -> str:
        """Equal for cores that do the same."""
        return digest(self._function.graph)

    def is_same_as(self, other: "Core") -> bool:
        """Whether both do the same with the very same variables and tensors from outside of the graph. Never where they read something
        else, such as a table of keys and values: it may have been filled anew."""
        own, others = ([outside for outside, _ in core._function.graph.captures] for core in (self, other))
        variables = handles(self._function.graph.variables)
        return (
            len(own) == len(others)
            and all(a is b for a, b in zip(own, others, strict=True))
            and all(id(a) in variables for a in own if a.dtype == tf.resource)
            and self._draws == other._draws
            and self.digest() == other.digest()
        )

    def untrained_values(self) -> list[np.ndarray]:
        """Of variables that it reads and no step moves."""
        moving = [*(v.value for v in self._model.trainable_variables), *metrics_of(self._model), *self._seeds]
        moving = handles(moving)
        return [v.numpy() for v in self._function.graph.variables if id(v.handle) not in moving]

    @property
    def arguments_and_results(self) -> tuple[Any, Any, Any]:
        """Specs of a record, of which rows are there, and of all that comes after the sums."""
        made = map_tensors(lambda t: tf.TensorSpec(t.shape, t.dtype), self._function.structured_outputs)
        return self._arguments, tf.TensorSpec([None], tf.bool), made[2:]

    def _run(self, x, y, sample_weight, present, ellipsoid, secret):
        with compiling(xla=self._jit_compile), computed_once():
            found = lot_gradients(self._model, self._plan, x, y, sample_weight, secret)
            self._of_the_model = len(tf.compat.v1.get_default_graph().get_operations())
            sums, not_finite = self._bounded_sum(found.gradients, present, *if_any(ellipsoid))
        self._seeds = found.seeds
        loss = found.losses.reported(self._plan.shares, present)
        masks = keras.tree.map_structure(lambda t: getattr(t, "_keras_mask", None), found.y_pred)
        return sums, not_finite, (found.y_pred, masks), loss, found.losses.outputs


def _is_used(graph: tf.Graph, tensor: tf.Tensor) -> bool:
    """Whether an operation of the graph, or the graph's caller, is given this tensor."""
    return bool(tensor.consumers()) or any(output is tensor for output in graph.outputs)
