"""Video, volumes and clouds of points, after keras.io's examples."""

import keras
import numpy as np
from keras import layers, ops

import tfdp
from benchmarks.real_models.catalogue import real_model
from benchmarks.real_models.records import images, normals, reals_between, several, whole
from benchmarks.real_models.transformers import encoder


class PositionsOfTubelets(layers.Layer):
    def build(self, shape):
        self.table = layers.Embedding(shape[1], shape[2])
        self.table.build(())
        self.count = shape[1]

    def call(self, tokens):
        return tokens + self.table(ops.arange(self.count))


@real_model("Video Vision Transformer", reals_between(0, 1, 8, 16, 16, 1), whole(5), lot=8)
def video_vision_transformer():
    inputs = layers.Input((8, 16, 16, 1))
    x = layers.Reshape((16, 32))(layers.Conv3D(32, (2, 8, 8), strides=(2, 8, 8))(inputs))
    x = PositionsOfTubelets()(x)
    for _ in range(2):
        x = encoder(x)
    return keras.Model(inputs, layers.Dense(5)(layers.GlobalAvgPool1D()(layers.LayerNormalization()(x))))


@real_model(
    "3D image classification from CT scans",
    reals_between(0, 1, 32, 32, 16, 1),
    whole(2, 1),
    loss="binary_crossentropy",
    lot=4,
)
def scans():
    inputs = layers.Input((32, 32, 16, 1))
    x = inputs
    for filters in (16, 16, 32):
        x = layers.MaxPool3D(2)(layers.Conv3D(filters, 3, activation="relu", padding="same")(x))
        x = layers.BatchNormalization()(x)
    x = layers.Dropout(0.3)(layers.Dense(64, activation="relu")(layers.GlobalAveragePooling3D()(x)))
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x)))


@real_model(
    "Next-frame video prediction with convolutional LSTMs",
    reals_between(0, 1, 5, 16, 16, 1),
    reals_between(0, 1, 5, 16, 16, 1),
    loss="binary_crossentropy",
    lot=4,
)
def next_frame():
    inputs = layers.Input((5, 16, 16, 1))
    x = layers.ConvLSTM2D(8, 5, padding="same", return_sequences=True, activation="relu")(inputs)
    x = layers.ConvLSTM2D(8, 3, padding="same", return_sequences=True, activation="relu")(
        layers.GroupNormalization(2)(x)
    )
    return keras.Model(inputs, layers.Conv3D(1, 3, activation="sigmoid", padding="same")(x))


def _frames(random, rows):
    lengths = random.integers(5, 11, rows)
    return [random.normal(size=(rows, 10, 64)).astype("float32"), np.arange(10) < lengths[:, None]]


@real_model("Video classification with a CNN-RNN architecture", _frames, whole(5))
def frames_by_recurrence():
    frames, mask = layers.Input((10, 64)), layers.Input((10,), dtype="bool")
    x = layers.GRU(16, return_sequences=True)(frames, mask=mask)
    x = layers.Dropout(0.4)(layers.GRU(8)(x))
    return keras.Model([frames, mask], layers.Dense(5)(layers.Dense(8, activation="relu")(x)))


class FramePositions(layers.Layer):
    def __init__(self, length, width, **kwargs):
        super().__init__(**kwargs)
        self.length, self.table = length, layers.Embedding(length, width)

    def build(self, shape):
        self.table.build(shape)

    def call(self, x):
        return x + self.table(ops.arange(0, self.length))


@real_model("Video classification with transformers", normals(10, 64), whole(5))
def frames_by_attention():
    inputs = layers.Input((10, 64))
    x = FramePositions(10, 64)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(1, 64, dropout=0.3)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(16, activation="gelu")(x)))
    return keras.Model(inputs, layers.Dense(5)(layers.Dropout(0.5)(layers.GlobalMaxPooling1D()(x))))


class Orthogonal(keras.regularizers.Regularizer):
    def __init__(self, size, weight=0.001):
        self.size, self.weight = size, weight

    def get_config(self):
        return {"size": self.size, "weight": self.weight}

    def __call__(self, x):
        """A number for the lot: the mean over its transforms."""
        x = ops.reshape(x, (-1, self.size, self.size))
        apart = ops.square(ops.matmul(x, ops.transpose(x, (0, 2, 1))) - ops.eye(self.size))
        return self.weight * ops.sum(apart)


class IdentityBias(keras.initializers.Initializer):
    """The offset of which the matrix is the identity."""

    def __call__(self, shape, dtype=None):
        return ops.reshape(ops.eye(round(shape[0] ** 0.5), dtype=dtype), (-1,))


def _transformed(x, size):
    y = layers.Conv1D(32, 1, activation="relu")(layers.Conv1D(16, 1, activation="relu")(x))
    y = layers.Dense(32, activation="relu")(layers.GlobalMaxPooling1D()(y))
    matrix = layers.Dense(
        size * size,
        kernel_initializer="zeros",
        bias_initializer=IdentityBias(),
        activity_regularizer=Orthogonal(size),
    )(y)
    return layers.Dot(axes=(2, 1))([x, layers.Reshape((size, size))(matrix)])


@real_model("Point cloud classification with PointNet", normals(128, 3), whole(10), lot=32)
def point_net():
    inputs = layers.Input((128, 3))
    x = layers.BatchNormalization()(layers.Conv1D(16, 1, activation="relu")(_transformed(inputs, 3)))
    x = layers.BatchNormalization()(layers.Conv1D(64, 1, activation="relu")(_transformed(x, 16)))
    x = layers.Dropout(0.3)(layers.Dense(64, activation="relu")(layers.GlobalMaxPooling1D()(x)))
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Dense(10)(x)))


@real_model(
    "Two views of an object (shared convolutions, two heads)",
    several(images(24), images(24)),
    several(whole(4), normals(1)),
    loss=lambda: [keras.losses.SparseCategoricalCrossentropy(from_logits=True), "mse"],
)
def two_views():
    shared = keras.Sequential(
        [layers.Input((24, 24, 3)), layers.Conv2D(8, 3, activation="relu"), layers.GlobalMaxPooling2D()]
    )
    one, other = layers.Input((24, 24, 3)), layers.Input((24, 24, 3))
    x = layers.Concatenate()([shared(one), shared(other)])
    return keras.Model([one, other], [layers.Dense(4, name="kind")(x), layers.Dense(1, name="angle")(x)])
