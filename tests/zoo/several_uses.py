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


def with_large_records(draw):
    """Half of the records are larger than any that the self-proof makes up."""
    x = draw.reals(6, 4)
    x[::2, 0] += 10.0
    return x


class UsesForLarge(keras.Model):
    """Of a large record alone, the hidden layer's weights are used once more."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = layers.Dense(4, "tanh"), layers.Dense(2)

    def call(self, x):
        h = self.hidden(x)
        return self.head(ops.where(x[:, :1] > 5.0, self.again(h), h))


class ReadsForLarge(UsesForLarge):
    def again(self, h):
        return h + self.hidden.kernel[0]


class LoopsForLarge(UsesForLarge):
    """The second use is in a loop."""

    def again(self, h):
        return ops.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, self.hidden(h)), (0, h))[1]


@case
def kernel_read_for_some_records_only(draw):
    return Case(model=ReadsForLarge, x=with_large_records(draw), y=draw.reals(6, 2), compile=MSE)


@case
def layer_run_again_in_a_loop_for_some_records_only(draw):
    return Case(model=LoopsForLarge, x=with_large_records(draw), y=draw.reals(6, 2), compile=MSE)


@case
def row_of_a_table_read_for_one_token_only(draw):
    class Substitutes(keras.Model):
        def __init__(self):
            super().__init__()
            self.table, self.head = layers.Embedding(20, 4), layers.Dense(2)

        def call(self, tokens):
            found, special = self.table(tokens), ops.expand_dims(tokens == 13, -1)
            return self.head(ops.mean(ops.where(special, self.table.embeddings[0] * 2.0, found), axis=1))

    tokens = draw.labels(6, 5, classes=20).astype("int32")
    tokens[::2, 1] = 13
    return Case(model=Substitutes, x=tokens, y=draw.reals(6, 2), compile=MSE)


class LossReadsForLarge(keras.Model):
    """The loss of a large record has the hidden layer's kernel in it once more."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = layers.Dense(4, "tanh"), layers.Dense(2)

    def call(self, x):
        return self.head(self.hidden(x))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        again = ops.where(x[:, :1] > 5.0, ops.matmul(x, self.hidden.kernel), 0.0)
        return ops.mean(ops.square(y - y_pred)) + 0.1 * ops.mean(again)


@case
def kernel_read_by_the_loss_of_some_records_only(draw):
    return Case(model=LossReadsForLarge, x=with_large_records(draw), y=draw.reals(6, 2), compile={"loss": None})
