"""Weights used more than once: siamese layers, repeated calls, weights shared between layers."""

import keras
from keras import layers, ops

from tests.zoo.cases import Case, case, representative

MSE = {"loss": "mse"}


@representative
@case
def siamese_dense(draw):
    def model():
        left, right = layers.Input((4,)), layers.Input((4,))
        shared = layers.Dense(5, "tanh")
        return keras.Model([left, right], layers.Dense(2)(shared(left) * shared(right)))

    return Case(model=model, x=[draw.reals(6, 4), draw.reals(6, 4)], y=draw.reals(6, 2), compile=MSE)


@case
def siamese_network(draw):
    """A whole convolutional network applied to two images."""

    def model():
        left, right = layers.Input((6, 6, 1)), layers.Input((6, 6, 1))
        tower = keras.Sequential(
            [
                layers.Input((6, 6, 1)),
                layers.Conv2D(3, 3, activation="tanh"),
                layers.LayerNormalization(),
                layers.Flatten(),
                layers.Dense(4),
            ]
        )
        distance = ops.mean(ops.square(tower(left) - tower(right)), axis=-1, keepdims=True)
        return keras.Model([left, right], layers.Dense(1, "sigmoid")(distance))

    return Case(
        model=model,
        x=[draw.reals(6, 6, 6, 1), draw.reals(6, 6, 6, 1)],
        y=draw.labels(6, 1, classes=2).astype("float32"),
        compile={"loss": "binary_crossentropy"},
    )


@case
def dense_called_three_times(draw):
    """Each use feeds the next, so that the gradient flows through later uses of the same weight."""

    def model():
        x = layers.Input((4,))
        shared = layers.Dense(4, "tanh")
        return keras.Model(x, layers.Dense(2)(shared(shared(shared(x)))))

    return Case(model=model, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


@case
def dense_called_on_two_ranks(draw):
    """The same kernel on vectors and on sequences."""

    def model():
        vector, sequence = layers.Input((4,)), layers.Input((3, 4))
        shared = layers.Dense(5, "tanh")
        pooled = layers.GlobalAveragePooling1D()(shared(sequence))
        return keras.Model([vector, sequence], layers.Dense(2)(pooled + shared(vector)))

    return Case(model=model, x=[draw.reals(6, 4), draw.reals(6, 3, 4)], y=draw.reals(6, 2), compile=MSE)


@case
def lstm_called_twice(draw):
    def model():
        left, right = layers.Input((3, 2)), layers.Input((4, 2))
        shared = layers.LSTM(3)
        return keras.Model([left, right], layers.Dense(2)(layers.Concatenate()([shared(left), shared(right)])))

    return Case(model=model, x=[draw.reals(5, 3, 2), draw.reals(5, 4, 2)], y=draw.reals(5, 2), compile=MSE)


@case
def convolution_and_normalisation_called_twice(draw):
    def model():
        x = layers.Input((6, 6, 2))
        convolution = layers.Conv2D(2, 3, padding="same", activation="tanh")
        normalisation = layers.LayerNormalization()
        y = normalisation(convolution(normalisation(convolution(x))))
        return keras.Model(x, layers.Dense(2)(layers.GlobalMaxPooling2D()(y)))

    return Case(model=model, x=draw.reals(5, 6, 6, 2), y=draw.reals(5, 2), compile=MSE)


class Decoder(layers.Layer):
    """Uses the kernel of another layer, transposed, and adds a bias of its own."""

    def __init__(self, encoder):
        super().__init__()
        self.kernel = encoder.kernel
        self.bias = self.add_weight(shape=(self.kernel.shape[0],), initializer="zeros", name="bias")

    def call(self, x):
        return ops.tanh(ops.matmul(x, ops.transpose(self.kernel))) + self.bias


@case
def autoencoder_with_a_shared_kernel(draw):
    """A Dense layer and a custom layer own the same kernel."""

    def model():
        x = layers.Input((5,))
        encoder = layers.Dense(3, "tanh")
        code = encoder(x)
        return keras.Model(x, Decoder(encoder)(code))

    return Case(model=model, x=draw.reals(6, 5), y=draw.reals(6, 5), compile=MSE)


class KernelPenalty(keras.Model):
    """The kernel also enters the output directly, outside its layer: each example's loss sees it twice."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(4, "tanh")
        self.head = layers.Dense(2)

    def call(self, x):
        return self.head(self.hidden(x)) + ops.sum(self.hidden.kernel**2) * x[:, :2]


@case
def dense_kernel_read_outside_its_layer(draw):
    return Case(model=KernelPenalty, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


@case
def dense_whose_inputs_are_its_own_kernel(draw):
    """A layer called on something without an example axis, and on the examples too."""

    class Recursive(keras.Model):
        def __init__(self):
            super().__init__()
            self.square = layers.Dense(4, "tanh")

        def call(self, x):
            return self.square(x) + ops.sum(self.square(self.square.kernel), axis=0)

    return Case(model=Recursive, x=draw.reals(6, 4), y=draw.reals(6, 4), compile=MSE)
