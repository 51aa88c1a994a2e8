"""Nothing of a lot is kept but through clip and noise: who may write what, in every way that it can be written."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import tfdp
from tests.brute_force import flat_weights
from tests.optimizers import tiny

D, SIZE = 4, 32
RANDOM = np.random.default_rng(0)
X = (3 * RANDOM.normal(size=(SIZE, D))).astype("float32")
Y = RANDOM.integers(0, 2, SIZE).astype("int32")
CROSSENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
WAYS = {"traced": {}, "eager": {"run_eagerly": True}, "compiled": {"jit_compile": True}}


@pytest.fixture(autouse=True, scope="module")
def dense_layers_count_as_proved() -> None:
    """Not here: what the self-proof refuses is what this is about."""


def compiled(model: keras.Model, loss=CROSSENTROPY, optimizer=None, **arguments) -> keras.Model:
    optimizer = tfdp.NoisySGD(0.5, l2_norm_clip=1.0, noise_multiplier=1.0) if optimizer is None else optimizer
    model.compile(optimizer=optimizer, loss=loss, **arguments)
    return model


def stack(*parts: layers.Layer, last: layers.Layer | None = None) -> keras.Model:
    return keras.Sequential([keras.Input((D,)), *parts, last or layers.Dense(2)])


def fit(model: keras.Model, **arguments):
    return model.fit(X, Y, **{"batch_size": 8, "epochs": 1, "verbose": 0} | arguments)


def assert_refused(model: keras.Model, match: str, kept: Callable[[], object] | None = None, **arguments) -> str:
    """Nothing has moved: neither weights nor what the model keeps, nor ledger nor optimizer."""
    model(X[:2])
    before = [w.numpy() for w in model.weights]
    state = kept() if kept else None
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=match) as refusal:
        fit(model, **arguments)
    for weight, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old)
    if kept:
        np.testing.assert_array_equal(kept(), state)
    assert "Traceback" not in str(refusal.value) and "{{" not in str(refusal.value)
    return str(refusal.value)


# Metrics.

WRITES = {
    "at once": lambda write: write(),
    "in a function": lambda write: tf.function(write, autograph=False)(),
    "in a branch": lambda write: tf.cond(tf.timestamp() > 0, write, lambda: tf.constant(0.0)),
    "in a loop": lambda write: tf.while_loop(lambda i: i < 1, lambda i: (write(), i + 1)[1:], [tf.constant(0)]),
}


class CentreLoss(keras.Model):
    """Keeps the mean of each class's features, which the loss pulls them to."""

    def __init__(self, write: Callable = WRITES["at once"]):
        super().__init__()
        self.hidden, self.head, self.write = layers.Dense(3), layers.Dense(2), write
        self.centres = self.add_weight(shape=(2, 3), initializer="zeros", trainable=False, name="centres")

    def call(self, x, training=None):
        hidden = self.hidden(x)
        return {"hidden": hidden, "logits": self.head(hidden)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        own = keras.losses.sparse_categorical_crossentropy(y, y_pred["logits"], from_logits=True)
        centres = ops.take(self.centres, ops.cast(y, "int32"), axis=0)
        return ops.mean(own + 0.1 * ops.sum(ops.square(y_pred["hidden"] - centres), -1))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        mean = ops.mean(y_pred["hidden"], 0)

        def move() -> tf.Tensor:
            self.centres.assign(tf.stack([mean, mean]))
            return tf.constant(0.0)

        self.write(move)
        return super().compute_metrics(x, y, y_pred["logits"], sample_weight)


@pytest.mark.parametrize("way", ["traced", "eager"])
@pytest.mark.parametrize("where", WRITES)
def test_metrics_that_assign_a_weight_are_refused(where: str, way: str):
    model = compiled(CentreLoss(WRITES[where]), loss=None, **WAYS[way])
    assert_refused(model, "centres", lambda: model.centres.numpy())


class Running(keras.metrics.Metric):
    """Keeps a number in a variable that is no variable of its own."""

    def __init__(self, number: tf.Variable):
        super().__init__(name="running")
        self.number = [lambda: number]

    def update_state(self, y_true, y_pred, sample_weight=None):
        number = self.number[0]()
        number.assign(0.9 * number + 0.1 * tf.reduce_mean(tf.abs(y_pred)))

    def result(self):
        return self.number[0]() + 0.0


@pytest.mark.parametrize("way", ["traced", "eager"])
def test_a_metric_that_writes_what_the_loss_reads_is_refused(way: str):
    number = tf.Variable(0.0, trainable=False)

    def loss(y, p):
        return keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True) / (0.1 + number)

    assert_refused(compiled(stack(), loss, metrics=[Running(number)], **WAYS[way]), "assigns|writes", number.numpy)


@pytest.mark.parametrize("way", WAYS)
def test_a_loss_that_reads_a_metric_is_refused(way: str):
    seen = keras.metrics.SparseCategoricalAccuracy()

    def loss(y, p):
        return keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True) / (0.1 + seen.result())

    assert_refused(compiled(stack(), loss, metrics=[seen], **WAYS[way]), "metric")


def test_a_loss_that_a_metric_only_chooses_is_refused():
    seen = keras.metrics.SparseCategoricalAccuracy()

    def loss(y, p):
        own = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
        return tf.cond(seen.result() > 1.0, lambda: own, lambda: 2.0 * own)

    assert_refused(compiled(stack(), loss, metrics=[seen]), "metric")


class ByAMetric(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, metric):
        self.metric = metric

    def __call__(self, step):
        return 0.1 / (1.0 + self.metric.result())


@pytest.mark.parametrize("way", ["traced", "eager"])
def test_a_schedule_that_reads_a_metric_is_refused(way: str):
    seen = keras.metrics.SparseCategoricalAccuracy()
    optimizer = tfdp.NoisySGD(ByAMetric(seen), l2_norm_clip=1.0, noise_multiplier=1.0)
    model = compiled(stack(), optimizer=optimizer, metrics=[seen], **WAYS[way])
    model(X[:2])
    before = flat_weights(model)
    with pytest.raises(ValueError, match="metric"):
        fit(model)
    np.testing.assert_array_equal(flat_weights(model), before)


# What layers keep.


class PythonMean(layers.Layer):
    """Keeps the mean of the last lot in Python."""

    def __init__(self, run: Callable, **kwargs):
        super().__init__(**kwargs)
        self.run, self.mean = run, np.zeros(D, "float32")

    def call(self, x):
        def centred(a):
            a = np.asarray(a)
            out, self.mean = a - self.mean, a.mean(0)
            return out.astype("float32")

        found = self.run(centred, [x], tf.float32)
        found.set_shape(x.shape)
        return found


class Queue(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.queue = tf.queue.FIFOQueue(1000, tf.float32)

    def call(self, x):
        with tf.control_dependencies([self.queue.enqueue(tf.reduce_mean(x))]):
            size = self.queue.size()
        return x * tf.where(size > 900, 0.0, 1.0)


class NamedAsASeed(layers.Layer):
    """A weight that has the name of a seed generator's state."""

    def build(self, shape):
        state = {"shape": (D,), "initializer": "zeros", "trainable": False, "name": "seed_generator_state"}
        self.kept = self.add_weight(**state)

    def call(self, x, training=None):
        if training:
            self.kept.assign(tf.reduce_mean(x, 0))
        return x


class Seedlike(layers.Layer):
    """Writes the state of a seed generator that does not draw."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x, training=None):
        if training:
            self.seeds.state.assign(ops.cast(ops.abs(x[0, :2]), "uint32"))
        return x


class Table(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)

    def call(self, x, training=None):
        if training:
            self.table.insert(tf.constant([0], tf.int64), tf.reduce_mean(x)[None])
        return x


class Prints(layers.Layer):
    def call(self, x):
        tf.print(x)
        return x


class Summarises(layers.Layer):
    def __init__(self, folder, **kwargs):
        super().__init__(**kwargs)
        self.folder = [lambda: folder]

    def build(self, shape):
        self.writer = tf.summary.create_file_writer(str(self.folder[0]()))

    def call(self, x, training=None):
        if training:
            with self.writer.as_default(step=0):
                tf.summary.write("mean", tf.reduce_mean(x))
        return x


class Assigns(layers.Layer):
    """In a nested function, branch or loop."""

    def __init__(self, write: Callable, **kwargs):
        super().__init__(**kwargs)
        self.write, self.kept = write, tf.Variable(0.0, trainable=False)

    def call(self, x, training=None):
        def move() -> tf.Tensor:
            self.kept.assign(tf.reduce_mean(x))
            return tf.constant(0.0)

        if training:
            self.write(move)
        return x


KEEPERS = {
    "numpy_function": lambda folder: PythonMean(tf.numpy_function, name="leaky"),
    "py_function": lambda folder: PythonMean(tf.py_function, name="leaky"),
    "queue": lambda folder: Queue(name="leaky"),
    "a weight named as a seed": lambda folder: NamedAsASeed(name="leaky"),
    "a seed that does not draw": lambda folder: Seedlike(name="leaky"),
    "table": lambda folder: Table(name="leaky"),
    "print": lambda folder: Prints(name="leaky"),
    "summary": lambda folder: Summarises(folder, name="leaky"),
} | {f"assigned {where}": lambda folder, w=write: Assigns(w, name="leaky") for where, write in WRITES.items()}


@pytest.mark.parametrize("name", KEEPERS)
def test_layers_that_keep_or_show_a_lot_are_refused_by_name(name: str, tmp_path):
    model = compiled(stack(KEEPERS[name](tmp_path)))
    with pytest.raises(ValueError, match="'leaky'") as refusal:
        fit(model)
    cures = ("Make what it keeps from the example", "Leave it out", "Leave tf.print out", "Write it with")
    assert any(cure in str(refusal.value) for cure in cures)
    assert model.optimizer.ledger.steps == 0
    assert int(model.optimizer.iterations) == 0


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_layers_that_keep_a_lot_are_refused_however_fit_runs(way: str):
    for layer in (NamedAsASeed(name="leaky"), Assigns(WRITES["in a branch"], name="leaky")):
        assert_refused(compiled(stack(layer), **WAYS[way]), "'leaky'", lambda layer=layer: layer.kept.numpy())


# What the release is made of.


class Spy(layers.Layer):
    """Shows what it was given to somebody."""

    def __init__(self, shown: dict, **kwargs):
        super().__init__(**kwargs)
        self.shown = [lambda: shown]

    def call(self, x):
        self.shown[0]()["lot"] = x
        return x


def of_the_lot(shown: dict, weight):
    """A number made of the stashed lot where there is one in the graph at hand, else 0."""
    lot = shown.get("lot")
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while graph is not None and getattr(lot, "graph", None) is not graph:
        graph = getattr(graph, "outer_graph", None)
    return tf.reduce_sum(weight * 0.0) if graph is None else tf.reduce_mean(tf.square(lot)) * tf.reduce_sum(weight)


class SpyingRegulariser(keras.regularizers.Regularizer):
    def __init__(self, shown):
        self.shown = shown

    def __call__(self, w):
        return of_the_lot(self.shown, w)


class SpyingConstraint(keras.constraints.Constraint):
    def __init__(self, shown):
        self.shown = shown

    def __call__(self, w):
        return w + 0.1 * of_the_lot(self.shown, tf.ones_like(w))


class SpyingSchedule(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, shown):
        self.shown = shown

    def __call__(self, step):
        return 0.1 + of_the_lot(self.shown, tf.ones([]))


class SpyingOptimizer(keras.optimizers.SGD):
    def __init__(self, shown):
        super().__init__(0.1)
        self.shown = [lambda: shown]

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient + of_the_lot(self.shown[0](), gradient), variable, learning_rate)


def spying(kind: str, shown: dict, **arguments) -> keras.Model:
    last, optimizer = layers.Dense(2), None
    if kind == "regulariser":
        last = layers.Dense(2, kernel_regularizer=SpyingRegulariser(shown))
    elif kind == "constraint":
        last = layers.Dense(2, kernel_constraint=SpyingConstraint(shown))
    elif kind == "schedule":
        optimizer = tfdp.NoisySGD(SpyingSchedule(shown), l2_norm_clip=1.0, noise_multiplier=1.0)
    else:
        optimizer = tfdp.PrivateOptimizer(SpyingOptimizer(shown), tfdp.mechanisms.GaussianMechanism(1.0, 1.0))
    return compiled(stack(Spy(shown), last=last), optimizer=optimizer, **arguments)


@pytest.mark.parametrize("way", ["traced", "eager"])
@pytest.mark.parametrize("kind", ["regulariser", "constraint", "schedule", "optimizer"])
def test_what_moves_weights_never_sees_the_lot(kind: str, way: str):
    """It has what a layer stashed away in a graph that it can't use: what it says is of the weight alone, or it is refused."""
    shown: dict = {}
    model = spying(kind, shown, **WAYS[way])
    model(X[:2])
    used = []

    def noted(shown, weight, original=of_the_lot):
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        while graph is not None and getattr(shown.get("lot"), "graph", None) is not graph:
            graph = getattr(graph, "outer_graph", None)
        used.append(graph is not None)
        return original(shown, weight)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "of_the_lot", noted)
        try:
            fit(model)
        except ValueError as refusal:
            assert "regulariser or constraint" in str(refusal)
            assert model.optimizer.ledger.steps == 0
        else:
            assert used and not any(used)


def stashed_in_metrics(kind: str, shown: dict) -> keras.Model:
    """What metrics are given is a tensor of the very graph in which weights are moved."""

    class Shows(keras.metrics.Metric):
        def update_state(self, y_true, y_pred, sample_weight=None):
            shown["lot"] = y_pred

        def result(self):
            return tf.zeros([])

    return spying(kind, {} if shown is None else shown, metrics=[Shows(name="shows")])


@pytest.mark.parametrize("kind", ["regulariser", "constraint", "schedule", "optimizer"])
def test_what_moves_weights_by_what_a_metric_saw_is_refused(kind: str):
    model = stashed_in_metrics(kind, {})
    model(X[:2])
    before = flat_weights(model)
    with pytest.raises(ValueError, match="regulariser or constraint of a weight") as refusal:
        fit(model)
    assert "records" in str(refusal.value)
    np.testing.assert_array_equal(flat_weights(model), before)
    assert model.optimizer.ledger.steps == 0


class WritingOptimizer(keras.optimizers.SGD):
    """Keeps its gradients in a variable of nobody's."""

    def __init__(self, kept: tf.Variable):
        super().__init__(0.1)
        self.kept = [lambda: kept]

    def update_step(self, gradient, variable, learning_rate):
        self.kept[0]().assign(tf.reduce_sum(gradient))
        super().update_step(gradient, variable, learning_rate)


def test_an_optimizer_that_writes_what_is_not_its_own_is_refused():
    kept = tf.Variable(0.0)
    optimizer = tfdp.PrivateOptimizer(WritingOptimizer(kept), tfdp.mechanisms.GaussianMechanism(1.0, 1.0))
    model = compiled(stack(), optimizer=optimizer)
    with pytest.raises(ValueError, match="the optimizer's step"):
        fit(model)
    assert float(kept) == 0.0


# Validation.


class AssignsInInference(layers.Layer):
    def build(self, shape):
        self.kept = self.add_weight(shape=(D,), initializer="zeros", trainable=False)

    def call(self, x, training=None):
        if not training:
            self.kept.assign(tf.reduce_mean(x, 0))
        return x + 0 * self.kept


class AssignsInTestStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = layers.Dense(2)
        self.kept = self.add_weight(shape=(D,), initializer="zeros", trainable=False, name="kept")

    def call(self, x):
        return self.head(x)

    def test_step(self, data):
        self.kept.assign(tf.reduce_mean(data[0], 0))
        return super().test_step(data)


@pytest.mark.parametrize("way", ["traced", "eager"])
def test_validation_that_assigns_a_weight_is_refused(way: str):
    layer = AssignsInInference(name="leaky")
    layer.build((None, D))
    model = compiled(stack(layer), **WAYS[way])
    layer.kept.assign(np.zeros(D))
    with pytest.raises(ValueError, match="'leaky'"):
        fit(model, validation_data=(X, Y))
    np.testing.assert_array_equal(layer.kept.numpy(), np.zeros(D))


@pytest.mark.parametrize("way", ["traced", "eager"])
@pytest.mark.parametrize("call", ["fit", "evaluate"])
def test_a_test_step_that_assigns_a_weight_is_refused(call: str, way: str):
    model = compiled(AssignsInTestStep(), **WAYS[way])
    model(X[:2])
    with pytest.raises(ValueError, match="kept"):
        fit(model, validation_data=(X, Y)) if call == "fit" else model.evaluate(X, Y, verbose=0)
    np.testing.assert_array_equal(model.kept.numpy(), np.zeros(D))


# What stays as it was.


class Measures(layers.Layer):
    def __init__(self):
        super().__init__()
        self.size = keras.metrics.Mean(name="size")

    def call(self, x):
        self.size.update_state(ops.mean(ops.abs(x)))
        return x


def ordinary(inner: keras.optimizers.Optimizer):
    return tfdp.PrivateOptimizer(inner, tfdp.mechanisms.GaussianMechanism(1.0, 1.0))


def decaying():
    return keras.optimizers.schedules.CosineDecay(0.1, 10)


ORDINARY = {
    "regularisers": lambda: (stack(last=layers.Dense(2, kernel_regularizer="l2", bias_regularizer="l1")), None),
    "orthogonal": lambda: (stack(last=layers.Dense(2, kernel_regularizer="orthogonal_regularizer")), None),
    "constraints": lambda: (stack(last=layers.Dense(2, kernel_constraint="max_norm", bias_constraint="non_neg")), None),
    "schedule": lambda: (stack(), ordinary(keras.optimizers.SGD(decaying(), momentum=0.9))),
    "averages": lambda: (stack(), ordinary(keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2))),
    "weight decay": lambda: (stack(), ordinary(keras.optimizers.AdamW(0.1))),
    "metric in a layer": lambda: (stack(Measures()), None),
    "random layers": lambda: (stack(layers.Dropout(0.3), layers.GaussianNoise(0.1)), None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_training_is_accepted(name: str, way: str):
    model, optimizer = ORDINARY[name]()
    compiled(
        model, optimizer=optimizer, metrics=["accuracy", keras.metrics.SparseCategoricalCrossentropy()], **WAYS[way]
    )
    history = fit(model, validation_data=(X, Y)).history
    assert model.optimizer.ledger.steps == 4
    assert {"accuracy", "val_accuracy", "loss"} <= history.keys()
    assert tfdp.privacy_statement(model, delta=1e-5).claims[0].status == "proven"
