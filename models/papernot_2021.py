"""Networks with bounded activations, after Papernot et al. 2021 (Tempered sigmoid activations for deep learning with differential
privacy, tables 1 and 2): not of the reproduced papers, but what trains well under a clip.

All give logits. The same builders run on Keras 2 and Keras 3.
"""

import keras
from keras import layers


def mnist_tanh_cnn(classes: int = 10) -> keras.Model:
    """MNIST and Fashion-MNIST: two convolutions and a dense layer with tanh."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 8, strides=2, padding="same", activation="tanh"),
            layers.MaxPooling2D(2, strides=1),
            layers.Conv2D(32, 4, strides=2, padding="valid", activation="tanh"),
            layers.MaxPooling2D(2, strides=1),
            layers.Flatten(),
            layers.Dense(32, activation="tanh"),
            layers.Dense(classes),
        ],
        name="mnist_tanh_cnn",
    )


def cifar_tanh_cnn(classes: int = 10) -> keras.Model:
    """CIFAR-10 and SVHN: three pairs of convolutions and a dense layer with tanh."""
    model = keras.Sequential([keras.Input((32, 32, 3))], name="cifar_tanh_cnn")
    for width in (32, 64, 128):
        for _ in range(2):
            model.add(layers.Conv2D(width, 3, padding="same", activation="tanh"))
        model.add(layers.MaxPooling2D(2))
    model.add(layers.Flatten())
    model.add(layers.Dense(128, activation="tanh"))
    model.add(layers.Dense(classes))
    return model
