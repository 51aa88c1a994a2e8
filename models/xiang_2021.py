"""The networks of Xiang et al. 2021 (Differentially private deep learning through optimized additive noise, section 6).

All give logits. The same builders run on Keras 2 and Keras 3.
"""

import keras
from keras import layers


def lenet5(classes: int = 10) -> keras.Model:
    """MNIST: LeNet-5."""
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


def alexnet(classes: int = 10) -> keras.Model:
    """SVHN: AlexNet with all kernels 3 x 3, and smaller dense layers for images of 32 x 32."""
    model = keras.Sequential([keras.Input((32, 32, 3))], name="alexnet")
    for width, pooled in [(64, True), (192, True), (384, False), (256, False), (256, True)]:
        model.add(layers.Conv2D(width, 3, padding="same", activation="relu"))
        if pooled:
            model.add(layers.MaxPooling2D(2))
    model.add(layers.Flatten())
    for _ in range(2):
        model.add(layers.Dense(256, activation="relu"))
    model.add(layers.Dense(classes))
    return model


def resnet18(classes: int = 10, groups: int = 16) -> keras.Model:
    """CIFAR-10: ResNet-18 for images of 32 x 32, with group normalisation, for batch normalisation mixes records."""

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


def and_perceptron() -> keras.Model:
    """Section 4.1, figure 1: two inputs, two sigmoid neurons and one output, which learns x1 AND x2. Gives its logit."""
    return keras.Sequential(
        [keras.Input((2,)), layers.Dense(2, activation="sigmoid"), layers.Dense(1)], name="and_perceptron"
    )
