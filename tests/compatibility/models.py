"""Optimizers, hooks of a model class, wrappers, saving, precision, distribution."""

import copy
import pickle
import tempfile

import keras
import tensorflow as tf
from keras import layers, ops

import tfdp
from tests.compatibility.cases import LABELS, SIZE, X, Y, case, compiled, linear, noisy, shared, train
from tfdp.mechanisms import GaussianMechanism

OPTIMIZERS = "Optimizers"
HOOKS = "Hooks of a model class, and ways to train beside fit"
WRAPPERS = "Wrappers"
SAVING = "Saving and copying"
PRECISION = "Precision and distribution"
INNER = [
    "SGD",
    "Adam",
    "AdamW",
    "Adamax",
    "Adagrad",
    "Adadelta",
    "Adafactor",
    "Ftrl",
    "Lamb",
    "Lion",
    "Nadam",
    "RMSprop",
    "Muon",
    "ScheduleFreeAdamW",
]


def around(inner: keras.optimizers.Optimizer) -> tfdp.PrivateOptimizer:
    return tfdp.PrivateOptimizer(inner, GaussianMechanism(1.0, 1.0))


@case(OPTIMIZERS, f"`tfdp.PrivateOptimizer` around Muon, in a fit, and around {', '.join(INNER)}, for one step")
def inner_optimizers():
    for name in INNER:
        optimizer = around(getattr(keras.optimizers, name)(0.01))
        model = linear()
        optimizer.build(model.trainable_variables)
        optimizer.inner_optimizer.__class__.apply(
            optimizer.inner_optimizer, [tf.ones(v.shape) for v in model.trainable_variables]
        )
    train(compiled(optimizer=around(keras.optimizers.Muon(0.01))))


@case(
    OPTIMIZERS,
    "learning-rate schedules, momentum, `nesterov`, `weight_decay`, `clipnorm`, `clipvalue`, `global_clipnorm`, `use_ema`",
)
def arguments():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    train(
        compiled(optimizer=noisy(learning_rate=schedule, momentum=0.9, nesterov=True, weight_decay=1e-3, clipnorm=1.0))
    )
    train(compiled(optimizer=noisy(clipvalue=1.0, use_ema=True, ema_overwrite_frequency=1)))


@case(OPTIMIZERS, "`gradient_accumulation_steps=`")
def accumulation():
    noisy(gradient_accumulation_steps=2)


@case(OPTIMIZERS, "`loss_scale_factor=`")
def loss_scale():
    noisy(loss_scale_factor=128.0)


@case(OPTIMIZERS, "`keras.optimizers.LossScaleOptimizer` around a private optimizer")
def loss_scale_optimizer():
    compiled(optimizer=keras.optimizers.LossScaleOptimizer(noisy()))


def parts(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    return keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(optimizer))


@case(OPTIMIZERS, "`keras.optimizers.MultiOptimizer` inside `tfdp.PrivateOptimizer`")
def several_inside():
    train(compiled(optimizer=around(parts(keras.optimizers.SGD(0.1)))))


@case(OPTIMIZERS, "private optimizers inside `keras.optimizers.MultiOptimizer`")
def several_outside():
    train(compiled(optimizer=parts(noisy())))


@case(OPTIMIZERS, "attributes that a private optimizer does not have: `optimizer.clipnorm = 1.0`")
def attributes():
    optimizer = noisy()
    optimizer.clipnorm = 1.0


class Own(keras.Model):
    """A model of a class of its own."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = layers.Dense(3, "tanh"), layers.Dense(1)

    def call(self, x, training=False):
        return self.head(self.hidden(x))


@case(HOOKS, "`compute_loss`, with metrics of its own, `self.losses` and layers that it calls")
def compute_loss():
    class Model(Own):
        def __init__(self):
            super().__init__()
            self.size = keras.metrics.Mean(name="size")
            self.scores = layers.Dense(1, kernel_regularizer="l2")

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            self.size.update_state(ops.abs(y_pred))
            return ops.mean(ops.square(y - y_pred - self.scores(x))) + sum(self.losses)

    train(compiled(Model(), loss=None))


@case(HOOKS, "knowledge distillation: a teacher called in `compute_loss`, frozen or not")
def distillation():
    class Distiller(keras.Model):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = linear(layers.Dense(3)), linear(layers.Dense(5))

        def call(self, x):
            return self.student(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            soft = keras.losses.MeanSquaredError()(self.teacher(x, training=False), y_pred)
            return 0.1 * keras.losses.MeanSquaredError()(y, y_pred) + 0.9 * soft

    model = Distiller()
    train(compiled(model, loss=None))


@case(HOOKS, "`compute_metrics`, `metrics`, `test_step`, `predict_step`, `fit` and `compile` of its own")
def other_hooks():
    class Model(Own):
        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            return super().compute_metrics(x, y, y_pred, sample_weight)

        def test_step(self, data):
            return super().test_step(data)

        def fit(self, *args, **kwargs):
            return super().fit(*args, **kwargs)

    train(compiled(Model(), metrics=["mae"]), validation_data=(X, Y))


@case(HOOKS, "`train_step` of its own (VAE, GAN, contrastive learning and the like)")
def train_step():
    class Model(Own):
        def train_step(self, data):
            return super().train_step(data)

    compiled(Model())


@case(HOOKS, "optimizers that `compile` of its own keeps, for a `train_step` of its own")
def several_optimizers():
    class Model(Own):
        def compile(self, own_optimizer):
            super().compile()
            self.own_optimizer = own_optimizer

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = ops.mean(ops.square(self(data[0])))
            self.own_optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
            return {"loss": loss}

    model = Model()
    model.compile(noisy())
    model.fit(X, Y, batch_size=8, verbose=0)


@case(HOOKS, "a variational autoencoder: its losses in `call` by `add_loss`, its draws by `keras.random`")
def autoencoder():
    class Sampling(layers.Layer):
        def __init__(self):
            super().__init__()
            self.seeds = keras.random.SeedGenerator(1)

        def call(self, given):
            mean, log_variance = given
            self.add_loss(ops.mean(ops.sum(ops.square(mean) + ops.exp(log_variance) - log_variance - 1, axis=-1)))
            return mean + ops.exp(0.5 * log_variance) * keras.random.normal(ops.shape(mean), seed=self.seeds)

    x = layers.Input((4,))
    code = Sampling()([layers.Dense(2)(x), layers.Dense(2)(x)])
    train(compiled(keras.Model(x, layers.Dense(4)(code))), y=X)


@case(HOOKS, "`train_on_batch`")
def on_batch():
    shared().train_on_batch(X, Y)


@case(HOOKS, "a custom loop: `optimizer.apply` or `apply_gradients`")
def loop():
    model = compiled()
    model.optimizer.apply([tf.ones(v.shape) for v in model.trainable_variables], model.trainable_variables)


@case(HOOKS, "`evaluate`, `predict`, `test_on_batch`, `predict_on_batch`")
def without_training():
    for way in (shared().evaluate, shared().test_on_batch):
        way(X, Y, **({"verbose": 0} if way == shared().evaluate else {}))
    shared().predict(X, verbose=0)
    shared().predict_on_batch(X)


def end_to_end_model() -> keras.Model:
    """A trained private model inside an ordinary one."""
    x = layers.Input((4,))
    model = compiled(keras.Sequential([layers.Input((4,)), layers.Dense(1)], name="classifier"))
    train(model)
    outer = keras.Model(x, model(x), name="end_to_end")
    outer.compile("adam", "mse", metrics=["mae"])
    return outer


@case(HOOKS, "an ordinary end-to-end model around a privately trained one: `compile`, `evaluate`, `predict`")
def end_to_end():
    end_to_end_model().evaluate(X, Y, verbose=0)
    end_to_end_model().predict(X, verbose=0)


@case(HOOKS, "an ordinary end-to-end model around a privately trained one: `fit`, `train_on_batch`")
def end_to_end_training():
    end_to_end_model().fit(X, Y, verbose=0)


@case(
    HOOKS,
    "freezing (`layer.trainable = False`) before `compile`; `freeze`d parts of a model; shared layers; nested models",
)
def freezing():
    body = linear(layers.Dense(3))
    body.layers[0].trainable = False
    x = layers.Input((4,))
    train(compiled(keras.Model(x, layers.Add()([body(x), body(layers.Rescaling(2.0)(x))]))))


@case(HOOKS, "freezing between `compile` and a second `fit`")
def freezing_later():
    model = compiled(linear(layers.Dense(3)))
    train(model)
    model.layers[0].trainable = False
    train(model)


@case(HOOKS, "`stateful=True` of recurrent layers")
def stateful():
    model = keras.Sequential([layers.Input(batch_shape=(SIZE, 3, 4)), layers.LSTM(2, stateful=True), layers.Dense(1)])
    train(compiled(model), X[:, None].repeat(3, 1))


@case(HOOKS, "inputs with a fixed number of rows (`batch_size=` of Input), where nothing in the model depends on it")
def fixed_rows():
    x = layers.Input((4,), batch_size=8)
    train(compiled(keras.Model(x, layers.Dense(1)(x))))


class AddsEightRows(layers.Layer):
    def call(self, x):
        return x + ops.zeros((8, 1))


@case(HOOKS, "inputs with a fixed number of rows, and a layer made for that number")
def fixed_rows_needed():
    x = layers.Input((4,), batch_size=8, name="features")
    train(compiled(keras.Model(x, layers.Dense(1)(AddsEightRows()(x)))))


def classifier(X, y, loss="categorical_crossentropy", units=3, activation="softmax"):
    model = keras.Sequential([layers.Input((4,)), layers.Dense(units, activation)])
    model.compile(noisy(), loss=loss)
    return model


@case(
    WRAPPERS,
    "`keras.wrappers.SKLearnClassifier` and `SKLearnRegressor`: `fit`, `predict`, `sklearn.base.clone`, `GridSearchCV`",
)
def scikit_learn():
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV

    one = keras.wrappers.SKLearnClassifier(classifier, fit_kwargs={"batch_size": 4, "verbose": 0})
    twin = clone(one)  # Keras leaves fit_kwargs out of a clone
    assert twin.fit(X, LABELS, batch_size=4, verbose=0).predict(X).shape == (SIZE,)
    numbers = {"loss": "mse", "units": 1, "activation": None}
    regressor = keras.wrappers.SKLearnRegressor(
        classifier, model_kwargs=numbers, fit_kwargs={"batch_size": 4, "verbose": 0}
    )
    search = GridSearchCV(regressor, {"model_kwargs": [numbers]}, cv=2, error_score="raise").fit(
        X, Y[:, 0], batch_size=4, verbose=0
    )
    assert search.best_estimator_.model_.optimizer.ledger.steps == 4


@case(SAVING, "`model.save` (.keras), `load_model`, `save_weights`, `load_weights`: the ledger goes along")
def files():
    model = shared()
    train(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        assert keras.models.load_model(f"{folder}/model.keras").optimizer.ledger == model.optimizer.ledger
        model.save_weights(f"{folder}/model.weights.h5")
        model.load_weights(f"{folder}/model.weights.h5")


@case(SAVING, "training on from a legacy .h5 file with its optimizer")
def legacy():
    model = compiled(loss=keras.losses.MeanSquaredError())
    train(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.h5")
        loaded = keras.models.load_model(f"{folder}/model.h5")
    for kept, weights in zip(loaded.get_weights(), model.get_weights(), strict=True):
        assert (kept == weights).all()
    assert tfdp.privacy_statement(loaded).epsilon is None
    train(loaded)


@case(
    SAVING,
    "`load_model(compile=False)`, of legacy .h5 files too, and `compile` later: the ledger comes with the weights",
)
def compiled_later():
    model = shared()
    train(model)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("model.keras", "model.h5"):
            model.save(f"{folder}/{name}")
            loaded = compiled(keras.models.load_model(f"{folder}/{name}", compile=False))
            assert loaded.optimizer.ledger == model.optimizer.ledger


@case(SAVING, "pickle, `copy.deepcopy`, `clone_model` and `compile` again")
def copies():
    model = shared()
    train(model)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert twin.optimizer.ledger == model.optimizer.ledger
    train(compiled(keras.models.clone_model(model)))


@case(SAVING, "`model.export` (a SavedModel for serving)")
def export():
    train(shared())
    with tempfile.TemporaryDirectory() as folder:
        shared().export(folder, verbose=False)


def of_policy(policy: str) -> keras.Model:
    return keras.Sequential([layers.Input((4,)), layers.Dense(3, dtype=policy), layers.Dense(1, dtype=policy)])


@case(PRECISION, 'dtype policies "mixed_float16" and "mixed_bfloat16"')
def mixed():
    train(compiled(of_policy("mixed_float16")))
    train(compiled(of_policy("mixed_bfloat16")))


@case(PRECISION, 'dtype policies "bfloat16" and "float64" of all layers')
def pure():
    for policy in ("bfloat16", "float64"):
        train(compiled(of_policy(policy)))


@case(PRECISION, 'float8 training (`quantize("float8")`)')
def float8():
    model = of_policy("float32")
    model.quantize("float8")
    train(compiled(model))


@case(PRECISION, "`keras.RematScope`, `keras.remat` (ignored in private training)")
def remat():
    with keras.RematScope(mode="full"):
        model = linear(layers.Dense(3))
    train(compiled(model))


@case(PRECISION, "`tf.distribute.MirroredStrategy`, `MultiWorkerMirroredStrategy` (docs/distribution.md)")
def mirrored():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = compiled()
    train(model)


@case(PRECISION, "`keras.distribution.DataParallel` of one device")
def keras_distribution():
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0"]))
    try:
        train(compiled())
    finally:
        keras.distribution.set_distribution(None)
