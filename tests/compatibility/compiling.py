"""Arguments of ``compile``: losses, metrics and the rest."""

import keras
from keras import layers, ops

from tests.compatibility.cases import LABELS, SERIES, TOKENS, X, Y, case, compiled, linear, noisy, train

COMPILE = "Arguments of compile"
LOSSES = "Losses"
METRICS = "Metrics"


@case(
    COMPILE,
    "`optimizer=` by a private optimizer; `loss=`, `metrics=`, `weighted_metrics=`, `loss_weights=` of one output",
)
def plain():
    train(compiled(metrics=["mae"], weighted_metrics=["mse"], loss_weights=0.5), sample_weight=abs(Y[:, 0]))


@case(COMPILE, "`run_eagerly=True` (metrics run eagerly, the model in a graph)")
def eagerly():
    train(compiled(run_eagerly=True))


@case(COMPILE, "`steps_per_execution=2`")
def several_steps():
    train(compiled(steps_per_execution=2))


@case(COMPILE, "`jit_compile=True`")
def xla():
    train(compiled(jit_compile=True))


@case(COMPILE, "`auto_scale_loss=True` (left out: float16 gradients are scaled inside the private step)")
def scale():
    train(compiled(auto_scale_loss=True))


@case(COMPILE, "the class of a private optimizer in place of an object")
def a_class():
    compiled(optimizer=type(noisy()))


def several_outputs(**heads: layers.Layer) -> keras.Model:
    x = layers.Input((4,))
    body = layers.Dense(4, "tanh")(x)
    return keras.Model(x, [layer(body) for layer in heads.values()])


def two() -> keras.Model:
    return several_outputs(p=layers.Dense(3, "softmax", name="p"), q=layers.Dense(1, name="q"))


CROSSENTROPY = "sparse_categorical_crossentropy"


@case(LOSSES, "lists of losses, `loss_weights=` and `sample_weight` for several outputs")
def lists():
    model = compiled(two(), loss=[CROSSENTROPY, "mse"], loss_weights=[0.3, 1.0], metrics=[["accuracy"], ["mae"]])
    train(model, y=[LABELS, Y], sample_weight=[abs(Y[:, 0]), abs(X[:, 0])])


@case(LOSSES, "dicts of losses and weights, with `y` as a dict")
def dicts():
    model = compiled(two(), loss={"p": CROSSENTROPY, "q": "mse"}, loss_weights={"p": 0.5, "q": 2.0})
    train(model, y={"p": LABELS, "q": Y})


@case(LOSSES, "`loss=[f, None]` or a dict with None: an output without a loss, with `y` for one output or for both")
def partly():
    train(compiled(two(), loss=[CROSSENTROPY, None]), y=LABELS)
    train(compiled(two(), loss={"p": CROSSENTROPY, "q": None}), y=[LABELS, Y])


@case(LOSSES, "`loss=[f, None]` with whole-number targets of rank 2 (a language model that also puts out its states)")
def language_model():
    x = layers.Input((6,), dtype="int32")
    states = layers.Embedding(7, 4)(x)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    train(compiled(keras.Model(x, [layers.Dense(7)(states), states]), loss=[loss, None]), TOKENS, TOKENS)


@case(LOSSES, "targets of rank 1 for predictions of rank 1 or 2")
def ranks():
    train(compiled(keras.Sequential([layers.Input((4,)), layers.Dense(1), layers.Reshape(())])), y=Y[:, 0])
    train(compiled(), y=Y[:, 0])


@case(LOSSES, "a dict of losses that leaves out an output")
def some_keys():
    train(compiled(two(), loss={"p": CROSSENTROPY}), y={"p": LABELS, "q": Y})


@case(LOSSES, "a function of `(y_true, y_pred)`: a value an example, or their mean or sum")
def functions():
    train(compiled(loss=lambda y, p: ops.mean(ops.abs(y - p) ** 3, axis=-1)))
    train(compiled(loss=lambda y, p: ops.sum(ops.abs(y - p) ** 3)))


@case(LOSSES, "a function that compares examples of a lot with one another")
def pairs():
    train(compiled(loss=lambda y, p: ops.mean(ops.square(p - ops.transpose(p)))))


@case(LOSSES, "no `loss=`, and no `add_loss` either")
def none():
    train(compiled(loss=None))


class Penalised(layers.Layer):
    def __init__(self, reduce=ops.mean):
        super().__init__()
        self.reduce = reduce

    def call(self, x):
        self.add_loss(self.reduce(ops.sum(ops.square(x), axis=-1)))
        return x


@case(
    LOSSES,
    "`add_loss` of means and sums over the lot, beside a loss or with `loss=None`; activity and weight regularisers",
)
def added():
    train(compiled(linear(layers.Dense(3, "tanh"), Penalised()), loss=None), y=None)
    hidden = layers.Dense(3, "tanh", kernel_regularizer="l2", activity_regularizer="l2")
    train(compiled(linear(hidden, Penalised(), Penalised(), Penalised(ops.sum), Penalised(ops.sum))))


@case(LOSSES, "`add_loss` of what is no mean or sum over the lot")
def added_mixing():
    train(compiled(linear(layers.Dense(3), Penalised(lambda values: ops.square(ops.mean(values))))))


REGRESSION = [
    "MeanSquaredError",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredLogarithmicError",
    "LogCosh",
    "Huber",
    "CosineSimilarity",
    "BinaryCrossentropy",
    "BinaryFocalCrossentropy",
    "Poisson",
    "Hinge",
    "SquaredHinge",
]
CLASSES = ["CategoricalCrossentropy", "CategoricalFocalCrossentropy", "KLDivergence", "CategoricalHinge"]
IMAGE = ["Dice", "Tversky"]


@case(LOSSES, f"{', '.join(REGRESSION + CLASSES)}, SparseCategoricalCrossentropy")
def keras_losses():
    """Each by its values, in one sum: an output for each takes long."""

    def all_of(names):
        return lambda y, p: sum(getattr(keras.losses, name)(reduction="none")(y, p) for name in names)

    model = several_outputs(a=layers.Dense(2, "sigmoid"), b=layers.Dense(3, "softmax"), c=layers.Dense(3, "softmax"))
    losses = [all_of(REGRESSION), all_of(CLASSES), keras.losses.SparseCategoricalCrossentropy()]
    train(compiled(model, loss=losses), y=[abs(X[:, :2]) / 4 + 0.1, keras.utils.to_categorical(LABELS, 3), LABELS])


@case(LOSSES, "Dice and Tversky with `axis=` over the axes of one example")
def dice():
    heads = {name: layers.Dense(3, "sigmoid") for name in IMAGE}
    losses = [getattr(keras.losses, name)(axis=1) for name in IMAGE]
    train(compiled(several_outputs(**heads), loss=losses), y=[keras.utils.to_categorical(LABELS, 3)] * 2)


@case(LOSSES, "Dice and Tversky as they are by default (over the whole lot)")
def dice_of_the_lot():
    train(
        compiled(several_outputs(p=layers.Dense(3, "sigmoid")), loss=keras.losses.Dice()),
        y=keras.utils.to_categorical(LABELS, 3),
    )


@case(LOSSES, "CTC")
def ctc():
    model = keras.Sequential([layers.Input((6, 4)), layers.Dense(5)])
    train(compiled(model, loss=keras.losses.CTC()), SERIES, TOKENS[:, :2] % 4 + 1)


@case(LOSSES, "Circle (compares the embeddings of a lot)")
def circle():
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3), layers.UnitNormalization()])
    train(compiled(model, loss=keras.losses.Circle()), y=LABELS)


BINARY = [
    "BinaryAccuracy",
    "BinaryCrossentropy",
    "AUC",
    "Precision",
    "Recall",
    "TruePositives",
    "TrueNegatives",
    "FalsePositives",
    "FalseNegatives",
    "MeanSquaredError",
    "RootMeanSquaredError",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredLogarithmicError",
    "LogCoshError",
    "CosineSimilarity",
    "Poisson",
    "Hinge",
    "SquaredHinge",
    "R2Score",
    "ConcordanceCorrelation",
    "PearsonCorrelation",
]


@case(
    METRICS,
    f"{', '.join(BINARY)}, SensitivityAtSpecificity, PrecisionAtRecall, BinaryIoU, F1Score; in `weighted_metrics=` as well",
)
def binary_metrics():
    metrics = [getattr(keras.metrics, name)() for name in BINARY]
    metrics += [
        keras.metrics.SensitivityAtSpecificity(0.5),
        keras.metrics.PrecisionAtRecall(0.5),
        keras.metrics.BinaryIoU(),
    ]
    model = keras.Sequential([layers.Input((4,)), layers.Dense(1, "sigmoid")])
    weighted = [keras.metrics.AUC(name="weighted"), keras.metrics.F1Score(threshold=0.5, name="weighted_f1")]
    model = compiled(model, loss="binary_crossentropy", metrics=metrics, weighted_metrics=weighted)
    train(model, y=(Y > 0).astype("float32"), sample_weight=abs(X[:, 0]))


@case(
    METRICS,
    'SparseCategoricalAccuracy, SparseTopKCategoricalAccuracy, SparseCategoricalCrossentropy, MeanIoU; strings such as "accuracy"; '
    "functions; metrics of your own class",
)
def class_metrics():
    class Largest(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="largest")
            self.value = self.add_weight(name="value", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.value.assign(ops.maximum(self.value, ops.max(y_pred)))

        def result(self):
            return self.value

    metrics = [
        "accuracy",
        keras.metrics.SparseTopKCategoricalAccuracy(2),
        keras.metrics.SparseCategoricalCrossentropy(),
    ]
    metrics += [keras.metrics.MeanIoU(3, sparse_y_pred=False), lambda y, p: ops.mean(p), Largest()]
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3, "softmax")])
    train(compiled(model, loss=CROSSENTROPY, metrics=metrics), y=LABELS)


@case(METRICS, "a metric that calls `.numpy()`, with `run_eagerly=True`")
def numpy_metric():
    def largest(y_true, y_pred):
        return float(y_pred.numpy().max())

    train(compiled(metrics=[largest], run_eagerly=True))
