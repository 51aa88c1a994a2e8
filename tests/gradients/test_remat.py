"""Rematerialised models train as their plain twins do: brute force is run on the same model without any rematerialisation."""

import contextlib
import threading
import warnings
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.brute_force import batch_gradient, brute_force, flat_weights
from tests.gradients.one_step import (
    SOME,
    Prepared,
    assert_one_step_is_the_mean_of_the_clipped_gradients,
    relative,
)
from tests.zoo.cases import Case
from tfdp.data import PoissonBatches
from tfdp.gradients import MixesExamples, prove, remat
from tfdp.gradients.remat import recomputed, without_rematerialisation

L, ops = keras.layers, keras.ops
SIZE = 6
RANDOM = np.random.default_rng(11)
X, Y = RANDOM.normal(size=(SIZE, 5, 4)).astype("float32"), RANDOM.normal(size=(SIZE, 2)).astype("float32")

pytestmark = pytest.mark.filterwarnings("ignore:Private training ignores keras.RematScope")


class Block(L.Layer):
    """A residual block whose two layers are called by one function of its own, rematerialised by ``remat``."""

    def __init__(self, remat: Callable, **kwargs):
        super().__init__(**kwargs)
        self.hidden, self.last = L.Dense(6, "gelu"), L.Dense(4)
        self.run = remat(self._run)

    def build(self, shape):
        self.hidden.build(shape)
        self.last.build((*shape[:-1], 6))

    def _run(self, x):
        return self.last(self.hidden(x))

    def call(self, x):
        return x + self.run(x)


class InTheCall(Block):
    """The same, wrapped anew in every call, with an argument that is no tensor."""

    def __init__(self, remat: Callable):
        super().__init__(lambda run: run)
        self.remat = remat

    def call(self, x):
        return self.remat(lambda x, factor: factor * self._run(x))(x, 2.0)


class OwnWeight(L.Layer):
    """A weight of the layer's own, read inside."""

    def __init__(self, remat: Callable):
        super().__init__()
        self.run = remat(lambda x: ops.tanh(x @ self.w))

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 6), name="w")

    def call(self, x):
        return self.run(x)


class Method(L.Layer):
    """As a decorator of a method."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 6), name="w")

    def plain(self, x):
        return ops.tanh(x @ self.w)

    rematerialised = tf.recompute_grad(plain)

    def __init__(self, remat: Callable):
        super().__init__()
        self.run = self.plain if remat is unchanged else self.rematerialised

    def call(self, x):
        return self.run(x)


class AroundALayer(L.Layer):
    def __init__(self, remat: Callable):
        super().__init__()
        self.inner = L.Dense(6, "tanh")
        self.run = remat(self.inner)

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return self.run(x)


def unchanged(function: Callable) -> Callable:
    return function


def sequential() -> keras.Model:
    dense = L.Dense(6, "tanh", name="chosen")
    return keras.Sequential(
        [L.Input((5, 4)), L.Conv1D(6, 2, activation="relu"), L.LayerNormalization(), dense, L.Flatten(), L.Dense(2)]
    )


def transformer() -> keras.Model:
    """A functional model with operations, attention and a model inside it."""
    inner_in = L.Input((5, 4))
    inner = keras.Model(inner_in, ops.relu(L.Dense(4)(inner_in)) + 0.1 * inner_in)
    x = L.Input((5, 4))
    h = inner(x)
    h = L.LayerNormalization()(h + L.MultiHeadAttention(2, key_dim=3)(h, h))
    return keras.Model(x, L.Dense(2)(L.GlobalAveragePooling1D()(ops.sin(h))))


def recurrent() -> keras.Model:
    return keras.Sequential([L.Input((5, 4)), L.LSTM(4, return_sequences=True), L.GRU(3), L.Dense(2)])


def shared_and_regularised() -> keras.Model:
    x = L.Input((5, 4))
    twice = L.Dense(4, "tanh", activity_regularizer="l2", kernel_regularizer="l2")
    return keras.Model(x, L.Dense(2)(L.Flatten()(twice(twice(x)))))


def nested(mode: str | None) -> keras.Model:
    """Scopes in scopes; ``mode=None`` in all of them is the plain twin."""
    with keras.RematScope(mode):
        first = L.Dense(5, "relu")
        with keras.RematScope(mode and "larger_than", output_size_threshold=3):
            second = L.Conv1D(6, 2)
            with keras.RematScope(None):
                third = L.Dense(4, "tanh")
    return keras.Sequential([L.Input((5, 4)), first, second, third, L.Flatten(), L.Dense(2)])


def in_scope(build: Callable, **scope) -> tuple[Callable, Callable]:
    def rematerialised():
        with keras.RematScope(**scope):
            return build()

    return rematerialised, build


def with_layer(layer: type, remat: Callable) -> tuple[Callable, Callable]:
    def model(remat):
        return keras.Sequential([L.Input((5, 4)), layer(remat), L.Flatten(), L.Dense(2)])

    return lambda: model(remat), lambda: model(unchanged)


CASES = {
    "full": in_scope(sequential, mode="full"),
    "activations": in_scope(sequential, mode="activations"),
    "larger than a few": in_scope(sequential, mode="larger_than", output_size_threshold=3),
    "larger than all": in_scope(sequential, mode="larger_than", output_size_threshold=10**6),
    "a list of layers": in_scope(sequential, mode="list_of_layers", layer_names=["chosen", "conv1d"]),
    "a functional model": in_scope(transformer, mode="full"),
    "a functional model by size": in_scope(transformer, mode="larger_than", output_size_threshold=8),
    "recurrent": in_scope(recurrent, mode="full"),
    "shared and regularised": in_scope(shared_and_regularised, mode="full"),
    "nested scopes": (lambda: nested("full"), lambda: nested(None)),
    "keras.remat": with_layer(Block, keras.remat),
    "tf.recompute_grad": with_layer(Block, tf.recompute_grad),
    "in the call": with_layer(InTheCall, tf.recompute_grad),
    "a weight of its own": with_layer(OwnWeight, keras.remat),
    "a method": with_layer(Method, tf.recompute_grad),
    "around a layer": with_layer(AroundALayer, keras.remat),
    "twice": with_layer(Block, lambda f: keras.remat(tf.recompute_grad(f))),
}


def prepared(rematerialised: keras.Model, twin: keras.Model, **compile) -> Prepared:
    """The rematerialised model, and what brute force says of its plain twin."""
    shake = np.random.default_rng(5)
    twin.set_weights([w + 0.2 * shake.standard_normal(w.shape) for w in twin.get_weights()])
    rematerialised.set_weights(twin.get_weights())
    twin.compile(optimizer="sgd", loss="mse")
    case = Case(lambda: rematerialised, X, Y, compile={"loss": "mse", **compile})
    return Prepared(case, rematerialised, twin.get_weights(), brute_force(twin, X, Y), batch_gradient(twin, X, Y))


def both(name: str) -> tuple[keras.Model, keras.Model]:
    keras.backend.clear_session()  # the lists of names in scopes are those of fresh layers
    model = CASES[name][0]()
    keras.backend.clear_session()
    return model, CASES[name][1]()


@pytest.mark.parametrize("name", CASES)
def test_a_private_step_is_that_of_the_plain_twin(name: str):
    assert_one_step_is_the_mean_of_the_clipped_gradients(prepared(*both(name)), SOME)


@pytest.mark.parametrize("how", [{"jit_compile": True}, {"run_eagerly": True}], ids=["XLA", "eager"])
@pytest.mark.parametrize("name", ["larger than a few", "a functional model", "keras.remat"])
def test_so_it_is_in_the_other_ways_a_step_is_run(name: str, how: dict):
    assert_one_step_is_the_mean_of_the_clipped_gradients(prepared(*both(name), **how), SOME)


def test_so_it_is_after_saving_and_loading_in_a_scope(tmp_path):
    model, twin = both("full")
    model.save(tmp_path / "model.keras")
    with keras.RematScope("full"):
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[0]._remat_mode is not None
    assert_one_step_is_the_mean_of_the_clipped_gradients(prepared(loaded, twin), SOME)


def rules(model: keras.Model) -> list[str]:
    model.compile(optimizer="sgd", loss="mse")
    lots = PoissonBatches(X, Y, batch_size=4)
    return [line.partition(": ")[2] for line in prove(model, lots.record_spec, lots.head(SIZE), 16).describe()]


@pytest.mark.parametrize("name", ["activations", "larger than a few", "a functional model", "keras.remat", "a method"])
def test_layers_keep_the_rules_of_the_plain_twin(name: str):
    model, twin = both(name)
    assert rules(model) == rules(twin)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", ["full", "keras.remat"])
def test_in_mixed_precision_the_step_is_that_of_the_plain_twin_to_rounding(name: str, policy: str):
    keras.config.set_dtype_policy(policy)
    try:
        model, twin = both(name)
    finally:
        keras.config.set_dtype_policy("float32")
    model.set_weights(twin.get_weights())
    change = []
    for one in (model, twin):
        before = flat_weights(one)
        one.compile(tfdp.NoisySGD(1.0, l2_norm_clip=0.5, noise_multiplier=0.0), loss="mse")
        one.fit(X, Y, batch_size=SIZE, verbose=0)
        change.append(flat_weights(one) - before)
    assert relative(change[0] - change[1], change[1]) <= 1e-3


class DroppedBlock(Block):
    def __init__(self, remat: Callable):
        super().__init__(remat)
        self.dropout = L.Dropout(0.5)

    def _run(self, x):
        return self.last(self.dropout(self.hidden(x), training=True))


def dropped_in_scope() -> keras.Model:
    return keras.Sequential(
        [L.Input((5, 4)), L.Dense(6, "tanh"), L.Dropout(0.5), L.GaussianNoise(0.3), L.Flatten(), L.Dense(2)]
    )


@pytest.mark.parametrize(
    "pair",
    [
        in_scope(dropped_in_scope, mode="full"),
        in_scope(dropped_in_scope, mode="larger_than", output_size_threshold=3),
        with_layer(DroppedBlock, keras.remat),
    ],
    ids=["in a scope", "by size", "in a block"],
)
def test_random_layers_draw_once_for_outputs_and_gradients(pair: tuple[Callable, Callable]):
    """The step of the rematerialised model is that of its twin with the same noise_seed and the same seeds of layers."""
    change = []
    for build in pair:
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        model = build()
        model.compile(tfdp.NoisySGD(1.0, l2_norm_clip=0.5, noise_multiplier=0.0, noise_seed=1), loss="mse")
        before = flat_weights(model)
        model.fit(np.repeat(X[:1], SIZE, 0), np.repeat(Y[:1], SIZE, 0), batch_size=SIZE, verbose=0)
        change.append(flat_weights(model) - before)
    assert relative(change[0] - change[1], change[1]) <= 1e-4


class Scaled(L.Layer):
    """out = v * x."""

    def build(self, shape):
        self.v = self.add_weight(shape=(shape[-1],), initializer="ones", name="v")

    def call(self, x):
        return self.v * x


class DroppedScale(L.Layer):
    """out = mask * w * x, all of it rematerialised."""

    def __init__(self):
        super().__init__()
        self.dropout = L.Dropout(0.5)
        self.run = keras.remat(lambda x: self.dropout(x * self.w, training=True))

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1],), initializer="ones", name="w")

    def call(self, x):
        return self.run(x)


def test_all_gradients_of_a_step_come_from_one_mask():
    """The output v * mask * w * x depends on v * w alone, so w dL/dw = v dL/dv for every unit and every mask.

    It fails if a mask is drawn anew where a layer is recomputed.
    """
    model = keras.Sequential([L.Input((24,)), DroppedScale(), Scaled()])
    model.set_weights([RANDOM.uniform(0.5, 2.0, w.shape) for w in model.trainable_weights])
    w, v = (ops.convert_to_numpy(weight) for weight in model.trainable_weights)
    model.compile(tfdp.NoisySGD(1.0, l2_norm_clip=1e-2, noise_multiplier=0.0), loss="mse")
    before = flat_weights(model)
    model.fit(RANDOM.normal(size=(2, 24)), RANDOM.normal(size=(2, 24)), batch_size=2, verbose=0)
    step_w, step_v = np.split(flat_weights(model) - before, 2)
    np.testing.assert_allclose(w * step_w, v * step_v, rtol=1e-3, atol=1e-3 * np.abs(w * step_w).max())


def test_examples_that_meet_in_a_scope_are_refused_by_name():
    with keras.RematScope("full"):
        model = keras.Sequential([L.Input((5, 4)), L.BatchNormalization(name="meeting"), L.Flatten(), L.Dense(2)])
    model.compile(tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0), loss="mse")
    with pytest.raises((MixesExamples, ValueError), match="meeting"):
        model.fit(X, Y, batch_size=SIZE, verbose=0)


def test_validation_in_fit_runs():
    """Keras's own evaluate fails on such a model: in a graph no recomputed function takes keyword arguments."""
    model, _ = both("full")
    model.compile(tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0), loss="mse")
    history = model.fit(X, Y, batch_size=SIZE, verbose=0, validation_data=(X, Y)).history
    assert np.isfinite(history["val_loss"]).all()


def test_the_user_is_told_what_saves_memory():
    model, _ = both("keras.remat")
    model.compile(tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0), loss="mse")
    with pytest.warns(UserWarning, match="max_physical_batch"):
        model.fit(X, Y, batch_size=SIZE, verbose=0)


def test_nobody_is_told_who_rematerialises_nothing():
    _, twin = both("keras.remat")
    twin.compile(tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0), loss="mse")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        twin.fit(X, Y, batch_size=SIZE, verbose=0)
    assert not [warning for warning in told if "max_physical_batch" in str(warning.message)]


@tf.custom_gradient
def straight_through(x):
    return tf.sign(x), lambda d: 3.0 * d


def test_other_custom_gradients_are_the_users_own():
    with without_rematerialisation(), tf.GradientTape() as tape:
        x = tf.constant([0.5, -0.5])
        tape.watch(x)
        y = straight_through(x)
    np.testing.assert_array_equal(tape.gradient(y, x), [3.0, 3.0])


def test_a_recomputed_function_is_told_from_others():
    """It is told by the code of a function inside TensorFlow's."""

    def plain(x):
        return x

    assert recomputed(tf.recompute_grad(plain)._f) is plain
    assert recomputed(straight_through._f) is None
    assert recomputed(plain) is None


def runs_of_a_gradient() -> int:
    """How often a recomputed function runs for its value and its gradient."""
    runs = []
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.recompute_grad(lambda x: runs.append(None) or x * x)(x)
    assert float(tape.gradient(y, x)) == 4.0
    return len(runs)


def replaced() -> list:
    own = [owner.__dict__["rematerialized_call"] for owner in remat._KERAS]
    return [*own, *(getattr(remat.custom_gradient, name) for name in remat._TENSORFLOW)]


def test_inside_functions_run_once_outside_twice():
    assert runs_of_a_gradient() == 2
    with without_rematerialisation():
        assert runs_of_a_gradient() == 1
    assert runs_of_a_gradient() == 2


def test_another_thread_is_outside():
    found = []
    with without_rematerialisation():
        thread = threading.Thread(target=lambda: found.append(runs_of_a_gradient()))
        thread.start()
        thread.join()
    assert found == [2]


def test_of_overlapping_threads_the_last_to_leave_restores_everything():
    before = replaced()
    first_in, second_in, first_out = (threading.Event() for _ in range(3))
    found = []

    def first():
        with without_rematerialisation():
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def second():
        first_in.wait(10)
        with without_rematerialisation():
            second_in.set()
            first_out.wait(10)
            found.extend([runs_of_a_gradient(), replaced() != before])

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1, True]
    assert replaced() == before


def test_everything_is_restored_where_training_fails():
    before = replaced()
    with contextlib.suppress(ZeroDivisionError), without_rematerialisation(), without_rematerialisation():
        raise ZeroDivisionError
    assert replaced() == before
