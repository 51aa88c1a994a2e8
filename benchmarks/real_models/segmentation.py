"""Images to images: segmentation, autoencoders, resolution, light, after keras.io's examples."""

import keras
from keras import layers, ops

import tfdp
from benchmarks.real_models.catalogue import real_model
from benchmarks.real_models.records import images, normals, reals_between, whole


@real_model("Image segmentation with a U-Net-like architecture", images(48), whole(3, 48, 48))
def unet():
    def normed(layer, x):
        return layers.BatchNormalization()(layer(layers.Activation("relu")(x)))

    inputs = layers.Input((48, 48, 3))
    x = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(16, 3, strides=2, padding="same")(inputs)))
    before = x
    for filters in (24, 32):
        for _ in range(2):
            x = normed(layers.SeparableConv2D(filters, 3, padding="same"), x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        before = x = layers.add([x, layers.Conv2D(filters, 1, strides=2, padding="same")(before)])
    for filters in (32, 24, 16):
        for _ in range(2):
            x = normed(layers.Conv2DTranspose(filters, 3, padding="same"), x)
        x = layers.UpSampling2D(2)(x)
        before = x = layers.add([x, layers.Conv2D(filters, 1, padding="same")(layers.UpSampling2D(2)(before))])
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Conv2D(3, 3, padding="same")(x)))


@real_model("Multiclass semantic segmentation with DeepLabV3+", images(48), whole(4, 48, 48), lot=8)
def deeplab():
    def block(x, filters=24, size=3, dilation=1):
        x = layers.Conv2D(filters, size, dilation_rate=dilation, padding="same", use_bias=False)(x)
        return layers.ReLU()(layers.BatchNormalization()(x))

    inputs = layers.Input((48, 48, 3))
    low = block(layers.Conv2D(16, 3, strides=2, padding="same")(inputs))
    x = block(layers.Conv2D(24, 3, strides=2, padding="same")(low))
    pooled = layers.UpSampling2D(12, interpolation="bilinear")(block(layers.AveragePooling2D(12)(x), size=1))
    x = layers.Concatenate()([pooled, block(x, size=1), *(block(x, dilation=rate) for rate in (2, 4, 6))])
    x = layers.UpSampling2D(2, interpolation="bilinear")(block(x, size=1))
    x = block(block(layers.Concatenate()([x, block(low, size=1)])))
    x = layers.Conv2D(4, 1)(layers.UpSampling2D(2, interpolation="bilinear")(x))
    return tfdp.models.without_batch_norm(keras.Model(inputs, x))


@real_model(
    "Convolutional autoencoder for image denoising",
    images(28, channels=1),
    images(28, channels=1),
    loss="binary_crossentropy",
    lot=32,
)
def denoising_autoencoder():
    inputs = layers.Input((28, 28, 1))
    x = inputs
    for _ in range(2):
        x = layers.MaxPooling2D(padding="same")(layers.Conv2D(32, 3, activation="relu", padding="same")(x))
    for _ in range(2):
        x = layers.Conv2DTranspose(32, 3, strides=2, activation="relu", padding="same")(x)
    return keras.Model(inputs, layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x))


class DepthToSpace(layers.Layer):
    def call(self, x):
        height, width, channels = x.shape[1], x.shape[2], x.shape[3] // 9
        x = ops.transpose(ops.reshape(x, (-1, height, width, 3, 3, channels)), (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, 3 * height, 3 * width, channels))


@real_model(
    "Image super-resolution with an efficient sub-pixel CNN",
    images(24, channels=1),
    images(72, channels=1),
    loss="mse",
    lot=8,
)
def super_resolution():
    options = {"activation": "relu", "kernel_initializer": "orthogonal", "padding": "same"}
    inputs = layers.Input((24, 24, 1))
    x = layers.Conv2D(64, 5, **options)(inputs)
    x = layers.Conv2D(64, 3, **options)(x)
    x = layers.Conv2D(32, 3, **options)(x)
    return keras.Model(inputs, DepthToSpace()(layers.Conv2D(9, 3, **options)(x)))


def _light(y_true, curves):
    """Exposure, colour and smoothness of the enhanced image, each of one image alone."""
    image = y_true
    for i in range(0, 12, 3):
        image = image + curves[..., i : i + 3] * (ops.square(image) - image)
    exposure = ops.mean(ops.square(ops.mean(image, axis=-1) - 0.6), axis=(1, 2))
    means = ops.mean(image, axis=(1, 2))
    colour = ops.sum(ops.square(means - ops.roll(means, 1, axis=1)), axis=1)
    smooth = ops.mean(ops.square(curves[:, 1:] - curves[:, :-1]), axis=(1, 2, 3))
    return 10 * exposure + 5 * colour + 200 * smooth


@real_model(
    "Zero-DCE for low-light image enhancement",
    images(32),
    lambda random, rows: random.random((rows, 32, 32, 3)).astype("float32"),
    loss=lambda: _light,
    lot=8,
)
def low_light():
    inputs = layers.Input((32, 32, 3))
    skips, x = [], inputs
    for _ in range(4):
        x = layers.Conv2D(16, 3, activation="relu", padding="same")(x)
        skips.append(x)
    for skip in (skips[2], skips[1], skips[0]):
        x = layers.Conv2D(16, 3, activation="relu", padding="same")(layers.Concatenate()([x, skip]))
    return keras.Model(inputs, layers.Conv2D(12, 3, activation="tanh", padding="same")(x))


class Sampling(layers.Layer):
    def __init__(self, stddev=1.0, **kwargs):
        super().__init__(**kwargs)
        self.stddev, self.seeds = stddev, keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + self.stddev * ops.exp(0.5 * log_variance) * noise


class Divergence(layers.Layer):
    def call(self, inputs):
        mean, log_variance = inputs
        self.add_loss(-0.5 * ops.mean(ops.sum(1 + log_variance - ops.square(mean) - ops.exp(log_variance), axis=1)))
        return mean


@real_model(
    "Variational autoencoder", images(28, channels=1), images(28, channels=1), loss="binary_crossentropy", lot=32
)
def variational_autoencoder():
    inputs = layers.Input((28, 28, 1))
    x = layers.Conv2D(16, 3, activation="relu", strides=2, padding="same")(inputs)
    x = layers.Conv2D(32, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
    log_variance = layers.Dense(2)(x)
    mean = Divergence()([layers.Dense(2)(x), log_variance])
    x = layers.Dense(7 * 7 * 32, activation="relu")(Sampling()([mean, log_variance]))
    x = layers.Reshape((7, 7, 32))(x)
    x = layers.Conv2DTranspose(32, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Conv2DTranspose(16, 3, activation="relu", strides=2, padding="same")(x)
    return keras.Model(inputs, layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(x))


class Quantizer(layers.Layer):
    """Vector quantization with a straight-through gradient."""

    def build(self, shape):
        self.codes = self.add_weight(shape=(shape[-1], 16), initializer="random_uniform")

    def call(self, x):
        flat = ops.reshape(x, (-1, 49, x.shape[-1]))
        distances = ops.sum(flat**2, -1, keepdims=True) + ops.sum(self.codes**2, 0) - 2 * ops.matmul(flat, self.codes)
        chosen = ops.one_hot(ops.argmin(distances, -1), 16)
        quantized = ops.reshape(ops.matmul(chosen, ops.transpose(self.codes)), (-1, *x.shape[1:]))
        self.add_loss(ops.mean((ops.stop_gradient(quantized) - x) ** 2) * 0.25)
        self.add_loss(ops.mean((quantized - ops.stop_gradient(x)) ** 2))
        return x + ops.stop_gradient(quantized - x)


@real_model("Vector-quantized variational autoencoder", images(28, channels=1), images(28, channels=1), loss="mse")
def vq_vae():
    inputs = layers.Input((28, 28, 1))
    x = layers.Conv2D(16, 3, activation="relu", strides=2, padding="same")(inputs)
    x = Quantizer()(layers.Conv2D(8, 1)(layers.Conv2D(32, 3, activation="relu", strides=2, padding="same")(x)))
    x = layers.Conv2DTranspose(32, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Conv2DTranspose(16, 3, activation="relu", strides=2, padding="same")(x)
    return keras.Model(inputs, layers.Conv2DTranspose(1, 3, padding="same")(x))


@real_model(
    "3D volumetric rendering with NeRF (the network of rays)",
    normals(128, 33),
    reals_between(0, 1, 128, 4),
    loss="mse",
    lot=8,
)
def nerf():
    inputs = layers.Input((128, 33))
    x = inputs
    for i in range(6):
        x = layers.Dense(64, activation="relu")(x)
        if i == 3:
            x = layers.concatenate([x, inputs])
    return keras.Model(inputs, layers.Dense(4)(x))
