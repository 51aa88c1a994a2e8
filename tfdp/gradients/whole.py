"""The last resort: the whole model, loss included, as one function of one example.

Nothing is factored and nothing is shared between examples: B models are run. It is right wherever the model runs on a batch
of one, also where a layer draws random numbers and reads its own weights (every example then has its own stream).
"""

import keras
import tensorflow as tf

from tfdp.gradients.draws import drawing_from
from tfdp.gradients.engine import LotGradients, LotPass, loss_scale
from tfdp.gradients.factored import Materialised
from tfdp.gradients.layer_tree import differentiable, flat_tensors, instance_attribute, seed_generators, shallow_copy
from tfdp.gradients.losses import Tracker, metrics_at_rest, without_weight_regularizers
from tfdp.gradients.per_example import each_example
from tfdp.gradients.state import no_state_assigned


class WholeLosses:
    """The own losses of a lot that was run an example at a time."""

    def __init__(self, main: tf.Tensor, outputs: list[tf.Tensor]):
        self.main = main
        self.outputs = outputs

    def reported(self, shares, present):
        own = tf.where(present, self.main, 0.0)
        return tf.math.divide_no_nan(tf.reduce_sum(own), tf.reduce_sum(tf.cast(present, tf.float32)))


def whole_model_gradients(model: keras.Model, plan, x, y, sample_weight, secret: tf.Tensor | None = None) -> LotPass:
    """The gradients of a lot. Without a secret the examples' streams start from the first seed generator's seed."""
    variables = model.trainable_variables
    scale = loss_scale(model)
    arguments = (x, y, sample_weight)
    leaves = flat_tensors(arguments)
    seeds = []
    if secret is None:
        generator = seed_generators(model)[0]
        secret, seeds = tf.cast(generator.next(), tf.int64), [generator.state.value]
    batch = tf.shape(leaves[0])[0]

    def one(slices, index):
        parts = iter(slices)
        own = {id(leaf): next(parts) for leaf in leaves}
        own_x, own_y, own_weight = keras.tree.map_structure(lambda t: own[id(t)] if tf.is_tensor(t) else t, arguments)
        with tf.GradientTape() as tape, drawing_from(secret, index):
            y_pred = model(own_x, training=True)
            loss, outputs = _own_loss(model, own_x, own_y, y_pred, own_weight)
            objective = loss * scale
        found = tape.gradient(objective, differentiable(variables))
        found = [
            tf.zeros(v.shape) if g is None else tf.cast(tf.convert_to_tensor(g), tf.float32)
            for g, v in zip(found, variables, strict=True)
        ]
        y_pred = keras.tree.map_structure(lambda t: t[0], y_pred)
        return {"gradients": found, "y_pred": y_pred, "loss": loss, "outputs": outputs}

    with no_state_assigned(model), metrics_at_rest(model):
        found = each_example(one, batch, leaves, plan.whole[0])
    gradients = [Materialised(g, v.shape) for g, v in zip(found["gradients"], variables, strict=True)]
    losses = WholeLosses(found["loss"], list(found["outputs"]))
    return LotPass(LotGradients(gradients, variables, batch, scale), found["y_pred"], losses, seeds)


def _own_loss(model, x, y, y_pred, sample_weight):
    compile_loss = model._compile_loss
    trackers = []
    if compile_loss is not None:
        compile_loss = shallow_copy(compile_loss)
        compile_loss._metrics = trackers = [Tracker() for _ in compile_loss._metrics]
    with instance_attribute(model, "_compile_loss", compile_loss), without_weight_regularizers(model):
        loss = model._compute_loss(x, y, y_pred, sample_weight, training=True)
    model._clear_losses()
    outputs = [tf.reduce_sum(tracker.value) for tracker in trackers if hasattr(tracker, "value")]
    return tf.cast(tf.reduce_sum(loss), tf.float32), outputs
