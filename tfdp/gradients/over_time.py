"""A recurrent layer's loop, from outside of which the gradient at each step's input is seen at little cost.

TensorFlow keeps what a loop reads step by step in a list, and adds the gradient of each step to a list of zeros. Here steps are read
from the tensor itself, and each one's gradient is put in its place of a list that goes through the loop with the states.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfdp.gradients.compilation import under_xla

Step = Callable[[tf.Tensor, list[tf.Tensor]], tuple[tf.Tensor, Sequence[tf.Tensor]]]


def over_time(step: Step, x: tf.Tensor, states: Sequence[tf.Tensor], seen: tf.Tensor | None):
    """What ``step(x_t, states)`` puts out at every step of ``x``, ``[B, T, n]``, from first to last, and the states after that.

    Where ``seen``, ``[B, T, 1]``, is False, states stay, and what was put out last is put out again: zeros, if nothing was.
    """
    steps = x.shape[1] if x.shape[1] is not None else tf.shape(x)[1]
    by_step, gradients, of_step = _other_way_round(x), [], None
    if under_xla():  # has no lists with empty places
        of_step = tf.TensorArray(x.dtype, steps).unstack(by_step).read
    else:
        by_step, gradients = tf.stop_gradient(by_step), [_gradients_at(x, steps)]
    of_first, _ = step(by_step[0], list(states))  # for its shape and type
    before = [] if seen is None else [tf.zeros_like(of_first)]

    def body(t, gradients, outputs, before, *states):
        if of_step is not None:
            x_t = of_step(t)
        else:
            x_t, *gradients = _shown(by_step, t, *gradients)
        output, after = step(x_t, list(states))
        if seen is not None:
            looked_at = seen[:, t]
            output = tf.where(looked_at, output, before[0])
            after = [tf.where(looked_at, new, old) for new, old in zip(after, states, strict=True)]
            before = [output]
        return t + 1, gradients, outputs.write(t, output), before, *after

    outputs = tf.TensorArray(of_first.dtype, steps, element_shape=of_first.shape)
    _, _, outputs, _, *states = tf.while_loop(
        lambda t, *_: t < steps,
        body,
        (tf.constant(0), gradients, outputs, before, *states),
        maximum_iterations=steps,
    )
    return _other_way_round(outputs.stack()), states


def _gradients_at(x: tf.Tensor, steps: int | tf.Tensor) -> tf.Tensor:
    """A list with a place for each step. The gradient at ``x`` is what is put there in the backward pass."""
    shape = tf.constant([-1, *x.shape[2:]])

    @tf.custom_gradient
    def opened(x):
        def closed(gradients):
            found = tf.raw_ops.TensorListStack(input_handle=gradients, element_shape=shape, element_dtype=x.dtype)
            return _other_way_round(found)

        return tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=steps, element_dtype=x.dtype), closed

    return opened(x)


def _shown(by_step: tf.Tensor, t: tf.Tensor, gradients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """``x_t``, whose gradient goes to the list."""

    @tf.custom_gradient
    def shown(gradients):
        def put(d, found):
            return tf.raw_ops.TensorListSetItem(input_handle=found, index=t, item=d)

        return (by_step[t], tf.identity(gradients)), put

    return shown(gradients)


def _other_way_round(values: tf.Tensor) -> tf.Tensor:
    """``[B, T, n]`` and ``[T, B, n]``."""
    return tf.transpose(values, [1, 0, *range(2, len(values.shape))])
