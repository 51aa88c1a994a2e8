"""Every layer of Keras, between others in a small model."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.compatibility.cases import IMAGES, SERIES, SIZE, TOKENS, X, case, chain, compiled, linear, train

CORE = "Layers"
RANDOM = "Preprocessing and augmentation inside the model"
VOLUMES = np.random.default_rng(1).random((SIZE, 4, 4, 4, 1)).astype("float32")
WORDS = np.resize(["a", "b", "c"], SIZE)[:, None]


@case(
    CORE,
    "Dense, EinsumDense, Activation, ReLU, LeakyReLU, PReLU, ELU, Softmax, Identity, Lambda, Flatten, Reshape, Permute, RepeatVector, "
    "Masking, Dropout, GaussianDropout, GaussianNoise, AlphaDropout, ActivityRegularization",
)
def core():
    dense = [
        layers.Dense(4, activation="gelu"),
        layers.PReLU(),
        layers.LeakyReLU(),
        layers.ELU(),
        layers.ReLU(),
        layers.Softmax(),
    ]
    noise = [layers.Dropout(0.2), layers.GaussianDropout(0.2), layers.GaussianNoise(0.1), layers.AlphaDropout(0.2)]
    shapes = [
        layers.Lambda(lambda x: x * 2),
        layers.RepeatVector(2),
        layers.Permute((2, 1)),
        layers.Reshape((2, 4)),
        layers.Masking(),
    ]
    last = [
        layers.EinsumDense("abc,cd->abd", output_shape=(2, 3), bias_axes="d"),
        layers.ActivityRegularization(l2=0.1),
    ]
    train(chain(*dense, layers.Identity(), layers.Activation("tanh"), *noise, *shapes, *last, shape=(4,)))


@case(CORE, "Add, Subtract, Multiply, Average, Maximum, Minimum, Concatenate, Dot")
def merging():
    x = layers.Input((4,))
    a, b = layers.Dense(3)(x), layers.Dense(3)(x)
    kinds = (
        layers.Add,
        layers.Subtract,
        layers.Multiply,
        layers.Average,
        layers.Maximum,
        layers.Minimum,
        layers.Concatenate,
    )
    merged = [kind()([a, b]) for kind in kinds] + [layers.Dot(axes=1)([a, b])]
    train(keras.Model(x, layers.Dense(1)(layers.Concatenate()(merged))))


@case(
    CORE,
    "Conv1D, DepthwiseConv1D, SeparableConv1D, Conv1DTranspose, ZeroPadding1D, Cropping1D, UpSampling1D, poolings, SpatialDropout1D",
)
def one_axis():
    convolutions = [layers.Conv1D(4, 3, padding="causal"), layers.DepthwiseConv1D(2), layers.SeparableConv1D(4, 2)]
    shapes = [layers.ZeroPadding1D(1), layers.Cropping1D(1), layers.UpSampling1D(2), layers.SpatialDropout1D(0.1)]
    pooled = [
        layers.MaxPooling1D(2),
        layers.AveragePooling1D(2),
        layers.AdaptiveAveragePooling1D(2),
        layers.GlobalMaxPooling1D(),
    ]
    train(chain(*convolutions, layers.Conv1DTranspose(3, 2), *shapes, *pooled, shape=(6, 4)), SERIES)


@case(
    CORE,
    "Conv2D, DepthwiseConv2D, SeparableConv2D, Conv2DTranspose, ZeroPadding2D, Cropping2D, UpSampling2D, poolings, SpatialDropout2D",
)
def two_axes():
    convolutions = [layers.Conv2D(4, 3, padding="same"), layers.DepthwiseConv2D(2), layers.SeparableConv2D(4, 2)]
    shapes = [layers.ZeroPadding2D(1), layers.Cropping2D(1), layers.UpSampling2D(2), layers.SpatialDropout2D(0.1)]
    pooled = [layers.MaxPooling2D(2), layers.AveragePooling2D(2), layers.GlobalAveragePooling2D()]
    train(chain(*convolutions, layers.Conv2DTranspose(3, 2), *shapes, *pooled, shape=(8, 8, 3)), IMAGES)


@case(CORE, "Conv3D, Conv3DTranspose, ZeroPadding3D, Cropping3D, UpSampling3D, poolings, SpatialDropout3D")
def three_axes():
    shapes = [layers.ZeroPadding3D(1), layers.Cropping3D(1), layers.UpSampling3D(2), layers.SpatialDropout3D(0.1)]
    pooled = [layers.MaxPooling3D(2), layers.AveragePooling3D(2), layers.GlobalAveragePooling3D()]
    train(chain(layers.Conv3D(2, 2), layers.Conv3DTranspose(2, 2), *shapes, *pooled, shape=(4, 4, 4, 1)), VOLUMES)


@case(CORE, "LayerNormalization, GroupNormalization, RMSNormalization, UnitNormalization")
def norms():
    kinds = [
        layers.LayerNormalization(),
        layers.GroupNormalization(2),
        layers.RMSNormalization(),
        layers.UnitNormalization(),
    ]
    train(chain(layers.Dense(4), *kinds, shape=(4,)))


@case(CORE, "BatchNormalization")
def batch_norm():
    train(linear(layers.Dense(3), layers.BatchNormalization()))


@case(CORE, "BatchNormalization that is frozen (`layer.trainable = False`)")
def frozen_batch_norm():
    norm = layers.BatchNormalization()
    norm.trainable = False
    train(linear(layers.Dense(3), norm))


@case(CORE, "SpectralNormalization")
def spectral():
    train(linear(layers.SpectralNormalization(layers.Dense(3))))


@case(CORE, "Embedding with `mask_zero=True`, LSTM, Bidirectional, TimeDistributed", slow=True)
def recurrent():
    parts = [layers.Embedding(8, 3, mask_zero=True), layers.Bidirectional(layers.LSTM(2, return_sequences=True))]
    train(chain(*parts, layers.TimeDistributed(layers.Dense(2)), shape=(6,), dtype="int32"), TOKENS)


@case(CORE, "SimpleRNN, GRU, RNN with StackedRNNCells", slow=True)
def stacked_cells():
    stacked = layers.RNN(layers.StackedRNNCells([layers.GRUCell(2), layers.LSTMCell(2)]), return_sequences=True)
    train(chain(layers.SimpleRNN(3, return_sequences=True), stacked, layers.GRU(2), shape=(6, 4)), SERIES)


@case(CORE, "ConvLSTM1D (ConvLSTM2D and ConvLSTM3D are the same code)", slow=True)
def convolved_recurrent():
    train(chain(layers.ConvLSTM1D(2, 2), shape=(3, 4, 2)), np.resize(X, (SIZE, 3, 4, 2)).astype("float32"))


@case(CORE, "MultiHeadAttention, GroupQueryAttention, Attention, AdditiveAttention")
def attention():
    x = layers.Input((6, 4))
    y = layers.MultiHeadAttention(2, 2)(x, x)
    y = layers.GroupQueryAttention(2, 2, 1)(y, y)
    y = layers.AdditiveAttention()([layers.Attention(use_scale=True)([y, y]), y])
    train(keras.Model(x, layers.Dense(1)(layers.GlobalAveragePooling1D()(y))), SERIES)


@case(CORE, "ReversibleEmbedding; weights used in several places; layers of your own, with `add_weight`")
def tied():
    class Scaled(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return x * self.scale

    table = layers.ReversibleEmbedding(8, 3)
    x = layers.Input((6,), dtype="int32")
    model = keras.Model(x, table(Scaled()(table(x)), reverse=True))
    train(compiled(model, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)), TOKENS, TOKENS)


@case(CORE, "`enable_lora` of Dense, EinsumDense and Embedding")
def lora():
    dense, table = layers.Dense(3), layers.Embedding(8, 3)
    model = chain(table, dense, shape=(6,), dtype="int32")
    dense.enable_lora(2)
    table.enable_lora(2)
    train(model, TOKENS)


@case(CORE, "a layer of your own that reduces over the first axis")
def mixing():
    class Centred(layers.Layer):
        def call(self, x):
            return x - ops.mean(x, axis=0)

    train(linear(layers.Dense(3), Centred()))


@case(
    RANDOM,
    "Normalization (adapted beforehand, or with given mean and variance), Rescaling, Discretization, CategoryEncoding",
)
def numbers():
    norm = layers.Normalization()
    norm.adapt(X)
    buckets = layers.Discretization(bin_boundaries=[-1.0, 0.0, 1.0])
    train(chain(norm, layers.Rescaling(0.5), buckets, layers.CategoryEncoding(4, output_mode="multi_hot"), shape=(4,)))


@case(
    RANDOM,
    "StringLookup, IntegerLookup, TextVectorization, Hashing, HashedCrossing, with texts in arrays of `dtype=str`",
)
def texts():
    words = layers.Input((1,), dtype="string")
    vectorization = layers.TextVectorization(output_sequence_length=2, vocabulary=["a", "b"])
    ids = layers.IntegerLookup(vocabulary=list(range(4)))(layers.StringLookup(vocabulary=["a", "b", "c"])(words))
    found = [ids, layers.Hashing(8)(words), vectorization(words), layers.HashedCrossing(8)((words, words))]
    tables = [layers.Flatten()(layers.Embedding(12, 2)(x)) for x in found]
    train(keras.Model(words, layers.Dense(1)(layers.Concatenate()(tables))), WORDS)


@case(RANDOM, "texts in arrays of Python objects")
def objects():
    train(
        chain(layers.StringLookup(vocabulary=["a"], output_mode="multi_hot"), shape=(1,), dtype="string"),
        WORDS.astype(object),
    )


@case(RANDOM, "`keras.utils.FeatureSpace`, its features inside the model")
def feature_space():
    space = keras.utils.FeatureSpace(
        {"a": keras.utils.FeatureSpace.float_rescaled(), "b": "integer_categorical"}, output_mode="concat"
    )
    records = {"a": X[:, :1], "b": TOKENS[:, :1]}
    space.adapt(tf.data.Dataset.from_tensor_slices(records))
    train(keras.Model(space.get_inputs(), layers.Dense(1)(space.get_encoded_features())), records)


@case(RANDOM, "Resizing, CenterCrop, AutoContrast, Solarization, Pipeline")
def fixed_images():
    bounds = {"value_range": (0, 1)}
    pipeline = layers.Pipeline([layers.Rescaling(0.5), layers.CenterCrop(6, 6)])
    train(
        chain(
            pipeline,
            layers.Resizing(4, 4),
            layers.AutoContrast(**bounds),
            layers.Solarization(**bounds),
            shape=(8, 8, 3),
        ),
        IMAGES,
    )


@case(RANDOM, "Equalization")
def equalization():
    train(chain(layers.Pipeline([layers.Equalization((0, 1))]), shape=(8, 8, 3)), IMAGES)


@case(RANDOM, "AugMix")
def aug_mix():
    train(chain(layers.AugMix((0, 1)), shape=(8, 8, 3)), IMAGES)


@case(
    RANDOM,
    "RandomFlip, RandomRotation, RandomZoom, RandomTranslation, RandomShear, RandomPerspective, RandomContrast, RandomBrightness, "
    "RandomGaussianBlur, RandomErasing",
    slow=True,
)
def random_shapes():
    kinds = [
        layers.RandomFlip(),
        layers.RandomRotation(0.1),
        layers.RandomZoom(0.1),
        layers.RandomTranslation(0.1, 0.1),
    ]
    kinds += [layers.RandomShear(0.1, 0.1), layers.RandomPerspective(), layers.RandomContrast(0.1)]
    kinds += [
        layers.RandomBrightness(0.1, value_range=(0, 1)),
        layers.RandomGaussianBlur(),
        layers.RandomErasing(value_range=(0, 1)),
    ]
    train(chain(*kinds, shape=(8, 8, 3)), IMAGES)


@case(
    RANDOM,
    "RandomGrayscale, RandomHue, RandomSaturation, RandomColorJitter, RandomColorDegeneration, RandomInvert, RandomPosterization, RandomSharpness",
)
def random_colours():
    bounds = {"value_range": (0, 1)}
    kinds = [
        layers.RandomHue(0.1, **bounds),
        layers.RandomSaturation(0.1, **bounds),
        layers.RandomColorDegeneration(0.1, **bounds),
    ]
    kinds += [
        layers.RandomColorJitter((0, 1), 0.1, 0.1, 0.1, 0.1),
        layers.RandomSharpness(0.1, **bounds),
        layers.RandomGrayscale(),
    ]
    kinds += [layers.RandomInvert(0.1, **bounds), layers.RandomPosterization(4, **bounds)]
    train(chain(*kinds, shape=(8, 8, 3)), IMAGES)


@case(RANDOM, "RandAugment")
def rand_augment():
    train(chain(layers.RandAugment((0, 1), num_ops=1), shape=(8, 8, 3)), IMAGES)


@case(RANDOM, "RandomFlip and its like on inputs of rank 3, which they take for one image")
def rank_3():
    train(chain(layers.Dense(4), layers.RandomFlip("vertical"), shape=(6, 4)), SERIES)


@case(RANDOM, "RandomElasticTransform")
def elastic():
    train(chain(layers.RandomElasticTransform(), shape=(8, 8, 3)), IMAGES)


@case(RANDOM, "MixUp")
def mix_up():
    train(chain(layers.MixUp(), shape=(8, 8, 3)), IMAGES)


@case(RANDOM, "CutMix")
def cut_mix():
    train(chain(layers.CutMix(), shape=(8, 8, 3)), IMAGES)


@case(RANDOM, "STFTSpectrogram")
def spectrogram():
    train(
        chain(layers.STFTSpectrogram(frame_length=16, frame_step=16, fft_length=16), shape=(64, 1)),
        np.resize(X, (SIZE, 64, 1)),
    )


@case(RANDOM, "MelSpectrogram")
def mel_spectrogram():
    sound = np.random.default_rng(1).normal(size=(SIZE, 400)).astype("float32")
    train(
        chain(
            layers.MelSpectrogram(num_mel_bins=4, sequence_stride=100, fft_length=128, sequence_length=128),
            shape=(400,),
        ),
        sound,
    )


@case(RANDOM, "`tf.random` and `numpy.random` inside the model")
def own_draws():
    train(linear(layers.Lambda(lambda x: x + tf.random.normal(tf.shape(x)))))
