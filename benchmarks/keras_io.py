"""Networks as the examples on keras.io build them: a text classifier with a transformer, a vision transformer, a convnet."""

import keras
from keras import layers, ops


class TransformerBlock(layers.Layer):
    def __init__(self, width: int, heads: int, inner: int, rate: float = 0.1):
        super().__init__()
        self.attention = layers.MultiHeadAttention(heads, width)
        self.feed_forward = keras.Sequential([layers.Dense(inner, activation="relu"), layers.Dense(width)])
        self.norms = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
        self.drops = [layers.Dropout(rate) for _ in range(2)]

    def call(self, x):
        x = self.norms[0](x + self.drops[0](self.attention(x, x)))
        return self.norms[1](x + self.drops[1](self.feed_forward(x)))


class TokenAndPosition(layers.Layer):
    """Looks positions up once for all texts, at ``arange(length)``."""

    def __init__(self, length: int, words: int, width: int):
        super().__init__()
        self.tokens, self.positions = layers.Embedding(words, width), layers.Embedding(length, width)

    def call(self, x):
        return self.tokens(x) + self.positions(ops.arange(0, ops.shape(x)[-1], 1))


def text_classifier(length: int = 80, words: int = 5000, width: int = 32) -> keras.Model:
    """text_classification_with_transformer, with shorter texts."""
    tokens = keras.Input((length,), dtype="int32")
    x = TransformerBlock(width, 2, 32)(TokenAndPosition(length, words, width)(tokens))
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
    x = layers.Dropout(0.1)(layers.Dense(20, activation="relu")(x))
    return keras.Model(tokens, layers.Dense(2)(x))


class PatchEncoder(layers.Layer):
    def __init__(self, patch: int, count: int, width: int):
        super().__init__()
        self.patch, self.count = patch, count
        self.projection, self.positions = layers.Dense(width), layers.Embedding(count, width)

    def call(self, images):
        patches = ops.image.extract_patches(images, size=self.patch)
        patches = ops.reshape(patches, (ops.shape(images)[0], self.count, patches.shape[-1]))
        return self.projection(patches) + self.positions(ops.expand_dims(ops.arange(0, self.count, 1), 0))


def vision_transformer(blocks: int = 4, width: int = 32, heads: int = 2) -> keras.Model:
    """image_classification_with_vision_transformer, of images of 32 x 32 and narrower."""
    images = keras.Input((32, 32, 3))
    x = PatchEncoder(4, 64, width)(images)
    for _ in range(blocks):
        normal = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([layers.MultiHeadAttention(heads, width, dropout=0.1)(normal, normal), x])
        inner = layers.LayerNormalization(epsilon=1e-6)(x)
        for units in (2 * width, width):
            inner = layers.Dropout(0.1)(layers.Dense(units, activation="gelu")(inner))
        x = layers.Add()([inner, x])
    x = layers.Dropout(0.5)(layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x)))
    x = layers.Dropout(0.5)(layers.Dense(64, activation="gelu")(x))
    return keras.Model(images, layers.Dense(10)(x))


def mnist_convnet() -> keras.Model:
    """Simple MNIST convnet."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )
