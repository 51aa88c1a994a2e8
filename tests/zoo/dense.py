"""Dense and EinsumDense: ranks, activations, LoRA, layouts in which the example is not the first axis."""

import keras
from keras import layers, ops

from tests.zoo.cases import Case, case, representative

MSE = {"loss": "mse"}


@representative
@case
def dense_on_vectors(draw):
    return Case(
        model=lambda: keras.Sequential([layers.Input((4,)), layers.Dense(5, "tanh"), layers.Dense(3)]),
        x=draw.reals(6, 4),
        y=draw.reals(6, 3),
        compile=MSE,
    )


@representative
@case
def dense_on_sequences(draw):
    return Case(
        model=lambda: keras.Sequential([layers.Input((5, 4)), layers.Dense(6, "tanh"), layers.Dense(2)]),
        x=draw.reals(6, 5, 4),
        y=draw.reals(6, 5, 2),
        compile=MSE,
    )


@case
def dense_on_rank_four(draw):
    return Case(
        model=lambda: keras.Sequential([layers.Input((2, 3, 4)), layers.Dense(5, "gelu"), layers.Dense(2)]),
        x=draw.reals(5, 2, 3, 4),
        y=draw.reals(5, 2, 3, 2),
        compile=MSE,
    )


@case
def dense_without_bias(draw):
    return Case(
        model=lambda: keras.Sequential(
            [layers.Input((4,)), layers.Dense(5, "relu", use_bias=False), layers.Dense(2, use_bias=False)]
        ),
        x=draw.reals(7, 4),
        y=draw.reals(7, 2),
        compile=MSE,
    )


@case
def long_sequence_with_narrow_dense(draw):
    """More positions than weights: the Gram form would be the dearer one."""
    return Case(
        model=lambda: keras.Sequential([layers.Input((40, 2)), layers.Dense(3, "tanh"), layers.Dense(1)]),
        x=draw.reals(5, 40, 2),
        y=draw.reals(5, 40, 1),
        compile=MSE,
    )


@case
def short_sequence_with_wide_dense(draw):
    """Fewer positions than weights: the Gram form is the cheaper one."""
    return Case(
        model=lambda: keras.Sequential([layers.Input((2, 40)), layers.Dense(50, "tanh"), layers.Dense(1)]),
        x=draw.reals(5, 2, 40),
        y=draw.reals(5, 2, 1),
        compile=MSE,
    )


@case
def einsum_dense_on_sequences(draw):
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((5, 4)),
                layers.EinsumDense("abc,cd->abd", output_shape=(None, 6), bias_axes="d", activation="tanh"),
                layers.EinsumDense("...x,xy->...y", output_shape=2, bias_axes="y"),
            ]
        ),
        x=draw.reals(6, 5, 4),
        y=draw.reals(6, 5, 2),
        compile=MSE,
    )


@case
def einsum_dense_with_heads(draw):
    """A kernel of rank 3 and a bias over two axes, then a contraction over two axes."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((5, 4)),
                layers.EinsumDense("abc,cde->abde", output_shape=(None, 2, 3), bias_axes="de", activation="tanh"),
                layers.EinsumDense("abde,def->abf", output_shape=(None, 4), bias_axes="f"),
            ]
        ),
        x=draw.reals(6, 5, 4),
        y=draw.reals(6, 5, 4),
        compile=MSE,
    )


@case
def einsum_dense_with_a_kernel_for_each_position(draw):
    """The kernel and the input share an axis that is kept (position t): not a plain matrix product."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((5, 4)),
                layers.EinsumDense("bti,tio->bto", output_shape=(5, 3), bias_axes="to", activation="tanh"),
            ]
        ),
        x=draw.reals(6, 5, 4),
        y=draw.reals(6, 5, 3),
        compile=MSE,
    )


@case
def einsum_dense_that_sums_an_axis_away(draw):
    """Axis t is in the input alone: it is summed before the product."""
    return Case(
        model=lambda: keras.Sequential(
            [layers.Input((5, 4)), layers.EinsumDense("bti,io->bo", output_shape=(3,), bias_axes="o")]
        ),
        x=draw.reals(6, 5, 4),
        y=draw.reals(6, 3),
        compile=MSE,
    )


@case
def dense_with_lora(draw):
    """With LoRA the factors A and B are trained, the kernel is not."""

    def model():
        model = keras.Sequential([layers.Input((4,)), layers.Dense(6, "tanh"), layers.Dense(3)])
        model.layers[0].enable_lora(rank=2)
        return model

    return Case(model=model, x=draw.reals(6, 4), y=draw.reals(6, 3), compile=MSE)


@case
def einsum_dense_with_lora(draw):
    def model():
        einsum = layers.EinsumDense("abc,cd->abd", output_shape=(None, 6), bias_axes="d")
        model = keras.Sequential([layers.Input((5, 4)), einsum, layers.Dense(2)])
        einsum.enable_lora(rank=2)
        return model

    return Case(model=model, x=draw.reals(6, 5, 4), y=draw.reals(6, 5, 2), compile=MSE)


class FlattenedSequences(keras.Model):
    """Dense on all positions of all examples as one long list: B*T rows, example-major."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(6, "tanh")
        self.head = layers.Dense(2)

    def call(self, x):
        positions = ops.reshape(x, (-1, x.shape[-1]))
        return ops.reshape(self.head(self.hidden(positions)), (-1, x.shape[1], 2))


@case
def dense_on_flattened_sequences(draw):
    return Case(model=FlattenedSequences, x=draw.reals(6, 5, 4), y=draw.reals(6, 5, 2), compile=MSE)


class TimeMajor(keras.Model):
    """Dense on (T, B, d): the example is the second axis."""

    def __init__(self, flatten=False):
        super().__init__()
        self.flatten = flatten
        self.hidden = layers.Dense(6, "tanh")
        self.head = layers.Dense(2)

    def call(self, x):
        steps, width = x.shape[1:]
        x = ops.transpose(x, (1, 0, 2))
        if self.flatten:
            x = ops.reshape(x, (-1, width))
        x = self.head(self.hidden(x))
        return ops.transpose(ops.reshape(x, (steps, -1, 2)), (1, 0, 2))


@case
def dense_on_time_major_sequences(draw):
    return Case(model=TimeMajor, x=draw.reals(6, 5, 4), y=draw.reals(6, 5, 2), compile=MSE)


@case
def dense_on_time_major_sequences_as_long_as_the_lot(draw):
    """T = B: shapes alone cannot tell the example axis from the time axis."""
    return Case(model=TimeMajor, x=draw.reals(5, 5, 4), y=draw.reals(5, 5, 2), compile=MSE)


@case
def dense_on_flattened_time_major_sequences(draw):
    """B*T rows again, but time-major: row r belongs to example r modulo B."""
    return Case(model=lambda: TimeMajor(flatten=True), x=draw.reals(6, 5, 4), y=draw.reals(6, 5, 2), compile=MSE)


@case
def dense_with_many_activations(draw):
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((4,)),
                layers.Dense(6, activation=layers.LeakyReLU(negative_slope=0.3)),
                layers.Dense(6, activation="softplus"),
                layers.Dense(6, activation=keras.activations.swish),
                layers.Dense(6, activation=lambda x: x * ops.sigmoid(x)),
                layers.Dense(6, activation="softmax"),
                layers.Dense(3, activation="selu"),
            ]
        ),
        x=draw.reals(6, 4),
        y=draw.reals(6, 3),
        compile=MSE,
    )


@case
def dense_with_a_trainable_activation(draw):
    """PReLU as the activation: a layer with a weight of its own, inside a Dense that owns weights too."""
    return Case(
        model=lambda: keras.Sequential(
            [layers.Input((4,)), layers.Dense(6, activation=layers.PReLU()), layers.Dense(3)]
        ),
        x=draw.reals(6, 4),
        y=draw.reals(6, 3),
        compile=MSE,
    )


@case
def dense_bilinear_merge(draw):
    """Merging layers: Dot, Concatenate, Add, Multiply, Subtract."""

    def model():
        first, second = layers.Input((4,)), layers.Input((4,))
        a, b = layers.Dense(5, "tanh")(first), layers.Dense(5, "tanh")(second)
        merged = layers.Concatenate()([layers.Dot(axes=1)([a, b]), layers.Add()([a, b]), layers.Multiply()([a, b])])
        return keras.Model([first, second], layers.Dense(2)(layers.Concatenate()([merged, a - b])))

    return Case(model=model, x=[draw.reals(6, 4), draw.reals(6, 4)], y=draw.reals(6, 2), compile=MSE)


@case
def dense_on_encoded_categories(draw):
    """Integer input through CategoryEncoding."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((3,), dtype="int32"),
                layers.CategoryEncoding(num_tokens=7, output_mode="multi_hot"),
                layers.Dense(4, "tanh"),
                layers.Dense(2),
            ]
        ),
        x=draw.labels(6, 3, classes=7),
        y=draw.reals(6, 2),
        compile=MSE,
    )


@case
def dense_after_preprocessing(draw):
    """Discretization, Normalization and Rescaling in the model: weights not trained, or none."""

    def model():
        x = layers.Input((3,))
        buckets = ops.cast(layers.Discretization(bin_boundaries=[-1.0, 0.0, 1.0])(x), "float32")
        scaled = layers.Rescaling(0.5)(layers.Normalization(mean=0.1, variance=2.0)(x))
        return keras.Model(x, layers.Dense(2)(layers.Concatenate()([buckets, scaled])))

    return Case(model=model, x=draw.reals(6, 3), y=draw.reals(6, 2), compile=MSE)
