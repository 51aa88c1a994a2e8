"""The optimizer inside a private one: which may be, and that nobody but the private step reaches the weights through it."""

import contextlib

import keras
import tensorflow as tf

from tfdp.gradients.layer_tree import instance_attribute

ONLY_FIT = (
    "A private optimizer moves weights only inside model.fit, where lots are drawn, gradients clipped and noised, and "
    "the ledger written. Write model.compile(optimizer=...) and model.fit(x, y, batch_size=expected_lot_size). A train_step or a loop of your "
    "own can't use it: put its loss into call() and compute_loss() of a model that fit trains."
)


def refuse_apply(*args, **kwargs):
    raise RuntimeError(ONLY_FIT)


def check_inner(inner: keras.optimizers.Optimizer) -> None:
    """Inner optimizers that would undo what the mechanism does."""
    if not isinstance(inner, keras.optimizers.Optimizer):
        raise ValueError(f"inner_optimizer must be a Keras optimizer, not {inner!r}.")
    if isinstance(inner, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "LossScaleOptimizer reacts to the data (it skips steps whose gradients overflow). Give its inner optimizer; "
            "float16 gradients are scaled by a fixed number before clipping."
        )
    if inner.gradient_accumulation_steps:
        raise ValueError(
            "gradient_accumulation_steps would add up private gradients, each noised by itself. For large lots on little "
            "memory give the large batch_size to fit and max_physical_batch= to the private optimizer."
        )
    if inner.loss_scale_factor:
        raise ValueError("loss_scale_factor is not needed: float16 gradients are scaled inside the private step.")


def nothing_to_reduce(inner: keras.optimizers.Optimizer) -> contextlib.AbstractContextManager:
    """Within it an optimizer of one replica does not add up gradients over replicas.

    There is nothing to add, but TensorFlow registers a gradient of the sum under a new name in every trace, for good, and with it
    keeps the step's whole graph: a process that trains many models would grow by a graph for each of them.
    """
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        return contextlib.nullcontext()
    return instance_attribute(inner, "_all_reduce_sum_gradients", lambda grads_and_vars: grads_and_vars)
