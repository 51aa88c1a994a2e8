"""What the self-proof runs on: a model, made-up records, and everything random or stateful pinned to one value."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients.draws import SEED
from tfdp.gradients.fixed_batch import told_if_fixed
from tfdp.gradients.layer_tree import all_layers, components, differentiable, map_tensors, seed_generators
from tfdp.gradients.losses import loss_of_records
from tfdp.gradients.made_up import made_up_records
from tfdp.gradients.once import computed_once
from tfdp.gradients.rounding import NEARBY, persisting
from tfdp.gradients.state import metrics_of, no_state_assigned

ROUNDING = {"float16": 3e-2, "bfloat16": 2e-1}  # of a gradient in these types, when a lot's size changes


def traced(function: Callable, signature: list) -> Callable:
    """A function of the self-proof, traced once for lots of all sizes."""

    @functools.wraps(function)
    def lean(*arguments):
        with computed_once():
            return function(*arguments)

    return tf.function(lean, input_signature=signature, autograph=False)


class Trial:
    """Runs functions of lots under pinned conditions, and compares what they gave."""

    def __init__(self, model: keras.Model, record_spec: Any, sample: Any, state: "PinnedState"):
        self.model, self.spec, self.state = model, record_spec, state
        self.round_number = 0  # of the random numbers every run is pinned to
        self.tolerance = max([1e-3, *(ROUNDING.get(layer.compute_dtype, 0.0) for layer in all_layers(model))])
        with told_if_fixed(model):
            self.records = made_up_records(record_spec, sample, self._loss_is_finite)

    @property
    def secret(self) -> tf.Tensor:
        """What random numbers are made of in this round."""
        return tf.constant([20190 + self.round_number, 1], SEED.dtype)

    def function(self, of_lot_and_place):
        """Traced once for lots of all sizes: of a lot, a place in it and the seed of random numbers."""
        return traced(of_lot_and_place, [self.spec, tf.TensorSpec([], tf.int32), SEED])

    def run(self, function, lot: Any, *arguments: Any) -> Any:
        self.state.restore()
        lot = map_tensors(tf.convert_to_tensor, lot)
        return keras.tree.map_structure(lambda t: t.numpy(), function(lot, *map(tf.convert_to_tensor, arguments)))

    def close(self, found, expected, tolerance: float | None = None) -> bool:
        """Equal to rounding. Where the example alone is not finite already, nothing can be told."""
        return not np.isfinite(total_norm(expected)) or not self.apart(found, expected, tolerance)

    def apart(self, found, expected, tolerance: float | None = None) -> list[int]:
        """The places of the arrays that are not equal to rounding."""
        everywhere = self._differences(found, expected, tolerance)
        return [i for i, difference in enumerate(everywhere) if not np.linalg.norm(difference) <= 1]

    def persisting(self, pair: Callable[[], tuple], places: list[int], tolerance: float | None = None) -> list[int]:
        """Of these places of two lists of gradients, those where more than rounding at a kink sets them apart.

        ``pair`` finds both, (found, expected), anew at the present weights. Places are in their order.
        """
        if not places:
            return []

        def differences():
            everywhere = enumerate(self._differences(*pair(), tolerance))
            return [difference for i, difference in everywhere if i in places]

        return [places[i] for i in persisting(self.state.nearby_weights, differences)]

    def _differences(self, found, expected, tolerance: float | None) -> Iterator[np.ndarray]:
        """In units of what is tolerated."""
        tolerance = self.tolerance if tolerance is None else tolerance
        overall = total_norm(expected)
        for a, b in zip(found, expected, strict=True):
            yield (np.float64(a) - np.float64(b)) / (tolerance * (np.linalg.norm(b) + 1e-3 * overall) + 1e-12)

    def _loss_is_finite(self, record: Any) -> bool:
        """Run the model and its loss once on these records: whatever is wrong with them shows here."""
        loops = any(isinstance(layer, keras.layers.RNN) for layer in all_layers(self.model))
        loss_of = tf.function(self._loss_of, autograph=False) if loops else self._loss_of  # round by round is slow
        loss = loss_of(map_tensors(tf.convert_to_tensor, record))
        return bool(np.all(np.isfinite(keras.ops.convert_to_numpy(loss))))

    def _loss_of(self, record: Any) -> tf.Tensor:
        x, y, sample_weight = unpacked(record)
        with no_state_assigned(self.model):
            y_pred = self.model(x, training=False)
        loss = loss_of_records(self.model, x, y, y_pred, sample_weight)
        self.model._clear_losses()
        return loss


class PinnedState:
    """Metrics and weights as they were: every probe starts from the same ones, and nothing is left moved."""

    def __init__(self, model: keras.Model):
        self._model = model
        self._kept = [(part, part.numpy()) for v in metrics_of(model) for part in components(v)]
        self._kept += [(part, part.numpy()) for g in seed_generators(model) for part in components(g.state.value)]
        self._weights: list = []
        self._switches: list = []  # single numbers that are not trained

    def also(self, variables: Iterable[tf.Variable]) -> None:
        """Everything else that the traced graph reads, tracked by Keras or not."""
        fixed = {id(variable) for variable, _ in self._kept}
        others = [v for v in variables if id(v) not in fixed]
        self._weights = [(v, v.numpy()) for v in others if v.dtype.is_floating]
        trained = {id(part) for v in self._model.trainable_variables for part in components(v.value)}
        small = [v for v in others if id(v) not in trained and v.shape.num_elements() == 1]
        self._switches = [(v, v.numpy()) for v in small if v.dtype.is_floating or v.dtype.is_integer or v.dtype.is_bool]

    def restore(self) -> None:
        for variable, value in self._kept:
            variable.assign(value)

    @contextlib.contextmanager
    def other_weights(self) -> Iterator[None]:
        """Every weight moved a little off its value, upwards, so that variances stay positive and zeros don't stay."""
        with self._moved(self._weights):
            yield

    @contextlib.contextmanager
    def nearby_weights(self, number: int) -> Iterator[None]:
        """Every weight moved a very little off its present value; ``number`` says which way."""
        rng = np.random.default_rng(number)
        present = [(v, v.numpy()) for v, _ in self._weights]
        try:
            for variable, value in present:
                variable.assign((value + NEARBY * rng.random(value.shape) * np.abs(value)).astype(value.dtype))
            yield
        finally:
            for variable, value in present:
                variable.assign(value)

    @property
    def has_switches(self) -> bool:
        return bool(self._switches)

    @contextlib.contextmanager
    def switched(self, value: float) -> Iterator[None]:
        """Every single number that is not trained, at this value."""
        try:
            for variable, _ in self._switches:
                variable.assign(np.full(variable.shape, value).astype(variable.dtype.as_numpy_dtype))
            yield
        finally:
            for variable, before in self._switches:
                variable.assign(before)

    @contextlib.contextmanager
    def _moved(self, variables: list) -> Iterator[None]:
        rng = np.random.default_rng(7)
        try:
            for variable, value in variables:
                variable.assign(value + 0.1 * rng.uniform(0.5, 1.5, value.shape) * (1 + np.abs(value)))
            yield
        finally:
            for variable, value in variables:
                variable.assign(value)


def unpacked(record):
    return (*record, None, None)[:3]


def values(model):
    return differentiable(model.trainable_variables)


def dense(gradients, model) -> list[tf.Tensor]:
    return [
        tf.zeros(v.shape) if g is None else tf.cast(tf.convert_to_tensor(g), tf.float32)
        for g, v in zip(gradients, model.trainable_variables, strict=True)
    ]


def total_norm(arrays) -> float:
    return float(np.sqrt(sum(np.sum(np.square(np.float64(a))) for a in arrays)))
