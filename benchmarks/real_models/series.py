"""Time series and audio, after keras.io's examples."""

import keras
import numpy as np
from keras import layers, ops

import tfdp
from benchmarks.real_models.catalogue import real_model
from benchmarks.real_models.records import normals, several, whole


def _waves(random, rows):
    phase = random.uniform(0, 6, (rows, 1, 1))
    return np.sin(phase + np.arange(96.0)[None, :, None] / 9).astype("float32")


@real_model("Timeseries classification from scratch", normals(120, 1), whole(2), lot=32)
def series_convnet():
    inputs = layers.Input((120, 1))
    x = inputs
    for _ in range(3):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv1D(32, 3, padding="same")(x)))
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling1D()(x))))


@real_model("Timeseries classification with a Transformer", normals(64, 1), whole(2))
def series_transformer():
    inputs = layers.Input((64, 1))
    x = inputs
    for _ in range(2):
        y = layers.MultiHeadAttention(2, 32, dropout=0.25)(x, x)
        x = layers.LayerNormalization(epsilon=1e-6)(layers.Dropout(0.25)(y)) + x
        y = layers.Conv1D(1, 1)(layers.Dropout(0.25)(layers.Conv1D(4, 1, activation="relu")(x)))
        x = layers.LayerNormalization(epsilon=1e-6)(y) + x
    x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
    return keras.Model(inputs, layers.Dense(2)(layers.Dropout(0.4)(layers.Dense(32, activation="relu")(x))))


@real_model("Timeseries forecasting for weather prediction", normals(60, 7), normals(1), loss="mse", lot=64)
def weather():
    inputs = layers.Input((60, 7))
    return keras.Model(inputs, layers.Dense(1)(layers.LSTM(32)(inputs)))


@real_model("Timeseries anomaly detection using an autoencoder", _waves, _waves, loss="mse", lot=64)
def anomalies():
    return keras.Sequential(
        [
            layers.Input((96, 1)),
            layers.Conv1D(32, 7, padding="same", strides=2, activation="relu"),
            layers.Dropout(0.2),
            layers.Conv1D(16, 7, padding="same", strides=2, activation="relu"),
            layers.Conv1DTranspose(16, 7, padding="same", strides=2, activation="relu"),
            layers.Dropout(0.2),
            layers.Conv1DTranspose(32, 7, padding="same", strides=2, activation="relu"),
            layers.Conv1DTranspose(1, 7, padding="same"),
        ]
    )


class RoadGraph(layers.Layer):
    """A convolution over the neighbours in a fixed graph of roads."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width

    def build(self, shape):
        roads = shape[1]
        self.near = np.eye(roads) + 0.5 * np.roll(np.eye(roads), 1, axis=0)
        self.kernel = self.add_weight(shape=(shape[-1], self.width), initializer="glorot_uniform")

    def call(self, x):
        own = ops.matmul(x, self.kernel)
        near = ops.einsum("ij,bjtf->bitf", ops.cast(self.near, own.dtype), own)
        return ops.relu(ops.concatenate([own, near], axis=-1))


class RoadForecast(layers.Layer):
    def __init__(self, roads, steps, **kwargs):
        super().__init__(**kwargs)
        self.roads, self.steps = roads, steps
        self.graph, self.recurrent, self.dense = RoadGraph(8), layers.LSTM(24, activation="relu"), layers.Dense(steps)

    def call(self, x):
        x = self.graph(ops.transpose(x, (0, 2, 1))[..., None])
        x = self.recurrent(ops.reshape(x, (-1, x.shape[2], 16)))
        return ops.transpose(ops.reshape(self.dense(x), (-1, self.roads, self.steps)), (0, 2, 1))


@real_model("Traffic forecasting using graph neural networks and LSTM", normals(12, 8), normals(3, 8), loss="mse")
def traffic():
    inputs = layers.Input((12, 8))
    return keras.Model(inputs, RoadForecast(8, 3)(inputs))


@real_model("Electroencephalogram signal classification", normals(128, 1), whole(4), lot=16)
def brain_waves():
    inputs = layers.Input((128, 1))
    x = inputs
    for filters, strides in ((16, 2), (32, 2), (48, 4)):
        x = layers.BatchNormalization()(
            layers.Conv1D(filters, 3, strides=strides, padding="same", activation="relu")(x)
        )
    x = layers.Dropout(0.2)(layers.Flatten()(x))
    for units in (64, 32):
        x = layers.Dropout(0.2)(layers.Dense(units, activation="relu", kernel_regularizer=keras.regularizers.L2())(x))
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Dense(4)(x)))


@real_model("Speaker recognition (residual convolutions of spectra)", normals(256, 1), whole(5))
def speakers():
    inputs = layers.Input((256, 1))
    x = inputs
    for filters, convolutions in ((8, 2), (16, 2), (24, 3)):
        straight = layers.Conv1D(filters, 1, padding="same")(x)
        for _ in range(convolutions - 1):
            x = layers.Activation("relu")(layers.Conv1D(filters, 3, padding="same")(x))
        x = layers.Activation("relu")(layers.Add()([layers.Conv1D(filters, 3, padding="same")(x), straight]))
        x = layers.MaxPool1D(2, strides=2)(x)
    x = layers.Dense(32, activation="relu")(layers.Flatten()(layers.AveragePooling1D(3, strides=3)(x)))
    return keras.Model(inputs, layers.Dense(5)(x))


@real_model("Speech: spectrogram in the model, then convolutions", normals(1024), whole(5))
def speech_commands():
    inputs = layers.Input((1024,))
    x = layers.Reshape((1024, 1))(inputs)
    x = layers.STFTSpectrogram("log", frame_length=128, frame_step=64, fft_length=128, expand_dims=True)(x)
    for filters in (8, 16):
        x = layers.MaxPooling2D()(layers.Conv2D(filters, 3, activation="relu", padding="same")(x))
    return keras.Model(inputs, layers.Dense(5)(layers.Dropout(0.2)(layers.Flatten()(x))))


@real_model("Temporal convolutional network", normals(64, 4), normals(64, 1), loss="mse", lot=32)
def temporal_convolutions():
    inputs = layers.Input((64, 4))
    x = layers.Conv1D(16, 1)(inputs)
    for dilation in (1, 2, 4, 8):
        y = layers.SpatialDropout1D(0.1)(
            layers.Conv1D(16, 3, padding="causal", dilation_rate=dilation, activation="relu")(x)
        )
        x = layers.add([x, layers.Conv1D(16, 1)(y)])
    return keras.Model(inputs, layers.Dense(1)(layers.LayerNormalization()(x)))


@real_model("N-BEATS (basis expansion, doubly residual)", normals(40), normals(10), loss="mae", lot=64)
def basis_expansion():
    inputs = layers.Input((40,))
    rest, forecast = inputs, None
    for _ in range(3):
        x = rest
        for _ in range(3):
            x = layers.Dense(32, activation="relu")(x)
        rest = layers.Subtract()([rest, layers.Dense(40)(layers.Dense(8, use_bias=False)(x))])
        own = layers.Dense(10)(layers.Dense(8, use_bias=False)(x))
        forecast = own if forecast is None else layers.Add()([forecast, own])
    return keras.Model(inputs, forecast)


@real_model("Recurrent forecasting with attention", several(normals(30, 5), normals(6, 2)), normals(6, 1), loss="huber")
def recurrent_attention():
    past, future = layers.Input((30, 5)), layers.Input((6, 2))
    encoded, state = layers.GRU(24, return_sequences=True, return_state=True)(past)
    decoded = layers.GRU(24, return_sequences=True)(future, initial_state=state)
    context = layers.AdditiveAttention()([decoded, encoded])
    return keras.Model(
        [past, future], layers.TimeDistributed(layers.Dense(1))(layers.Concatenate()([decoded, context]))
    )
