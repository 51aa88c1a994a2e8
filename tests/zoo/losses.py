"""Losses: Keras's own, custom ones, reductions, losses from layers, the logits that softmax leaves behind."""

from dataclasses import replace

import keras
from keras import layers, ops

from tests.zoo.cases import Case, case, representative


def classifier(draw, loss, y, *head):
    """Dense, the head under test, a loss."""

    def model():
        return keras.Sequential([layers.Input((4,)), layers.Dense(5, "tanh"), *(m() for m in head)])

    return Case(model=model, x=draw.reals(6, 4), y=y, compile={"loss": loss})


@case
def mean_absolute_error(draw):
    return classifier(draw, "mae", draw.reals(6, 3), lambda: layers.Dense(3))


@case
def huber(draw):
    return classifier(draw, keras.losses.Huber(delta=0.5), draw.reals(6, 3), lambda: layers.Dense(3))


@case
def flat_targets_against_a_column(draw):
    """y of shape (n,), predictions of shape (n, 1): Keras reconciles the ranks, for one example too."""
    return classifier(draw, "mse", draw.reals(6), lambda: layers.Dense(1))


@case
def binary_crossentropy_of_probabilities(draw):
    return classifier(
        draw,
        "binary_crossentropy",
        draw.labels(6, 1, classes=2).astype("float32"),
        lambda: layers.Dense(1, "sigmoid"),
    )


@case
def binary_crossentropy_of_logits(draw):
    return classifier(
        draw,
        keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1),
        draw.labels(6, 3, classes=2).astype("float32"),
        lambda: layers.Dense(3),
    )


@representative
@case
def categorical_crossentropy_of_softmax(draw):
    """Softmax leaves its logits on the tensor and the loss uses them instead."""
    return classifier(
        draw,
        keras.losses.CategoricalCrossentropy(label_smoothing=0.2),
        draw.one_hot(6, classes=3),
        lambda: layers.Dense(3, "softmax"),
    )


@case
def categorical_crossentropy_of_saturated_softmax(draw):
    """Scores so large that probabilities are 0 and 1 to rounding: only the logits carry the gradient."""
    return classifier(
        draw,
        "categorical_crossentropy",
        draw.one_hot(6, classes=3),
        lambda: layers.Rescaling(40.0),
        lambda: layers.Dense(3),
        lambda: layers.Activation("softmax"),
    )


@case
def sparse_categorical_crossentropy_of_softmax(draw):
    return classifier(
        draw, "sparse_categorical_crossentropy", draw.labels(6, classes=3), lambda: layers.Dense(3, "softmax")
    )


@case
def sparse_categorical_crossentropy_of_a_softmax_layer(draw):
    return classifier(
        draw,
        "sparse_categorical_crossentropy",
        draw.labels(6, 1, classes=3),
        lambda: layers.Dense(3),
        lambda: layers.Softmax(),
    )


@case
def sparse_categorical_crossentropy_of_logits(draw):
    return classifier(
        draw,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        draw.labels(6, classes=3),
        lambda: layers.Dense(3),
    )


@case
def kl_divergence_and_cosine(draw):
    def model():
        x = layers.Input((4,))
        body = layers.Dense(5, "tanh")(x)
        return keras.Model(x, [layers.Dense(3, "softmax")(body), layers.Dense(3)(body)])

    return Case(
        model=model,
        x=draw.reals(6, 4),
        y=[draw.one_hot(6, classes=3) * 0.7 + 0.1, draw.reals(6, 3)],
        compile={"loss": ["kl_divergence", keras.losses.CosineSimilarity()]},
    )


@case
def loss_of_one_output_of_two(draw):
    """A language model that also puts out its states: `loss=[f, None]`, whole-number targets of rank 2."""

    def model():
        x = layers.Input((4,), dtype="int32")
        states = layers.Embedding(5, 3)(x)
        return keras.Model(x, [layers.Dense(5)(states), states])

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    labels = draw.labels(6, 4, classes=5)
    return Case(model=model, x=draw.labels(6, 4, classes=5), y=labels, compile={"loss": [loss, None]})


def fourth_power(y_true, y_pred):
    return ops.mean((y_true - y_pred) ** 4, axis=-1)


@case
def custom_loss_function(draw):
    return classifier(draw, fourth_power, draw.reals(6, 3), lambda: layers.Dense(3, "tanh"))


def scalar_mean(y_true, y_pred):
    """Reduces everything itself: a mean over the examples."""
    return ops.mean(ops.log(ops.cosh(y_true - y_pred)))


@case
def custom_loss_function_that_returns_a_number(draw):
    return classifier(draw, scalar_mean, draw.reals(6, 3), lambda: layers.Dense(3))


class WeightedSquares(keras.losses.Loss):
    """Returns one value for each element, not for each example."""

    def call(self, y_true, y_pred):
        return ops.square(y_true - y_pred) * (1.0 + ops.abs(y_true))


@case
def custom_loss_class(draw):
    return classifier(draw, WeightedSquares(), draw.reals(6, 3), lambda: layers.Dense(3))


@representative
@case
def loss_summed_over_the_lot(draw):
    summed = keras.losses.MeanSquaredError(reduction="sum")
    return replace(
        classifier(draw, summed, draw.reals(6, 3), lambda: layers.Dense(3)),
        differs_from_keras="Keras sums over the examples, the private step divides by the lot size",
    )


class Autoregularised(layers.Layer):
    """Adds a loss of its own, a mean over examples, that depends on its weight."""

    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1],), name="w")

    def call(self, x):
        y = x * self.w
        self.add_loss(0.3 * ops.mean(ops.sum(ops.square(y), axis=-1)))
        return y


@case
def loss_added_by_a_layer(draw):
    return classifier(draw, "mse", draw.reals(6, 2), Autoregularised, lambda: layers.Dense(2))


class Summed(layers.Layer):
    """Adds a loss that is a sum over the lot."""

    def call(self, x):
        self.add_loss(0.3 * ops.sum(ops.square(x)))
        return x


@case
def two_means_and_two_sums_added(draw):
    def model():
        kinds = (Autoregularised, Autoregularised, Summed, Summed)
        parts = [part for kind in kinds for part in (layers.Dense(3, "tanh"), kind())]
        return keras.Sequential([layers.Input((4,)), *parts, layers.Dense(2)])

    reason = "Keras sums over the examples what the layers sum, the private step divides by the lot size"
    return Case(model=model, x=draw.reals(6, 4), y=draw.reals(6, 2), compile={"loss": "mse"}, differs_from_keras=reason)


@case
def only_an_added_loss(draw):
    """No `loss=` and no targets."""

    def model():
        return keras.Sequential([layers.Input((4,)), layers.Dense(5, "tanh"), Autoregularised()])

    return Case(model=model, x=draw.reals(6, 4))


class KLSampler(keras.Model):
    """Both parts of a variational loss, without the sampling."""

    def __init__(self):
        super().__init__()
        self.mean, self.log_variance, self.decoder = layers.Dense(2), layers.Dense(2), layers.Dense(4)

    def call(self, x):
        mean, log_variance = self.mean(x), self.log_variance(x)
        divergence = -0.5 * ops.sum(1 + log_variance - ops.square(mean) - ops.exp(log_variance), axis=1)
        self.add_loss(ops.mean(divergence))
        return self.decoder(mean)


@case
def loss_added_by_the_model(draw):
    x = draw.reals(6, 4)
    return Case(model=KLSampler, x=x, y=x, compile={"loss": "mse"})


class OwnLoss(keras.Model):
    """`compute_loss` overridden: a mean over examples of a function of x, y and the prediction."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = layers.Dense(5, "tanh"), layers.Dense(2)

    def call(self, x):
        return self.head(self.hidden(x))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        losses = ops.sum(ops.square(y - y_pred), axis=-1) * (1.0 + ops.square(x[:, 0]))
        return ops.mean(losses if sample_weight is None else losses * sample_weight) + sum(self.losses)


@case
def overridden_compute_loss(draw):
    return Case(
        model=OwnLoss,
        x=draw.reals(6, 4),
        y=draw.reals(6, 2),
        sample_weight=draw.weights(6),
        compile={"loss": None},
    )


class AddsTwice(layers.Layer):
    """A weight of its own, a loss of its own and an activity regulariser."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), name="scale")

    def call(self, x):
        self.add_loss(ops.mean(ops.sum(ops.square(x * self.scale), axis=-1)))
        return ops.tanh(x * self.scale)


class LeavesOutAdded(OwnLoss):
    """`compute_loss` without `self.losses`: what layers add has no part in training."""

    def __init__(self):
        super().__init__()
        self.adds = AddsTwice(activity_regularizer="l2")

    def call(self, x):
        return self.head(self.adds(self.hidden(x)))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return ops.mean(ops.square(y - y_pred))


class WeighsAdded(LeavesOutAdded):
    """`compute_loss` that counts a tenth of `self.losses`."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return ops.mean(ops.square(y - y_pred)) + 0.1 * sum(self.losses)


class HalvesAll(LeavesOutAdded):
    """Half of what Keras says."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return 0.5 * super(OwnLoss, self).compute_loss(x, y, y_pred, sample_weight, training)


@case
def added_losses_left_out(draw):
    return Case(model=LeavesOutAdded, x=draw.reals(6, 4), y=draw.reals(6, 2), compile={"loss": None})


@case
def added_losses_weighed(draw):
    return Case(model=WeighsAdded, x=draw.reals(6, 4), y=draw.reals(6, 2), compile={"loss": None})


class Distilled(OwnLoss):
    """`compute_loss` calls a teacher, whose weights are trained as well, and the student's first layer once more."""

    def __init__(self):
        super().__init__()
        self.teacher = keras.Sequential([layers.Input((4,)), layers.Dense(5, "tanh"), layers.Dense(2, "softmax")])

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        soft = keras.losses.KLDivergence()(self.teacher(x, training=False), ops.softmax(y_pred))
        return ops.mean(ops.square(y - y_pred)) + 4.0 * soft + ops.mean(ops.square(self.hidden(x) - 0.5))


@case
def teacher_called_by_the_loss(draw):
    return Case(model=Distilled, x=draw.reals(6, 4), y=draw.reals(6, 2), compile={"loss": None})


@case
def all_losses_halved(draw):
    return Case(model=HalvesAll, x=draw.reals(6, 4), y=draw.reals(6, 2), compile={"loss": "mse"})
