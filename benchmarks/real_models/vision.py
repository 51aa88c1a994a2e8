"""Image classification and the like by convolutions and perceptrons, after keras.io's computer vision examples."""

import keras
from keras import layers, ops

import tfdp
from benchmarks import keras_io
from benchmarks.real_models.catalogue import of_logits, real_model
from benchmarks.real_models.records import images, normals, several, whole


@real_model("Simple MNIST convnet", images(28, channels=1), whole(10), lot=64)
def mnist_convnet():
    return keras_io.mnist_convnet()


@real_model("Image classification from scratch (small Xception, augmentation)", images(48), whole(2), lot=16)
def xception_from_scratch():
    inputs = layers.Input((48, 48, 3))
    x = layers.RandomRotation(0.1)(layers.RandomFlip("horizontal")(inputs))
    x = layers.Rescaling(1.0 / 255)(x)
    x = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(16, 3, strides=2, padding="same")(x)))
    for size in (24, 32):
        before = x
        for _ in range(2):
            x = layers.Activation("relu")(x)
            x = layers.BatchNormalization()(layers.SeparableConv2D(size, 3, padding="same")(x))
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        x = layers.add([x, layers.Conv2D(size, 1, strides=2, padding="same")(before)])
    x = layers.Activation("relu")(layers.BatchNormalization()(layers.SeparableConv2D(48, 3, padding="same")(x)))
    x = layers.Dropout(0.25)(layers.GlobalAveragePooling2D()(x))
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Dense(2)(x)))


@real_model("Image classification with ConvMixer", images(32), whole(10))
def conv_mixer():
    def normed(x):
        return layers.BatchNormalization()(layers.Activation("gelu")(x))

    inputs = layers.Input((32, 32, 3))
    x = normed(layers.Conv2D(32, 2, strides=2)(inputs))
    for _ in range(3):
        x = layers.Add()([normed(layers.DepthwiseConv2D(5, padding="same")(x)), x])
        x = normed(layers.Conv2D(32, 1)(x))
    return tfdp.models.without_batch_norm(keras.Model(inputs, layers.Dense(10)(layers.GlobalAvgPool2D()(x))))


class MixerBlock(layers.Layer):
    def __init__(self, patches, width, **kwargs):
        super().__init__(**kwargs)
        self.over_patches = keras.Sequential(
            [layers.Dense(patches, activation="gelu"), layers.Dense(patches), layers.Dropout(0.2)]
        )
        self.over_channels = keras.Sequential(
            [layers.Dense(width, activation="gelu"), layers.Dense(width), layers.Dropout(0.2)]
        )
        self.normalize = layers.LayerNormalization(epsilon=1e-6)

    def build(self, shape):
        self.built = True

    def call(self, inputs):
        x = ops.transpose(self.normalize(inputs), (0, 2, 1))
        x = ops.transpose(self.over_patches(x), (0, 2, 1)) + inputs
        return x + self.over_channels(self.normalize(x))


class SpatialGate(layers.Layer):
    def __init__(self, patches, width, **kwargs):
        super().__init__(**kwargs)
        self.widen = keras.Sequential([layers.Dense(2 * width, activation="gelu"), layers.Dropout(0.2)])
        self.project = layers.Dense(patches, bias_initializer="ones")
        self.narrow = layers.Dense(width)
        self.normalize = layers.LayerNormalization(epsilon=1e-6)
        self.normalize_gate = layers.LayerNormalization(epsilon=1e-6)

    def build(self, shape):
        self.built = True

    def call(self, inputs):
        u, v = ops.split(self.widen(self.normalize(inputs)), 2, axis=2)
        v = ops.transpose(self.normalize_gate(v), (0, 2, 1))
        v = ops.transpose(self.project(v), (0, 2, 1))
        return inputs + self.narrow(u * v)


def _of_patches(block):
    inputs = layers.Input((32, 32, 3))
    x = layers.Reshape((64, 32))(layers.Conv2D(32, 4, strides=4)(inputs))
    for _ in range(2):
        x = block(64, 32)(x)
    return keras.Model(inputs, layers.Dense(10)(layers.Dropout(0.2)(layers.GlobalAveragePooling1D()(x))))


@real_model("Image classification with modern MLP models: MLP-Mixer", images(32), whole(10))
def mlp_mixer():
    return _of_patches(MixerBlock)


@real_model("Image classification with modern MLP models: gMLP", images(32), whole(10))
def gmlp():
    return _of_patches(SpatialGate)


class Involution(layers.Layer):
    def __init__(self, channels, groups, size, reduction=2, **kwargs):
        super().__init__(**kwargs)
        self.channels, self.groups, self.size = channels, groups, size
        self.reduce = keras.Sequential([layers.Conv2D(channels // reduction, 1), layers.ReLU()])
        self.kernel_of = layers.Conv2D(size * size * groups, 1)

    def call(self, x):
        _, height, width, _ = x.shape
        kernel = ops.reshape(self.kernel_of(self.reduce(x)), (-1, height, width, self.size**2, 1, self.groups))
        patches = ops.image.extract_patches(x, (self.size, self.size), strides=1, padding="same")
        patches = ops.reshape(patches, (-1, height, width, self.size**2, self.channels // self.groups, self.groups))
        return ops.reshape(ops.sum(kernel * patches, axis=3), (-1, height, width, self.channels))


@real_model("Involutional neural networks", images(32), whole(10))
def involution():
    inputs = layers.Input((32, 32, 3))
    x = layers.MaxPooling2D()(layers.ReLU()(Involution(3, 1, 3)(inputs)))
    x = layers.MaxPooling2D()(layers.ReLU()(Involution(3, 1, 3)(x)))
    x = layers.Dense(64, activation="relu")(layers.Flatten()(layers.ReLU()(Involution(3, 1, 3)(x))))
    return keras.Model(inputs, layers.Dense(10)(x))


@real_model(
    "Image similarity with a siamese network and contrastive loss",
    several(images(28, channels=1), images(28, channels=1)),
    whole(2),
    loss="binary_crossentropy",
)
def siamese():
    embed = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(4, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Conv2D(16, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(10, activation="tanh"),
        ]
    )
    one, other = layers.Input((28, 28, 1)), layers.Input((28, 28, 1))
    distance = layers.Lambda(
        lambda pair: ops.sqrt(ops.maximum(ops.sum(ops.square(pair[0] - pair[1]), 1, keepdims=True), 1e-7)),
        output_shape=(1,),
    )
    joined = layers.LayerNormalization(rms_scaling=True)(distance([embed(one), embed(other)]))
    return keras.Model([one, other], layers.Dense(1, activation="sigmoid")(joined))


@real_model("Next-layer transfer learning: frozen MobileNetV2, new head", images(64), whole(2))
def transfer_learning():
    base = keras.applications.MobileNetV2(input_shape=(64, 64, 3), alpha=0.35, include_top=False, weights=None)
    base.trainable = False
    inputs = layers.Input((64, 64, 3))
    x = layers.GlobalAveragePooling2D()(base(layers.Rescaling(2.0, offset=-1)(inputs), training=False))
    return keras.Model(inputs, layers.Dense(2)(layers.Dropout(0.2)(x)))


@real_model(
    "Keypoint detection with transfer learning",
    images(64),
    lambda random, rows: random.random((rows, 1, 1, 48)).astype("float32"),
    loss="mse",
)
def keypoints():
    base = keras.applications.MobileNetV2(input_shape=(64, 64, 3), alpha=0.35, include_top=False, weights=None)
    base.trainable = False
    inputs = layers.Input((64, 64, 3))
    x = layers.Dropout(0.3)(base(inputs))
    x = layers.SeparableConv2D(48, 1, activation="relu")(x)
    return keras.Model(inputs, layers.SeparableConv2D(48, 2, activation="sigmoid")(x))


class Distiller(keras.Model):
    """Knowledge distillation: the teacher's softened outputs and the labels."""

    def __init__(self, student, teacher, alpha=0.1, temperature=3.0):
        super().__init__()
        self.student, self.teacher, self.alpha, self.temperature = student, teacher, alpha, temperature
        teacher.trainable = False

    def build(self, shape):
        self.built = True

    def call(self, x):
        return self.student(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        soft = ops.softmax(self.teacher(x, training=False) / self.temperature, axis=1)
        student = ops.softmax(y_pred / self.temperature, axis=1)
        distilled = ops.mean(keras.losses.kl_divergence(soft, student)) * self.temperature**2
        own = ops.mean(keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True))
        return self.alpha * own + (1 - self.alpha) * distilled


@real_model("Knowledge distillation", images(28, channels=1), whole(10), loss=lambda: None)
def distillation():
    def network(width):
        return keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(width, 3, strides=2, padding="same"),
                layers.LeakyReLU(negative_slope=0.2),
                layers.MaxPooling2D(2, strides=1, padding="same"),
                layers.Conv2D(2 * width, 3, strides=2, padding="same"),
                layers.Flatten(),
                layers.Dense(10),
            ]
        )

    return Distiller(network(16), network(32))


@real_model("Image classification with augmentation layers", images(32), whole(10), lot=32)
def augmented_convnet():
    inputs = layers.Input((32, 32, 3))
    x = inputs
    for layer in (layers.RandomFlip(), layers.RandomRotation(0.1), layers.RandomZoom(0.2), layers.RandomContrast(0.1)):
        x = layer(x)
    for filters in (16, 32):
        x = layers.MaxPooling2D()(layers.Conv2D(filters, 3, activation="relu", padding="same")(x))
    return keras.Model(inputs, layers.Dense(10)(layers.Dropout(0.5)(layers.Flatten()(x))))


@real_model("Classification with attention-based deep multiple instance learning", normals(4, 28 * 28), whole(2))
def multiple_instances():
    inputs = layers.Input((4, 28 * 28))
    embedded = layers.Dense(32, activation="relu")(layers.Dense(64, activation="relu")(inputs))
    gate = layers.Multiply()([layers.Dense(32, "tanh")(embedded), layers.Dense(32, "sigmoid")(embedded)])
    attention = layers.Softmax(axis=1)(layers.Dense(1, use_bias=False)(gate))
    pooled = layers.Lambda(lambda pair: ops.sum(pair[0] * pair[1], axis=1), output_shape=(32,))([attention, embedded])
    return keras.Model(inputs, layers.Dense(2)(pooled))


@real_model(
    "Reading captchas: convolutions, recurrence, CTC", images(50, 20, 1), whole(10, 4, least=1), loss=keras.losses.CTC
)
def captcha():
    inputs = layers.Input((50, 20, 1))
    x = layers.MaxPooling2D()(layers.Conv2D(16, 3, activation="relu", padding="same")(inputs))
    x = layers.MaxPooling2D()(layers.Conv2D(24, 3, activation="relu", padding="same")(x))
    x = layers.Dropout(0.2)(layers.Dense(32, activation="relu")(layers.Reshape((12, 5 * 24))(x)))
    for width in (24, 16):
        x = layers.Bidirectional(layers.LSTM(width, return_sequences=True, dropout=0.25))(x)
    return keras.Model(inputs, layers.Dense(11)(x))


@real_model("Gradient centralization: horses or humans", images(48), whole(2), loss=of_logits)
def horses_or_humans():
    network = [layers.Input((48, 48, 3))]
    for filters in (16, 32, 64):
        network += [layers.Conv2D(filters, 3, activation="relu"), layers.Dropout(0.3), layers.MaxPooling2D()]
    return keras.Sequential([*network, layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(2)])
