"""Batch normalization by statistics that stay as they are."""

import keras

from tfdp.gradients.rules.elementwise import batch_normalization
from tfdp.gradients.rules.registry import at_output, rule


@keras.saving.register_keras_serializable("tfdp")
class FrozenBatchNormalization(keras.layers.BatchNormalization):
    """``keras.layers.BatchNormalization`` that runs on its moving mean and variance in training too, and never moves them.

    What it makes of an example is a function of that example, so it can be trained privately. Scale (gamma) and offset (beta)
    are trained like all weights, unless ``trainable=False``. Arguments and variables are those of Keras's layer: weights of
    one can be loaded into the other.
    """

    def call(self, inputs, training=None, mask=None):
        return super().call(inputs, training=False, mask=mask)


rule(FrozenBatchNormalization, tap=at_output)(batch_normalization)
