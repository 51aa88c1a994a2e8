"""Convolutions: dimensions, paddings, strides, dilations, groups, depthwise, separable, transposed."""

import keras
from keras import layers

from tests.zoo.cases import Case, case, representative


def convolutional(draw, shape, *stack, size=5):
    """Convolutions one after another, then the mean over space and a Dense layer."""
    pool = {
        1: layers.GlobalAveragePooling1D,
        2: layers.GlobalAveragePooling2D,
        3: layers.GlobalAveragePooling3D,
    }

    def model():
        return keras.Sequential(
            [layers.Input(shape), *(make() for make in stack), pool[len(shape) - 1](), layers.Dense(2)]
        )

    return Case(model=model, x=draw.reals(size, *shape), y=draw.reals(size, 2), compile={"loss": "mse"})


@case
def conv1d_valid(draw):
    return convolutional(draw, (9, 3), lambda: layers.Conv1D(4, 3, activation="tanh"))


@case
def conv1d_same_with_strides(draw):
    return convolutional(draw, (9, 3), lambda: layers.Conv1D(4, 4, strides=2, padding="same", activation="tanh"))


@representative
@case
def conv1d_causal_and_dilated(draw):
    return convolutional(
        draw,
        (9, 3),
        lambda: layers.Conv1D(4, 3, padding="causal", activation="tanh"),
        lambda: layers.Conv1D(4, 2, padding="causal", dilation_rate=2, activation="tanh"),
        lambda: layers.Conv1D(4, 2, padding="valid", dilation_rate=3, activation="tanh"),
    )


@case
def conv1d_with_groups(draw):
    return convolutional(draw, (8, 4), lambda: layers.Conv1D(6, 3, groups=2, activation="tanh"))


@case
def conv2d_valid(draw):
    return convolutional(
        draw,
        (8, 7, 2),
        lambda: layers.Conv2D(3, (3, 2), activation="tanh", data_format="channels_last"),
        lambda: layers.Conv2D(4, 2, activation="tanh"),
    )


@representative
@case
def conv2d_same_with_strides_on_odd_sizes(draw):
    """Padding is not symmetric when size, kernel and stride do not fit."""
    return convolutional(
        draw,
        (7, 9, 2),
        lambda: layers.Conv2D(3, 3, strides=2, padding="same", activation="tanh"),
        lambda: layers.Conv2D(3, 2, strides=(2, 1), padding="same", activation="tanh"),
    )


@case
def conv2d_valid_with_unused_border(draw):
    """Stride 3 on 8 pixels with a kernel of 3: the last two rows and columns are never read."""
    return convolutional(draw, (8, 8, 2), lambda: layers.Conv2D(3, 3, strides=3, activation="tanh"))


@case
def conv2d_dilated(draw):
    return convolutional(
        draw,
        (8, 8, 2),
        lambda: layers.Conv2D(3, 3, dilation_rate=2, activation="tanh"),
        lambda: layers.Conv2D(3, 2, dilation_rate=(1, 2), padding="same", activation="tanh"),
    )


@case
def conv2d_with_groups(draw):
    return convolutional(
        draw, (6, 6, 4), lambda: layers.Conv2D(6, 3, groups=2, strides=2, padding="same", activation="tanh")
    )


@case
def conv2d_without_bias(draw):
    return convolutional(draw, (6, 6, 2), lambda: layers.Conv2D(3, 3, use_bias=False, activation="tanh"))


@case
def conv2d_one_by_one(draw):
    return convolutional(
        draw,
        (5, 5, 3),
        lambda: layers.Conv2D(4, 1, activation="tanh"),
        lambda: layers.Conv2D(4, 1, strides=2, activation="tanh"),
    )


@case
def conv2d_with_many_channels(draw):
    """Few positions, many channels: the shape for which another way of computing norms pays."""
    return convolutional(draw, (4, 4, 24), lambda: layers.Conv2D(32, 3, padding="same", activation="tanh"))


@case
def conv2d_with_pooling(draw):
    """A small image classifier: two convolutions, pooling, Flatten, Dense."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((10, 10, 1)),
                layers.Conv2D(4, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(2),
                layers.Conv2D(6, 2, strides=2, activation="relu"),
                layers.Flatten(),
                layers.Dense(3),
            ]
        ),
        x=draw.reals(6, 10, 10, 1),
        y=draw.labels(6, classes=3),
        compile={"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
    )


@case
def conv2d_with_lora(draw):
    def model():
        convolution = layers.Conv2D(4, 3, activation="tanh")
        model = keras.Sequential([layers.Input((6, 6, 2)), convolution, layers.Flatten(), layers.Dense(2)])
        convolution.enable_lora(rank=2)
        return model

    return Case(model=model, x=draw.reals(5, 6, 6, 2), y=draw.reals(5, 2), compile={"loss": "mse"})


@case
def conv3d(draw):
    return convolutional(
        draw,
        (5, 4, 5, 2),
        lambda: layers.Conv3D(3, (2, 3, 2), activation="tanh"),
        lambda: layers.Conv3D(3, 2, strides=2, padding="same", activation="tanh"),
    )


@case
def depthwise_conv1d(draw):
    return convolutional(
        draw,
        (9, 3),
        lambda: layers.DepthwiseConv1D(3, depth_multiplier=2, padding="same", activation="tanh"),
        lambda: layers.DepthwiseConv1D(2, strides=2, activation="tanh"),
    )


@case
def depthwise_conv2d(draw):
    return convolutional(
        draw,
        (7, 6, 3),
        lambda: layers.DepthwiseConv2D(3, depth_multiplier=2, strides=2, padding="same", activation="tanh"),
        lambda: layers.DepthwiseConv2D(2, depth_multiplier=1, activation="tanh"),
    )


@case
def depthwise_conv2d_dilated(draw):
    return convolutional(
        draw,
        (7, 7, 2),
        lambda: layers.DepthwiseConv2D(2, depth_multiplier=2, dilation_rate=2, activation="tanh"),
    )


@case
def separable_conv1d(draw):
    return convolutional(
        draw,
        (9, 3),
        lambda: layers.SeparableConv1D(4, 3, depth_multiplier=2, padding="same", activation="tanh"),
    )


@case
def separable_conv2d(draw):
    return convolutional(
        draw,
        (7, 7, 3),
        lambda: layers.SeparableConv2D(4, 3, depth_multiplier=2, strides=2, padding="same", activation="tanh"),
        lambda: layers.SeparableConv2D(3, 2, activation="tanh"),
    )


@case
def conv1d_transpose(draw):
    return convolutional(
        draw, (5, 3), lambda: layers.Conv1DTranspose(4, 3, strides=2, padding="same", activation="tanh")
    )


@case
def conv2d_transpose(draw):
    return convolutional(
        draw,
        (4, 3, 2),
        lambda: layers.Conv2DTranspose(3, 3, strides=2, padding="same", activation="tanh"),
        lambda: layers.Conv2DTranspose(2, (2, 3), strides=(1, 2), padding="valid", activation="tanh"),
    )


@case
def conv3d_transpose(draw):
    return convolutional(
        draw, (2, 3, 2, 2), lambda: layers.Conv3DTranspose(2, 2, strides=2, padding="same", activation="tanh")
    )
