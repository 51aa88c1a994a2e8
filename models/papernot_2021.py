"""Networks with bounded activations, after Papernot et al. 2021 (Tempered sigmoid activations for deep learning with differential
privacy, tables 1 and 2): not of the reproduced papers, but what trains well under a clip.

All give logits. The same builders run on Keras 2 and Keras 3.
"""

import keras
from keras import layers

from models import bu_2019


def mnist_tanh_cnn(classes: int = 10) -> keras.Model:
    """MNIST and Fashion-MNIST: two convolutions and a dense layer with tanh, pixels scaled to a spread of about 1 around about 0."""
    scaling = (layers.Rescaling(3.0, -0.4),)
    return bu_2019.mnist_cnn(classes, activation="tanh", name="mnist_tanh_cnn", scaling=scaling)


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
