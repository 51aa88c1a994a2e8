"""Networks that are measured beside those of the papers (`models/`): a small transformer, an LSTM, wide layers.

All give logits. The same builders run on Keras 2 (TensorFlow Privacy) and Keras 3.
"""

import keras
import tensorflow as tf
from keras import layers


class Positions(layers.Layer):
    """Numbers the tokens of each text from 0: what a position embedding looks up."""

    def call(self, tokens):
        return tf.zeros_like(tokens) + tf.range(tf.shape(tokens)[1], dtype=tokens.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


def transformer(
    words: int = 10000, length: int = 128, width: int = 64, blocks: int = 2, heads: int = 4, classes: int = 2
) -> keras.Model:
    """Token and position embedding, post-norm encoder blocks, mean over the text."""
    tokens = keras.Input((length,), dtype="int32")
    x = layers.Add()([layers.Embedding(words, width)(tokens), layers.Embedding(length, width)(Positions()(tokens))])
    for _ in range(blocks):
        attended = layers.MultiHeadAttention(heads, width // heads)(x, x)
        x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, attended]))
        wide = layers.Dense(4 * width, activation="relu")(x)
        x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, layers.Dense(width)(wide)]))
    return keras.Model(tokens, layers.Dense(classes)(layers.GlobalAveragePooling1D()(x)), name="transformer")


def lstm(
    words: int = 10000, length: int = 64, width: int = 32, units: int = 64, classes: int = 2, unroll: bool = False
) -> keras.Model:
    tokens = keras.Input((length,), dtype="int32")
    x = layers.LSTM(units, unroll=unroll)(layers.Embedding(words, width)(tokens))
    return keras.Model(tokens, layers.Dense(classes)(x), name="lstm")


def wide_mlp(width: int, inputs: int = 64, classes: int = 10) -> keras.Model:
    """Two layers of so many neurons."""
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            layers.Dense(width, activation="relu"),
            layers.Dense(width, activation="relu"),
            layers.Dense(classes),
        ],
        name="wide_mlp",
    )
