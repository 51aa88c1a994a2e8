"""Structures of models: nesting, several inputs and outputs, frozen and unused layers, regularisers."""

import keras
from keras import layers, ops

from tests.zoo.cases import Case, case, representative

MSE = {"loss": "mse"}


@case
def functional_in_functional(draw):
    def model():
        inner_input = layers.Input((4,))
        inner = keras.Model(inner_input, layers.Dense(3, "tanh")(layers.Dense(5, "tanh")(inner_input)))
        x = layers.Input((4,))
        return keras.Model(x, layers.Dense(2)(inner(x)))

    return Case(model=model, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


class SequentialInside(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Conv1D(3, 2, activation="tanh"), layers.LSTM(3)])
        self.head = keras.Sequential([layers.Dense(4, "tanh"), layers.Dense(2)])

    def call(self, x, training=None):
        return self.head(self.encoder(x, training=training))


@case
def sequential_in_subclass(draw):
    return Case(model=SequentialInside, x=draw.reals(6, 4, 3), y=draw.reals(6, 2), compile=MSE)


@case
def subclass_in_functional(draw):
    def model():
        x = layers.Input((4, 3))
        return keras.Model(x, layers.Dense(2, "tanh")(SequentialInside()(x)))

    return Case(model=model, x=draw.reals(6, 4, 3), y=draw.reals(6, 2), compile=MSE)


@representative
@case
def several_inputs_and_outputs(draw):
    """Dictionaries of inputs and of outputs, each output with its own loss and weight."""

    def model():
        wide, deep = layers.Input((3,), name="wide"), layers.Input((4, 2), name="deep")
        body = layers.Concatenate()([layers.Dense(4, "tanh")(wide), layers.LSTM(3)(deep)])
        return keras.Model(
            {"wide": wide, "deep": deep},
            {
                "value": layers.Dense(1, name="value")(body),
                "kind": layers.Dense(3, "softmax", name="kind")(body),
            },
        )

    return Case(
        model=model,
        x={"wide": draw.reals(6, 3), "deep": draw.reals(6, 4, 2)},
        y={"value": draw.reals(6, 1), "kind": draw.labels(6, classes=3)},
        compile={
            "loss": {"value": "mse", "kind": "sparse_categorical_crossentropy"},
            "loss_weights": {"value": 0.3, "kind": 2.0},
        },
    )


@case
def several_outputs_with_their_own_sample_weights(draw):
    def model():
        x = layers.Input((4,))
        body = layers.Dense(4, "tanh")(x)
        return keras.Model(x, {"a": layers.Dense(1, name="a")(body), "b": layers.Dense(2, name="b")(body)})

    return Case(
        model=model,
        x=draw.reals(6, 4),
        y={"a": draw.reals(6, 1), "b": draw.reals(6, 2)},
        sample_weight={"a": draw.weights(6), "b": draw.weights(6)},
        compile={"loss": {"a": "mse", "b": "mae"}},
    )


@case
def list_of_outputs(draw):
    def model():
        x = layers.Input((4,))
        body = layers.Dense(4, "tanh")(x)
        return keras.Model(x, [layers.Dense(1)(body), layers.Dense(2)(body)])

    return Case(
        model=model,
        x=draw.reals(6, 4),
        y=[draw.reals(6, 1), draw.reals(6, 2)],
        sample_weight=draw.weights(6),
        compile={"loss": ["mse", "mae"], "loss_weights": [1.0, 0.5]},
    )


@case
def output_without_loss(draw):
    """The second output has no loss: the layers that feed it alone do not move."""

    def model():
        x = layers.Input((4,))
        body = layers.Dense(4, "tanh")(x)
        return keras.Model(x, [layers.Dense(1)(body), layers.Dense(2)(layers.Dense(3, "tanh")(body))])

    return Case(
        model=model,
        x=draw.reals(6, 4),
        y=[draw.reals(6, 1), draw.reals(6, 2)],
        compile={"loss": ["mse", None]},
    )


class UnusedBranch(keras.Model):
    def __init__(self):
        super().__init__()
        self.used = layers.Dense(2)
        self.thrown_away = layers.Dense(3)

    def call(self, x):
        self.thrown_away(x)
        return self.used(x)


@case
def layer_whose_output_is_thrown_away(draw):
    return Case(model=UnusedBranch, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


@case
def inputs_of_several_ranks(draw):
    """A number, a vector and a sequence for each example."""

    def model():
        number, vector, sequence = layers.Input(()), layers.Input((3,)), layers.Input((4, 2))
        parts = [ops.expand_dims(number, -1), layers.Dense(3, "tanh")(vector), layers.SimpleRNN(3)(sequence)]
        return keras.Model([number, vector, sequence], layers.Dense(1)(layers.Concatenate()(parts)))

    return Case(model=model, x=[draw.reals(6), draw.reals(6, 3), draw.reals(6, 4, 2)], y=draw.reals(6), compile=MSE)


@case
def frozen_layers(draw):
    """A frozen layer in the middle passes the gradient on; a frozen nested model does too."""

    def model():
        nested = keras.Sequential([layers.Input((4,)), layers.Dense(4, "tanh")])
        nested.trainable = False
        return keras.Sequential(
            [
                layers.Input((4,)),
                layers.Dense(4, "tanh"),
                layers.Dense(4, "tanh", trainable=False),
                nested,
                layers.Dense(2),
            ]
        )

    return Case(model=model, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


@representative
@case
def weight_regularisers(draw):
    """Data-independent: their gradient is added after the clipped mean and is not clipped.

    The strengths make both parts visible, whether the examples are clipped or not.
    """
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((4,)),
                layers.Dense(5, "tanh", kernel_regularizer=keras.regularizers.L2(1e-3), bias_regularizer="l2"),
                layers.Dense(2, kernel_regularizer=keras.regularizers.L1(1e-3)),
            ]
        ),
        x=draw.reals(6, 4),
        y=draw.reals(6, 2),
        compile=MSE,
    )


@case
def weight_regulariser_of_a_frozen_layer(draw):
    """Keras counts regularisers of trainable weights alone."""
    regulariser = keras.regularizers.L2(1e-3)
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((4,)),
                layers.Dense(4, "tanh", kernel_regularizer=regulariser, trainable=False),
                layers.Dense(2, kernel_regularizer=regulariser),
            ]
        ),
        x=draw.reals(6, 4),
        y=draw.reals(6, 2),
        compile=MSE,
    )


@case
def weight_regulariser_of_a_shared_layer(draw):
    """Counted once, however often the layer is used; an embedding row that no example uses shrinks too."""

    def model():
        left, right = layers.Input((3,), dtype="int32"), layers.Input((3,), dtype="int32")
        embedding = layers.Embedding(9, 4, embeddings_regularizer=keras.regularizers.L2(1e-3))
        pooled = [layers.GlobalAveragePooling1D()(embedding(ids)) for ids in (left, right)]
        return keras.Model([left, right], layers.Dense(2)(pooled[0] - pooled[1]))

    return Case(
        model=model,
        x=[draw.labels(6, 3, classes=7), draw.labels(6, 3, classes=7)],
        y=draw.reals(6, 2),
        compile=MSE,
    )


def activity_regularisers_add_up() -> bool:
    """Whether this Keras adds activity regularisers up over the lot; newer ones take the mean."""
    layer = layers.ActivityRegularization(l1=1.0)
    layer(ops.ones((2, 1)))
    return float(layer.losses[0]) == 2.0


@case
def activity_regularisers(draw):
    """Part of each example's own loss."""
    return Case(
        model=lambda: keras.Sequential(
            [
                layers.Input((3, 4)),
                layers.Dense(5, "tanh", activity_regularizer=keras.regularizers.L2(0.1)),
                layers.ActivityRegularization(l1=0.05),
                layers.LSTM(3, activity_regularizer="l2"),
                layers.Dense(2),
            ]
        ),
        x=draw.reals(6, 3, 4),
        y=draw.reals(6, 2),
        compile=MSE,
        differs_from_keras="Keras adds them up over the lot" if activity_regularisers_add_up() else "",
    )


@case
def rematerialised_activations(draw):
    """The activations of Dense are computed again in the backward pass.

    Mode "full" can't train Dense on TensorFlow: `tf.recompute_grad` takes no keyword arguments in a graph.
    """

    def model():
        with keras.RematScope(mode="activations"):
            hidden = [layers.Dense(5, "tanh"), layers.Dense(4, "gelu")]
        return keras.Sequential([layers.Input((4,)), *hidden, layers.Dense(2)])

    return Case(model=model, x=draw.reals(6, 4), y=draw.reals(6, 2), compile=MSE)


@case
def rematerialised_layers(draw):
    """Whole layers, weights and all, are computed again in the backward pass."""

    def model():
        with keras.RematScope(mode="full"):
            hidden = [layers.Conv1D(4, 2, activation="tanh"), layers.LayerNormalization()]
        return keras.Sequential([layers.Input((5, 3)), *hidden, layers.Flatten(), layers.Dense(2)])

    return Case(model=model, x=draw.reals(6, 5, 3), y=draw.reals(6, 2), compile=MSE)
