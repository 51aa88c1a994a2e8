"""Networks that are measured beside those of the papers: LeNet-5, a ResNet-18, a small transformer, an LSTM.

All give logits. The same builders run on Keras 2 (TensorFlow Privacy) and Keras 3.
"""

import keras
import tensorflow as tf
from keras import layers


def lenet5(classes: int = 10) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(6, 5, padding="same", activation="tanh"),
            layers.MaxPooling2D(2),
            layers.Conv2D(16, 5, activation="tanh"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(120, activation="tanh"),
            layers.Dense(84, activation="tanh"),
            layers.Dense(classes),
        ],
        name="lenet5",
    )


def resnet18(classes: int = 10, groups: int = 16) -> keras.Model:
    """ResNet-18 for images of 32 x 32, with group normalisation in place of batch normalisation."""

    def convolution(x, width, size, strides):
        return layers.Conv2D(width, size, strides=strides, padding="same", use_bias=False)(x)

    def normalised(x):
        return layers.GroupNormalization(groups, epsilon=1e-5)(x)

    def block(x, width, strides):
        straight = x
        if strides > 1 or x.shape[-1] != width:
            straight = normalised(convolution(x, width, 1, strides))
        x = layers.ReLU()(normalised(convolution(x, width, 3, strides)))
        x = normalised(convolution(x, width, 3, 1))
        return layers.ReLU()(layers.Add()([x, straight]))

    image = keras.Input((32, 32, 3))
    x = layers.ReLU()(normalised(convolution(image, 64, 3, 1)))
    for width, strides in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]:
        x = block(x, width, strides)
    return keras.Model(image, layers.Dense(classes)(layers.GlobalAveragePooling2D()(x)), name="resnet18")


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
