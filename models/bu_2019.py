"""The networks of Bu et al. 2019 (Deep Learning with Gaussian Differential Privacy, section 4), one for each data set.

All give logits. The same builders run on Keras 2 and Keras 3.
"""

import keras
from keras import layers


def adult_mlp(features: int = 123, classes: int = 2) -> keras.Model:
    """Adult income: one layer of 16 ReLU neurons."""
    return keras.Sequential(
        [keras.Input((features,)), layers.Dense(16, activation="relu"), layers.Dense(classes)], name="adult_mlp"
    )


def mnist_cnn(
    classes: int = 10, activation: str = "relu", name: str = "mnist_cnn", scaling: tuple[layers.Layer, ...] = ()
) -> keras.Model:
    """MNIST: two convolutions and a dense layer, as in TensorFlow Privacy's tutorial."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            *scaling,
            layers.Conv2D(16, 8, strides=2, padding="same", activation=activation),
            layers.MaxPooling2D(2, strides=1),
            layers.Conv2D(32, 4, strides=2, padding="valid", activation=activation),
            layers.MaxPooling2D(2, strides=1),
            layers.Flatten(),
            layers.Dense(32, activation=activation),
            layers.Dense(classes),
        ],
        name=name,
    )


def imdb_text(words: int = 10000, length: int = 256, classes: int = 2) -> keras.Model:
    """IMDb: words embedded into 16 units, averaged over the text, one layer of 16 ReLU neurons."""
    return keras.Sequential(
        [
            keras.Input((length,), dtype="int32"),
            layers.Embedding(words, 16),
            layers.GlobalAveragePooling1D(),
            layers.Dense(16, activation="relu"),
            layers.Dense(classes),
        ],
        name="imdb_text",
    )


def movielens_ncf(users: int = 6040, movies: int = 3706, ratings: int = 5) -> keras.Model:
    """MovieLens 1M: five factors multiplied (matrix factorisation) beside ten factors each, and one dense layer."""
    user, movie = keras.Input((), dtype="int32", name="user"), keras.Input((), dtype="int32", name="movie")
    factors = layers.Multiply()([layers.Embedding(users, 5)(user), layers.Embedding(movies, 5)(movie)])
    both = layers.Concatenate()([factors, layers.Embedding(users, 10)(user), layers.Embedding(movies, 10)(movie)])
    return keras.Model({"user": user, "movie": movie}, layers.Dense(ratings)(both), name="movielens_ncf")
