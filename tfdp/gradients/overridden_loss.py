"""What a ``compute_loss`` of the user's own makes of the losses that layers add: ``add_loss``, activity and weight regularisers.

``keras.Model.compute_loss`` adds each of them once, and so does the engine, past ``compute_loss``. One that leaves them out,
or weighs them, is asked here what each of them counts: the derivative of what it says of an example by itself.
"""

import numpy as np
import tensorflow as tf

from tfdp.gradients.draws import drawing_from
from tfdp.gradients.layer_tree import added_losses, attributes
from tfdp.gradients.losses import metrics_at_rest
from tfdp.gradients.state import no_state_assigned
from tfdp.gradients.trial import Trial, unpacked

_DRAWS = 3  # of what each weight's regulariser is said to be: a factor is the same for all of them


def weighting(trial: Trial) -> tuple[bool, dict[int, float]]:
    """Whether every loss that depends on data counts once, and how often each weight's regulariser does, by ``id(weight)``.

    Raises:
        ValueError: how often a weight's regulariser counts depends on the data, or on what the regularisers say.
    """
    model = trial.model
    regularized = [v for v in model.trainable_variables if v.regularizer is not None]
    levels = np.random.default_rng(7).uniform(0.5, 5.0, (_DRAWS, len(regularized)))

    @trial.function
    def weights(record, draw, secret):
        x, y, sample_weight = unpacked(record)
        said = tf.constant(levels, tf.float32)[draw]
        penalties = [tf.cast(said[i], v.dtype) for i, v in enumerate(regularized)]
        constant = [lambda _, penalty=penalty: penalty for penalty in penalties]
        pinned = no_state_assigned(model), drawing_from(secret), metrics_at_rest(model)
        with pinned[0], pinned[1], pinned[2], tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            added = added_losses(model)
            tape.watch([*added, *penalties])
            with attributes(regularized, "regularizer", constant):
                loss = tf.reduce_sum(model._compute_loss(x, y, y_pred, sample_weight, training=True))
        model._clear_losses()
        found = tape.gradient(loss, [*added, *penalties], unconnected_gradients="zero")
        found = [tf.cast(tf.reshape(weight, [-1]), tf.float32) for weight in found]
        return tf.concat([tf.zeros([0]), *found[: len(added)]], 0), tf.concat([tf.zeros([0]), *found[len(added) :]], 0)

    lots = trial.records.rows([0]), trial.records.rows([1])
    found = [trial.run(weights, lot, draw, trial.secret) for lot in lots for draw in range(_DRAWS)]
    with trial.state.other_weights():
        found.append(trial.run(weights, lots[0], 0, trial.secret))
    as_keras = all(np.allclose(added, 1.0, rtol=1e-4) for added, _ in found)
    own = [penalties for _, penalties in found]
    if not all(np.allclose(penalties, own[0], rtol=1e-4, atol=1e-6) for penalties in own):
        raise ValueError(
            f"compute_loss of the model {model.name!r} lets the data, the weights or a variable decide how much the weights' regularisers "
            f"count. Nothing that depends on data may move weights without clip and noise: add self.losses to the loss with fixed factors."
        )
    return as_keras, {id(v): float(weight) for v, weight in zip(regularized, own[0], strict=True)}
