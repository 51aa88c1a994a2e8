"""A small convolutional network for scikit-learn's 8 x 8 digits."""

import keras


def digits_cnn(classes: int = 10) -> keras.Model:
    """Two convolutions with tanh: bounded activations keep gradients small, so that little of them is clipped."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="tanh"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2D(32, 3, padding="same", activation="tanh"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(classes),
        ],
        name="digits_cnn",
    )
