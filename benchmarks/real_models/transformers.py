"""Image classification by attention, after keras.io's examples."""

import keras
from keras import layers, ops

from benchmarks.real_models.catalogue import real_model
from benchmarks.real_models.records import images, whole

IMAGES, CLASSES = images(32), whole(10)


def perceptron(x, *widths, rate=0.1):
    for width in widths:
        x = layers.Dropout(rate)(layers.Dense(width, activation="gelu")(x))
    return x


class Patches(layers.Layer):
    """The pixels of each patch side by side."""

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.size = size

    def call(self, x):
        count = (x.shape[1] // self.size) * (x.shape[2] // self.size)
        return ops.reshape(ops.image.extract_patches(x, self.size), (-1, count, self.size**2 * x.shape[3]))


class PatchEncoder(layers.Layer):
    """A table of positions beside a projection, as in most examples."""

    def __init__(self, count, width, **kwargs):
        super().__init__(**kwargs)
        self.count = count
        self.projection = layers.Dense(width)
        self.positions = layers.Embedding(count, width)

    def build(self, shape):
        self.projection.build(shape)
        self.positions.build(())
        self.built = True

    def call(self, patches):
        return self.projection(patches) + self.positions(ops.expand_dims(ops.arange(self.count), 0))


def encoder(x, heads=4, width=32):
    normed = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Add()([layers.MultiHeadAttention(heads, width // heads, dropout=0.1)(normed, normed), x])
    return layers.Add()([perceptron(layers.LayerNormalization(epsilon=1e-6)(x), 2 * width, width), x])


@real_model("Image classification with Vision Transformer", IMAGES, CLASSES)
def vision_transformer():
    inputs = layers.Input((32, 32, 3))
    x = PatchEncoder(64, 32)(Patches(4)(inputs))
    for _ in range(3):
        x = encoder(x)
    x = layers.Dropout(0.5)(layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x)))
    return keras.Model(inputs, layers.Dense(10)(perceptron(x, 64, 32, rate=0.5)))


class ClassToken(layers.Layer):
    """Learned positions, and a learned token before the patches."""

    def build(self, shape):
        self.token = self.add_weight(shape=(1, 1, shape[-1]), initializer="random_normal")
        self.positions = self.add_weight(shape=(1, shape[1] + 1, shape[-1]), initializer="random_normal")

    def call(self, x):
        token = ops.broadcast_to(self.token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1) + self.positions


@real_model("Data-efficient image transformers (class token)", IMAGES, CLASSES)
def class_token_transformer():
    inputs = layers.Input((32, 32, 3))
    x = ClassToken()(layers.Reshape((64, 32))(layers.Conv2D(32, 4, strides=4)(inputs)))
    for _ in range(3):
        x = encoder(x)
    return keras.Model(inputs, layers.Dense(10)(layers.LayerNormalization()(x)[:, 0]))


class LayerScale(layers.Layer):
    def build(self, shape):
        self.gamma = self.add_weight(shape=(shape[-1],), initializer=keras.initializers.Constant(0.1))

    def call(self, x):
        return x * self.gamma


class StochasticDepth(layers.Layer):
    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate, self.seeds = rate, keras.random.SeedGenerator(1337)

    def call(self, x, training=None):
        if not training:
            return x
        kept = 1 - self.rate
        shape = (ops.shape(x)[0],) + (1,) * (len(x.shape) - 1)
        return x / kept * ops.floor(kept + keras.random.uniform(shape, seed=self.seeds))


@real_model("Class attention image transformers with LayerScale", IMAGES, CLASSES)
def layer_scale_transformer():
    inputs = layers.Input((32, 32, 3))
    x = ClassToken()(layers.Reshape((64, 32))(layers.Conv2D(32, 4, strides=4)(inputs)))
    for _ in range(2):
        normed = layers.LayerNormalization()(x)
        x = x + StochasticDepth(0.1)(LayerScale()(layers.MultiHeadAttention(4, 8)(normed, normed)))
        x = x + StochasticDepth(0.1)(LayerScale()(perceptron(layers.LayerNormalization()(x), 64, 32)))
    return keras.Model(inputs, layers.Dense(10)(layers.LayerNormalization()(x)[:, 0]))


class Positions(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=(1, *shape[1:]), initializer="random_normal")

    def call(self, x):
        return x + self.table


class SequencePooling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.Dense(1)

    def call(self, x):
        weights = ops.softmax(self.attention(x), axis=1)
        return ops.squeeze(ops.matmul(ops.transpose(weights, (0, 2, 1)), x), axis=1)


@real_model("Compact convolutional transformers", IMAGES, CLASSES)
def compact_transformer():
    inputs = layers.Input((32, 32, 3))
    x = inputs
    for filters in (16, 32):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, activation="relu")(x)
        x = layers.MaxPooling2D(3, 2, "same")(x)
    x = Positions()(layers.Reshape((64, 32))(x))
    for rate in (0.0, 0.1):
        normed = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.Add()([StochasticDepth(rate)(layers.MultiHeadAttention(2, 32, dropout=0.1)(normed, normed)), x])
        x = layers.Add()([StochasticDepth(rate)(perceptron(layers.LayerNormalization(epsilon=1e-5)(x), 32, 32)), x])
    return keras.Model(inputs, layers.Dense(10)(SequencePooling()(layers.LayerNormalization(epsilon=1e-5)(x))))


def _external(x, width=32, heads=4, memory=16):
    y = layers.Reshape((64, heads, width * 4 // heads))(layers.Dense(width * 4)(x))
    y = layers.Permute((2, 1, 3))(y)
    attention = layers.Softmax(axis=2)(layers.Dense(memory)(y))
    attention = layers.Lambda(lambda a: a / (1e-9 + ops.sum(a, axis=-1, keepdims=True)))(attention)
    y = layers.Permute((2, 1, 3))(layers.Dense(width * 4 // heads)(attention))
    return layers.Dropout(0.1)(layers.Dense(width)(layers.Reshape((64, width * 4))(y)))


@real_model("Image classification with external attention", IMAGES, CLASSES)
def external_attention():
    inputs = layers.Input((32, 32, 3))
    x = PatchEncoder(64, 32)(Patches(4)(inputs))
    for _ in range(2):
        x = layers.Add()([_external(layers.LayerNormalization(epsilon=1e-5)(x)), x])
        x = layers.Add()([perceptron(layers.LayerNormalization(epsilon=1e-5)(x), 32, 32), x])
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


class LearnedQueries(layers.Layer):
    """Perceiver's latent array."""

    def __init__(self, count, width, **kwargs):
        super().__init__(**kwargs)
        self.count, self.width = count, width

    def build(self, shape):
        self.latents = self.add_weight(shape=(self.count, self.width), initializer="random_normal")

    def call(self, x):
        return ops.broadcast_to(self.latents[None], (ops.shape(x)[0], self.count, self.width))


@real_model("Image classification with Perceiver", IMAGES, CLASSES)
def perceiver():
    inputs = layers.Input((32, 32, 3))
    x = PatchEncoder(64, 32)(Patches(4)(inputs))
    latents = LearnedQueries(16, 32)(x)
    for _ in range(2):
        normed, keys = layers.LayerNormalization()(latents), layers.LayerNormalization()(x)
        latents = layers.Add()(
            [
                layers.Attention(use_scale=True, dropout=0.1)(
                    [layers.Dense(32)(normed), layers.Dense(32)(keys), layers.Dense(32)(keys)]
                ),
                latents,
            ]
        )
        latents = layers.Add()([perceptron(layers.LayerNormalization()(latents), 64, 32), latents])
        latents = encoder(latents)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(latents)))


class WindowAttention(layers.Layer):
    """Attention within windows of 2 x 2 patches with a bias of relative position, as in Swin."""

    def __init__(self, width, heads, side, shift, **kwargs):
        super().__init__(**kwargs)
        self.width, self.heads, self.side, self.shift = width, heads, side, shift
        self.qkv, self.out = layers.Dense(3 * width), layers.Dense(width)
        steps = [(i, j) for i in range(2) for j in range(2)]
        self.relative = [[(a - c + 1) * 3 + (b - d + 1) for c, d in steps] for a, b in steps]

    def build(self, shape):
        self.qkv.build(shape)
        self.out.build(shape)
        self.table = self.add_weight(shape=(9, self.heads), initializer="random_normal")

    def call(self, x):
        half, width = self.side // 2, self.width
        x = ops.reshape(x, (-1, self.side, self.side, width))
        if self.shift:
            x = ops.roll(x, (-self.shift, -self.shift), axis=(1, 2))
        x = ops.transpose(ops.reshape(x, (-1, half, 2, half, 2, width)), (0, 1, 3, 2, 4, 5))
        x = ops.reshape(x, (-1, 4, width))
        qkv = ops.transpose(ops.reshape(self.qkv(x), (-1, 4, 3, self.heads, width // self.heads)), (2, 0, 3, 1, 4))
        bias = ops.transpose(ops.take(self.table, ops.convert_to_tensor(self.relative), axis=0), (2, 0, 1))
        scores = ops.matmul(qkv[0], ops.transpose(qkv[1], (0, 1, 3, 2))) * (width // self.heads) ** -0.5 + bias[None]
        x = ops.matmul(ops.softmax(scores), qkv[2])
        x = self.out(ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, 4, width)))
        x = ops.transpose(ops.reshape(x, (-1, half, half, 2, 2, width)), (0, 1, 3, 2, 4, 5))
        x = ops.reshape(x, (-1, self.side, self.side, width))
        if self.shift:
            x = ops.roll(x, (self.shift, self.shift), axis=(1, 2))
        return ops.reshape(x, (-1, self.side**2, width))


@real_model("Image classification with Swin Transformers", IMAGES, CLASSES)
def swin():
    inputs = layers.Input((32, 32, 3))
    x = PatchEncoder(64, 32)(Patches(4)(inputs))
    for shift in (0, 1):
        x = x + StochasticDepth(0.03)(WindowAttention(32, 4, 8, shift)(layers.LayerNormalization(epsilon=1e-5)(x)))
        x = x + perceptron(layers.LayerNormalization(epsilon=1e-5)(x), 64, 32)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


@real_model("Learning to tokenize in Vision Transformers", IMAGES, CLASSES)
def token_learner():
    inputs = layers.Input((32, 32, 3))
    x = Positions()(layers.Reshape((64, 32))(layers.Conv2D(32, 4, strides=4)(inputs)))
    x = encoder(x)
    maps = layers.Reshape((8, 8, 32))(layers.LayerNormalization()(x))
    for _ in range(2):
        maps = layers.Conv2D(4, 3, activation="gelu", padding="same", use_bias=False)(maps)
    maps = layers.Permute((2, 1))(
        layers.Reshape((64, 4))(layers.Conv2D(4, 3, activation="sigmoid", padding="same")(maps))
    )
    learned = layers.Lambda(lambda pair: ops.mean(pair[0][..., None] * pair[1][:, None], axis=2))([maps, x])
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(encoder(learned))))


@real_model("MobileViT", IMAGES, CLASSES)
def mobile_vit():
    inputs = layers.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="swish")(layers.Rescaling(1.0)(inputs))
    y = layers.Activation("swish")(layers.Conv2D(32, 1, use_bias=False)(x))
    y = layers.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False)(y)
    x = layers.Conv2D(24, 1, use_bias=False)(layers.Activation("swish")(y))
    local = layers.Conv2D(32, 1, activation="swish")(layers.Conv2D(24, 3, padding="same", activation="swish")(x))
    y = layers.Reshape((4, 16, 32))(local)
    for _ in range(2):
        y = encoder(y)
    y = layers.Conv2D(24, 1, activation="swish")(layers.Reshape((8, 8, 32))(y))
    x = layers.Conv2D(24, 3, padding="same", activation="swish")(layers.Concatenate()([x, y]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAvgPool2D()(x)))
