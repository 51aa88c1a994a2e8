"""Each example's own loss: what ``model.compute_loss`` says of the example alone, as a batch of one.

Private training differentiates ``sum_i L_i`` with ``L_i`` a function of example i alone. Keras's batch loss is not that sum:
masked and weighted losses divide by the valid tokens or weights of the whole lot, activity regularisers by its size. So the
reduction is redone an example at a time, with Keras's own elementwise losses; a loss that reduces by itself (a custom
function, an overridden ``compute_loss``) is evaluated on batches of one.

Weight regularisers are not part of ``L_i``: they don't depend on data and are added after the noise.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdp.gradients.layer_tree import (
    added_losses,
    all_layers,
    attributes,
    flat_tensors,
    instance_attribute,
    shallow_copy,
)
from tfdp.gradients.loss_calls import LotCalls
from tfdp.gradients.per_example import MAP, VECTORIZED, each_example
from tfdp.gradients.recording import Recording
from tfdp.gradients.shadows import shadowed

_SUMS_OF_ELEMENTS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
_MATRIX_PRODUCTS = {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"}


def own_reduction(values, sample_weight, mask, reduction, dtype) -> tf.Tensor:
    """``[B, ...]`` elementwise losses to ``[B]``: ``keras.losses.Loss``'s reduction of each row as a batch of one."""
    if mask is not None:
        weight = tf.cast(mask, dtype)
        if reduction in ("mean", "sum_over_batch_size"):
            valid = _row_sums(weight)
            total = _row_sums(tf.ones_like(weight))
            weight = weight * _aligned(tf.math.divide_no_nan(total, valid), weight)
        if sample_weight is not None:
            sample_weight = tf.cast(sample_weight, dtype)
            weight, sample_weight = _same_rank(weight, sample_weight)
            weight = weight * sample_weight
        sample_weight = weight
    if sample_weight is not None:
        values, sample_weight = _same_rank(values, tf.cast(sample_weight, dtype))
        values = values * sample_weight
    summed = _row_sums(values)
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        return tf.math.divide_no_nan(summed, _row_sums(sample_weight))
    if reduction in ("mean", "sum_over_batch_size", "mean_with_sample_weight") and len(values.shape) > 1:
        size = values.shape[1:].num_elements()
        return summed / size if size else tf.math.divide_no_nan(summed, _row_sums(tf.ones_like(values)))
    return summed


def _row_sums(values: tf.Tensor) -> tf.Tensor:
    return values if len(values.shape) == 1 else tf.reduce_sum(values, list(range(1, len(values.shape))))


def _aligned(vector: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    return tf.reshape(vector, [-1] + [1] * (len(like.shape) - 1))


def _same_rank(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Drop or add trailing dimensions of size 1, examples first."""
    while len(a.shape) > len(b.shape) and len(a.shape) > 1 and a.shape[-1] == 1:
        a = tf.squeeze(a, -1)
    while len(b.shape) > len(a.shape) and b.shape[-1] == 1:
        b = tf.squeeze(b, -1)
    while len(b.shape) < len(a.shape):
        b = b[..., None]
    while len(a.shape) < len(b.shape):
        a = a[..., None]
    return a, b


class OwnLoss:
    """Stands for a ``keras.losses.Loss`` and returns one value an example."""

    def __init__(self, loss: keras.losses.Loss, alone: bool):
        self.loss = loss
        self.alone = alone
        self.reduces_by_itself = False

    def __call__(self, y_true, y_pred, sample_weight=None):
        values = mask = None
        if type(self.loss).__call__ is keras.losses.Loss.__call__ and not self.alone:
            cast = lambda t: keras.ops.convert_to_tensor(t, dtype=self.loss.dtype)  # noqa: E731
            values = self.loss.call(keras.tree.map_structure(cast, y_true), keras.tree.map_structure(cast, y_pred))
            mask = _joint_mask(y_pred, values)
        self.reduces_by_itself = values is None or len(values.shape) == 0 or values.shape[0] is not None
        if self.reduces_by_itself:
            one = lambda parts, _: tf.reshape(self.loss(*parts), [-1])  # noqa: E731
            return own_values(one, (y_true, y_pred, sample_weight))
        return own_reduction(values, sample_weight, mask, self.loss.reduction, self.loss.dtype)


def _joint_mask(y_pred, values):
    masks = [getattr(t, "_keras_mask", None) for t in (y_pred, values)]
    masks = [mask for mask in masks if mask is not None]
    return None if not masks else masks[0] if len(masks) == 1 else masks[0] & masks[1]


def own_values(function, structure: Any) -> tf.Tensor:
    """``function(structure of example i, i)``, summed to one number, for every example."""
    leaves = flat_tensors(structure)
    marks = [(leaf, name) for leaf in leaves for name in ("_keras_mask", "_keras_logits") if _marked(leaf, name)]
    tensors = [*leaves, *(getattr(leaf, name) for leaf, name in marks)]

    def one(slices, index):
        parts = iter(slices[: len(leaves)])
        own = {id(leaf): next(parts) for leaf in leaves}
        for (leaf, name), value in zip(marks, slices[len(leaves) :], strict=True):
            setattr(own[id(leaf)], name, value)
        rebuilt = keras.tree.map_structure(lambda t: own[id(t)] if tf.is_tensor(t) else t, structure)
        return tf.reduce_sum(function(rebuilt, index))

    batch = tf.shape(leaves[0])[0]
    specs = [tf.TensorSpec([1, *t.shape[1:]], t.dtype) for t in tensors]
    graph = tf.function(one, autograph=False).get_concrete_function(specs, tf.TensorSpec([], tf.int32)).graph
    products = _MATRIX_PRODUCTS & {operation.type for operation in graph.get_operations()}
    return each_example(one, batch, tensors, MAP if products else VECTORIZED)


def _marked(tensor: tf.Tensor, name: str) -> bool:
    return getattr(tensor, name, None) is not None


def loss_of_records(model: keras.Model, x, y, y_pred, sample_weight) -> tf.Tensor:
    """What ``compute_loss`` says of records that have values, and of the model's output for them.

    In a graph, as in a step: of several outputs with ``loss=[f, None]`` Keras takes a tensor of values with as many rows as the
    model has outputs for a list of targets, one an output.
    """

    @tf.function(autograph=False)
    def loss(x, y, sample_weight):
        return model._compute_loss(x, y, y_pred, sample_weight, training=False)

    # Not by a call of the function, which TensorFlow would count as one more that is traced again and again, and warn of.
    return loss.get_concrete_function(x, y, sample_weight)(x, y, sample_weight)


def overrides_the_loss(model: keras.Model) -> bool:
    return type(model).compute_loss is not keras.Model.compute_loss


@contextlib.contextmanager
def without_weight_regularizers(model: keras.Model) -> Iterator[None]:
    """``model.losses`` without the part that doesn't depend on data; zeros stand in it for who may count what there is."""
    regularized = [v for v in model.trainable_variables if v.regularizer is not None]
    zeros = [lambda _, dtype=v.dtype: tf.zeros([], dtype) for v in regularized]
    with attributes(regularized, "regularizer", zeros if overrides_the_loss(model) else [None] * len(regularized)):
        yield


@contextlib.contextmanager
def losses_of_one_device() -> Iterator[None]:
    """In a replica of a ``tf.distribute`` strategy Keras divides losses by the number of replicas, and means gradients to be
    summed. Gradients that are clipped must be those of the losses themselves."""
    with shadowed(keras.src.losses.loss, "scale_loss_for_distribution", lambda original, value: value):
        yield


@contextlib.contextmanager
def metrics_at_rest(model: keras.Model) -> Iterator[None]:
    """An overridden ``compute_loss`` may update metrics of its own; not once an example."""
    with contextlib.ExitStack() as shadows:
        for metric in model.metrics:
            shadows.enter_context(instance_attribute(metric, "update_state", lambda *args, **kwargs: None))
        yield


class Tracker:
    """Takes the place of the Mean that CompileLoss keeps for each output."""

    def update_state(self, value, sample_weight=None):
        self.value = value


def _of_the_lot(model: keras.Model, *arguments) -> tf.Tensor:
    """What ``compute_loss`` says of the lot, while the step keeps the losses of outputs."""
    compile_loss = model._compile_loss and shallow_copy(model._compile_loss)
    if compile_loss is not None:
        compile_loss._metrics = [Tracker() for _ in compile_loss._metrics]
    with instance_attribute(model, "_compile_loss", compile_loss):
        return model._compute_loss(*arguments, training=True)


def calls_of_the_loss(model: keras.Model, record: Recording, *arguments) -> LotCalls | None:
    """The layers that a ``compute_loss`` of the user's own calls, called for the whole lot. To be made while ``record`` is."""
    if not overrides_the_loss(model):
        return None
    return LotCalls(model, record, arguments, functools.partial(_of_the_lot, model))


class OwnLosses:
    """The losses of one forward pass, an example at a time.

    Attributes:
        main: ``[B]``, what ``compute_loss`` says of each example.
        activity: ``[B]``, activity regularisers; None without any.
        added: scalars from ``add_loss``, of the whole lot; what one example's share of them is, see ``objective``.
        outputs: ``[B]`` vectors, one an output, for Keras's loss metrics (only where there are several).
        reduces_by_itself: whether the loss was evaluated on batches of one, because it makes one number of a lot by
            itself; ``of_the_lot`` is that number then.
    """

    def __init__(
        self,
        model: keras.Model,
        record: Recording,
        x,
        y,
        y_pred,
        sample_weight,
        alone: bool = False,
        calls: LotCalls | None = None,
    ):
        self.batch = tf.shape(flat_tensors(x)[0])[0]
        self.added = [tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in added_losses(model)]
        adding = [(layer, len(layer._losses)) for layer in all_layers(model) if layer._losses]
        self.added_by = [layer.name for layer, count in adding for _ in range(count)]
        self._adding = adding if overrides_the_loss(model) else []
        model._clear_losses()
        self.reduces_by_itself, self._alone, self._calls = False, alone, calls
        self.outputs: list[tf.Tensor] = []
        with without_weight_regularizers(model), self._added_at_zero():
            self.main = tf.cast(self._main(model, x, y, y_pred, sample_weight), tf.float32)
        self.activity: tf.Tensor | None = None
        self.activity_of_the_lot: list[tuple[tf.Tensor, tf.Tensor]] = []  # of regularisers of the user's own
        for regularizer, output in record.activity:
            own = own_activity(regularizer, output)
            self.activity = own if self.activity is None else self.activity + own
            if type(regularizer) not in _SUMS_OF_ELEMENTS:
                self.activity_of_the_lot.append((tf.cast(regularizer(output), tf.float32), own))

    def _main(self, model, x, y, y_pred, sample_weight) -> tf.Tensor:
        compile_loss = model._compile_loss
        arguments = (x, y, y_pred, sample_weight)
        if overrides_the_loss(model):
            self.reduces_by_itself = True
            return self._by_compute_loss(model, arguments)
        if compile_loss is None:
            return tf.zeros([self.batch])
        own = shallow_copy(compile_loss)
        own._flat_losses = [flat._replace(loss=OwnLoss(flat.loss, self._alone)) for flat in compile_loss._flat_losses]
        own._metrics = trackers = [Tracker() for _ in compile_loss._metrics]
        with instance_attribute(model, "_compile_loss", own):
            value = model._compute_loss(*arguments, training=True)
        self.outputs = [tracker.value for tracker in trackers if hasattr(tracker, "value")]
        self.reduces_by_itself = any(flat.loss.reduces_by_itself for flat in own._flat_losses)
        return value

    def _by_compute_loss(self, model: keras.Model, arguments: tuple) -> tf.Tensor:
        calls = self._calls
        outputs = [] if calls is None else calls.outputs

        def loss(parts, _):
            at_hand = contextlib.nullcontext() if calls is None else calls.at_hand(*parts)
            with metrics_at_rest(model), at_hand:
                return model._compute_loss(*parts[0], training=True)

        own = own_values(loss, (arguments, outputs))
        if calls is None:
            self.of_the_lot(model, *arguments)  # for the metrics that it keeps by itself
        return own

    def of_the_lot(self, model: keras.Model, x, y, y_pred, sample_weight) -> tf.Tensor:
        """What ``compute_loss`` itself says of the whole lot, without the losses counted elsewhere."""
        with without_weight_regularizers(model), self._added_at_zero():
            return tf.cast(_of_the_lot(model, x, y, y_pred, sample_weight), tf.float32)

    @contextlib.contextmanager
    def _added_at_zero(self) -> Iterator[None]:
        """``model.losses`` has zeros where layers added losses, for a ``compute_loss`` that may count them."""
        try:
            for layer, count in self._adding:
                layer._losses[:] = [tf.zeros([]) for _ in range(count)]
            yield
        finally:
            for layer, _ in self._adding:
                layer._losses.clear()

    def own(self) -> tf.Tensor:
        """Each example's own loss, but for losses added for the whole lot, ``[B]``."""
        return self.main if self.activity is None else self.main + self.activity

    def objective(self, shares: list[str]) -> tf.Tensor:
        """``sum_i L_i``. A loss added for the whole lot is the examples' ``"mean"`` or their ``"sum"``."""
        value = tf.reduce_sum(self.own())
        for loss, share in zip(self.added, shares, strict=True):
            value += loss * tf.cast(self.batch, tf.float32) if share == "mean" else loss
        return value

    def reported(self, shares: list[str], present: tf.Tensor) -> tf.Tensor:
        """The mean of the present examples' losses, for Keras's loss metric (not private)."""
        count = tf.reduce_sum(tf.cast(present, tf.float32))
        own = tf.where(present, self.own(), 0.0)
        added = [
            s if share == "mean" else s / tf.cast(self.batch, tf.float32)
            for s, share in zip(self.added, shares, strict=True)
        ]
        mean = tf.math.divide_no_nan(tf.reduce_sum(own), count)
        return mean + tf.add_n(added) if added else mean


def own_activity(regularizer, output: tf.Tensor) -> tf.Tensor:
    """An activity regulariser of each row of a layer's output, ``[B]``."""
    output = tf.cast(output, tf.float32)
    if type(regularizer) in _SUMS_OF_ELEMENTS:
        l1, l2 = getattr(regularizer, "l1", 0.0), getattr(regularizer, "l2", 0.0)
        return l1 * _row_sums(tf.abs(output)) + l2 * _row_sums(tf.square(output))
    return own_values(lambda parts, _: regularizer(parts[0]), (output,))
