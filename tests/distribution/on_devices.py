"""The cases of several devices in one process. Its own: devices can't be made once TensorFlow has begun."""

import tempfile

import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)

import tfdp  # noqa: E402
from tests.distribution import cases  # noqa: E402
from tests.optimizers import tiny  # noqa: E402

STRATEGIES = {n: tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(n)]) for n in (1, 2, 4)}


def private(replicas: int, optimizer=None, model=None, **arguments) -> keras.Model:
    with STRATEGIES[replicas].scope():
        return tiny.private(optimizer and optimizer(), model and model(), **arguments)


def moves_of_noise(replicas: int) -> dict:
    with STRATEGIES[replicas].scope():
        model = cases.only_noise()
    moves = cases.without_records(model)
    return {
        "squares": float(np.sum(np.square(moves, dtype=np.float64))),
        "draws": moves.size,
        "copies are equal": cases.copies_are_equal(model),
        "steps": model.optimizer.ledger.steps,
        "iterations": int(model.optimizer.iterations.numpy()),
    }


def epoch_of_poisson_lots() -> dict:
    model = private(4, metrics=["mae"])
    history = model.fit(cases.lots(), epochs=1, verbose=0).history
    return {
        "weights": cases.as_lists(model.get_weights()),
        "history": history,
        "copies are equal": cases.copies_are_equal(model),
    }


class OwnLoss(keras.Sequential):
    """Keras scales a loss in a replica; and what makes its loss by itself may not be shown padding."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.losses.MeanSquaredError()(y, y_pred)


def validated() -> list:
    """Seven records, five at a time: the devices are given 2, 2, 1 and none of them."""
    found = []
    for model in (private(4), tiny.private(tiny.noiseless())):
        records = {"validation_data": (cases.X[:7], cases.Y[:7]), "validation_batch_size": 5}
        history = tiny.train(model, steps=2, epochs=2, **records).history
        found.append({name: history[name] for name in ("loss", "val_loss")})
    return found


def own_loss() -> keras.Model:
    model = OwnLoss([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.set_weights(tiny.linear().get_weights())
    return model


def three_records_on_four() -> list:
    model = private(4, model=own_loss)
    tiny.train(model, tiny.X[:3], tiny.Y[:3], steps=2)
    return cases.as_lists(model.get_weights())


def compiled_again() -> list:
    model = None
    for _ in range(2):
        model = private(2, model=lambda known=model: known or tiny.linear())
        tiny.train(model)
    return cases.as_lists(model.get_weights())


def empty_lots() -> dict:
    """The rate is so small that no record is ever drawn."""
    model = private(2, tiny.noisy)
    start = model.get_weights()
    history = model.fit(tiny.X, tiny.Y, batch_size=1, public_size=10**9, steps_per_epoch=3, verbose=0).history
    moves = np.concatenate([(new - old).ravel() for old, new in zip(start, model.get_weights(), strict=True)])
    return {"moves": moves.tolist(), "loss": history["loss"], "steps": model.optimizer.ledger.steps}


def adam(**arguments) -> tfdp.NoisyAdam:
    own = {"weight_decay": 0.01, "use_ema": True, "clipnorm": 0.5}
    return tfdp.NoisyAdam(0.1, l2_norm_clip=tiny.CLIP, noise_multiplier=0.0, **own, **arguments)


class Affine(keras.layers.Layer):
    """No rule knows it: its gradients come from the universal one."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 1), regularizer=keras.regularizers.L2(0.1))
        self.bias = self.add_weight(shape=(1,), constraint=keras.constraints.MaxNorm(0.5))

    def call(self, x):
        return keras.ops.matmul(x, self.kernel) + self.bias


def regularized() -> keras.Model:
    model = keras.Sequential([keras.layers.Input((3,)), Affine()])
    model.set_weights(tiny.linear().get_weights())
    return model


def adam_on(replicas: int | None, **arguments) -> list:
    model = private(replicas, adam, regularized, **arguments) if replicas else tiny.private(adam(), regularized())
    tiny.train(model, steps=3)
    return cases.as_lists(model.get_weights())


MECHANISMS = {
    "AdaClip": lambda: tfdp.AdaClipDPSGD(0.1, l2_norm_clip=tiny.CLIP, noise_multiplier=0.0),
    "encoded": lambda: tfdp.EncodedDPSGD(0.1, l2_norm_clip=tiny.CLIP, noise_multiplier=0.0),
}


def with_mechanism(name: str) -> list:
    found = []
    for model in (private(2, MECHANISMS[name]), tiny.private(MECHANISMS[name]())):
        tiny.train(model, steps=3)
        found.append(cases.as_lists(model.get_weights()))
    return found


def on_a_support() -> dict:
    """With noise: coordinates outside of the support have infinite scales."""

    def pruned():
        return tfdp.DirectionalDPSGD(
            0.1, l2_norm_clip=1.0, noise_multiplier=1.0, pruning_ratio=0.5, pruning="support", support_steps=4
        )

    model = private(2, pruned)
    weights = []
    keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: weights.append(model.get_weights()))
    tiny.train(model, steps=3, callbacks=[keep])
    flat = [np.concatenate([part.ravel() for part in step]) for step in weights]
    return {"weights": flat[-1].tolist(), "moved": int(np.sum(flat[2] != flat[1]))}


def budget_and_dropout() -> dict:
    """A budget that ends in the middle of an epoch, between two executions of two steps; saved and loaded."""

    def dropout():
        layers = [keras.layers.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
        return keras.Sequential(layers)

    model = private(2, tiny.noisy, dropout, steps_per_execution=2)
    stop = tfdp.callbacks.BudgetStopping(target_epsilon=9.0, delta=1e-5)
    history = model.fit(cases.X, cases.Y, batch_size=20, steps_per_epoch=10, epochs=50, verbose=0, callbacks=[stop])
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        loaded = keras.models.load_model(f"{folder}/model.keras")
    return {
        "steps": model.optimizer.ledger.steps,
        "loaded": loaded.optimizer.ledger.steps,
        "weights": cases.as_lists(model.get_weights()),
        "epsilon": history.history["epsilon"][-1],
    }


def not_finite() -> dict:
    model = private(2, tiny.noiseless)
    y = np.array(tiny.Y)
    y[[0, 7]] = np.nan  # one on each replica
    start = model.get_weights()
    tiny.train(model, tiny.X, y)
    counted = model.optimizer.non_finite_examples
    return {"counted": counted, "start": cases.as_lists(start), "weights": cases.as_lists(model.get_weights())}


APART = 11  # records, each with a coordinate of its own; on two replicas parts of 6 and 5


def of_one_coordinate_each(x=None, y=None, **arguments) -> list:
    """By how many clips each record moved one step. With max_physical_batch and jit_compile as given."""
    limit = {name: arguments.pop(name) for name in ("max_physical_batch",) if name in arguments}
    model = private(2, lambda: tfdp.NoisySGD(1.0, l2_norm_clip=0.5, noise_multiplier=0.0, **limit), wide, **arguments)
    x = 100 * np.eye(APART, dtype="f4") if x is None else x
    tiny.train(model, x, np.full((len(x), 1), 1e6, "f4") if y is None else y)
    return (np.abs(model.get_weights()[0]).ravel() * len(x) / 0.5).tolist()


def wide() -> keras.Model:
    return keras.Sequential(
        [keras.layers.Input((APART,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )


def shares() -> dict:
    ways = {"whole": {}, "one at a time": {"max_physical_batch": 1}, "three at a time": {"max_physical_batch": 3}}
    ways |= {"by XLA": {"jit_compile": True}, "three by XLA": {"max_physical_batch": 3, "jit_compile": True}}
    found = {name: of_one_coordinate_each(**way) for name, way in ways.items()}
    found["one record"] = of_one_coordinate_each(100 * np.eye(APART, dtype="f4")[:1])
    labels = np.full((APART, 1), 1e6, "f4")
    labels[:6] = np.nan
    return found | {"the first part not finite": of_one_coordinate_each(y=labels)}


def lots_of_chance() -> list:
    """By how many clips each record moved each of 100 steps on Poisson lots."""
    model = private(2, lambda: tfdp.NoisySGD(1e-3, l2_norm_clip=1.0, noise_multiplier=0.0), wide)
    weights = [model.get_weights()[0].ravel()]
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: weights.append(model.get_weights()[0].ravel())
    )
    records = (100 * np.eye(APART, dtype="f4"), np.full((APART, 1), 1e6, "f4"))
    model.fit(*records, batch_size=4, steps_per_epoch=100, verbose=0, callbacks=[keep])
    return (np.abs(np.diff(weights, axis=0)) * 4 * 1e3).tolist()


def rewound() -> dict:
    """Steps of noise, again and again from one file; and from a file that one device goes on with."""
    with STRATEGIES[2].scope():
        model = cases.only_noise()
    moves = [cases.without_records(model)]
    with tempfile.TemporaryDirectory() as folder:
        model.save_weights(f"{folder}/state.weights.h5")
        model.save(f"{folder}/model.keras")
        for _ in range(2):
            moves.append(cases.without_records(model))
            model.load_weights(f"{folder}/state.weights.h5")
        alone = keras.models.load_model(f"{folder}/model.keras")
    moves.append(cases.without_records(alone))
    return {
        "likeness": float(np.abs(np.corrcoef(moves) - np.eye(len(moves))).max()),
        "draws": moves[0].size,
        "steps": [model.optimizer.ledger.steps, alone.optimizer.ledger.steps],
    }


def one_refuses() -> dict:
    """The second replica has reached its limit of steps, the first has not."""
    model = private(2, tiny.noisy)
    start = model.get_weights()

    def limit(epoch, logs):
        model.optimizer.book._limit.value.values[1].assign(0)

    tiny.train(model, steps=2, callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=limit)])
    moved = any(np.any(old != new) for old, new in zip(start, model.get_weights(), strict=True))
    return {"moved": bool(moved), "steps": model.optimizer.ledger.steps}


def batch_normalisation() -> None:
    model = private(2, model=lambda: keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()]))
    refused(model, tiny.X)


def refused(model: keras.Model, y=tiny.Y, **arguments) -> None:
    """Raises what fit raises, once it is seen that nothing moved."""
    raised = None
    with tiny.nothing_moves(model):
        try:
            tiny.train(model, tiny.X, y, **arguments)
        except ValueError as error:
            raised = error
    assert raised is not None
    raise raised


def model_outside() -> None:
    model = tiny.linear()
    with STRATEGIES[2].scope():
        tiny.private(model=model)
    refused(model)


def optimizer_outside() -> None:
    with STRATEGIES[2].scope():
        model = tiny.linear()
    refused(tiny.private(model=model))


def inner_optimizer_outside() -> None:
    inner, mechanism = keras.optimizers.SGD(0.1), tfdp.mechanisms.GaussianMechanism(1.0, 1.0)
    refused(private(2, lambda: tfdp.PrivateOptimizer(inner, mechanism)))


def other_strategy() -> None:
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = tiny.private()
    refused(model)


def full_gradient() -> None:
    own = {"direction": "full_gradient", "direction_noise_multiplier": 20.0}
    refused(private(2, lambda: tfdp.DirectionalDPSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, **own)))


def microbatches() -> None:
    own = {"microbatch_size": 2, "as_published": True}
    refused(private(2, lambda: tfdp.EncodedDPSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, **own)))


def pruned_as_published() -> None:
    own = {"target_epsilon": 3.0, "delta": 1e-5, "direction": "ones", "pruning_ratio": 0.5, "as_published": True}
    refused(private(2, lambda: tfdp.DirectionalDPSGD(0.1, l2_norm_clip=1.0, **own)))


def grid() -> None:
    refused(private(2, lambda: tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, grid=True)))


class AsksWhichReplica(keras.layers.Layer):
    def call(self, x):
        context = tf.distribute.get_replica_context()
        number = None if context is None else tf.get_static_value(context.replica_id_in_sync_group)
        return 3.0 - x if number else x


def asks_which_replica() -> None:
    refused(private(2, model=lambda: keras.Sequential([keras.Input((3,)), AsksWhichReplica(), keras.layers.Dense(1)])))


def executions() -> None:
    refused(private(2, steps_per_execution=2), steps=3)


def declared() -> dict:
    """Two passes over eight records, three at a time."""
    records = tf.data.Dataset.from_tensor_slices((tiny.X, tiny.Y)).shuffle(8).batch(3)
    model = private(2)
    model.fit(tfdp.data.declare_sampling(records, "shuffled", size=8, batch_size=3), epochs=2, verbose=0)
    (line,) = model.optimizer.ledger
    return {"steps": line.steps, "passes": line.passes}


REFUSED = {
    function.__name__: function
    for function in (
        model_outside, optimizer_outside, inner_optimizer_outside, other_strategy, full_gradient, microbatches,
        pruned_as_published, grid, executions, batch_normalisation, asks_which_replica,
    )
}  # fmt: skip


def all_cases() -> dict:
    found = {f"noise {n}": cases.told(lambda n=n: moves_of_noise(n)) for n in STRATEGIES}
    found["adam"] = cases.told(lambda: [adam_on(None), adam_on(2, jit_compile=True)])
    found |= {f"mechanism {name}": cases.told(lambda name=name: with_mechanism(name)) for name in MECHANISMS}
    for case in (
        epoch_of_poisson_lots,
        three_records_on_four,
        compiled_again,
        empty_lots,
        on_a_support,
        budget_and_dropout,
        not_finite,
        one_refuses,
        validated,
        shares,
        lots_of_chance,
        rewound,
        declared,
    ):
        found[case.__name__] = cases.told(case)
    return found | {f"refused {name}": cases.told(case) for name, case in REFUSED.items()}


if __name__ == "__main__":
    cases.count_dense_layers_as_proved()
    cases.tell(all_cases())
