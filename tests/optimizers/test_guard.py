"""Nothing but fit moves the weights of a privately compiled model: every other way raises first."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tfdp.data import PoissonBatches

REFUSALS = (RuntimeError, ValueError, tf.errors.InvalidArgumentError)


@pytest.fixture(scope="module")
def trained() -> keras.Model:
    model = tiny.private(tiny.noisy())
    tiny.train(model)
    return model


def ones(model):
    return [tf.ones(v.shape) for v in model.trainable_variables]


def pairs(model):
    return zip(ones(model), model.trainable_variables, strict=True)


def custom_loop(model):
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x=tiny.X, y=tiny.Y, y_pred=model(tiny.X, training=True))
    gradients = tape.gradient(loss, model.trainable_weights)
    model.optimizer.apply(gradients, model.trainable_weights)


def lots():
    return iter(PoissonBatches(tiny.X, tiny.Y, batch_size=tiny.SIZE).dataset())


def batches():
    return iter(tf.data.Dataset.from_tensors((tiny.X, tiny.Y)))


FORBIDDEN = {
    "apply": lambda m: m.optimizer.apply(ones(m), m.trainable_variables),
    "apply without variables": lambda m: m.optimizer.apply(ones(m)),
    "apply_gradients": lambda m: m.optimizer.apply_gradients(pairs(m)),
    "stateless_apply": lambda m: m.optimizer.stateless_apply([], ones(m), m.trainable_variables),
    "scale_loss": lambda m: m.optimizer.scale_loss(tf.constant(1.0)),
    "inner_optimizer.apply": lambda m: m.optimizer.inner_optimizer.apply(ones(m), m.trainable_variables),
    "inner_optimizer.apply_gradients": lambda m: m.optimizer.inner_optimizer.apply_gradients(pairs(m)),
    "train_on_batch": lambda m: m.train_on_batch(tiny.X, tiny.Y),
    "a custom loop": custom_loop,
    "a custom loop in a graph": lambda m: tf.function(lambda: custom_loop(m))(),
    "the class's own train_step": lambda m: type(m).train_step(m, (tf.constant(tiny.X), tf.constant(tiny.Y))),
    "train_step on a batch": lambda m: m.train_step((tf.constant(tiny.X), tf.constant(tiny.Y))),
    "train_step on a lot": lambda m: m.train_step(next(lots())),
    "the train_function of the last fit": lambda m: m.train_function(lots()),
    "the train_function of the last fit on batches": lambda m: m.train_function(batches()),
    "a new train_function": lambda m: (m.make_train_function(force=True), m.train_function(lots())),
}


@pytest.mark.parametrize("way", FORBIDDEN)
def test_every_other_way_to_a_weight_update_raises_before_anything_moved(trained, way):
    with tiny.nothing_moves(trained), pytest.raises(REFUSALS, match=r"model\.fit"):
        FORBIDDEN[way](trained)


@pytest.mark.parametrize("way", ["train_step on a lot", "train_on_batch", "a new train_function", "apply"])
def test_the_same_before_the_first_fit(way):
    model = tiny.private()
    with tiny.nothing_moves(model), pytest.raises(REFUSALS, match=r"model\.fit"):
        FORBIDDEN[way](model)


def test_a_train_function_kept_over_a_refused_call_still_serves_the_next_fit(trained):
    kept = trained.train_function
    with pytest.raises(REFUSALS):
        kept(lots())
    steps = trained.optimizer.ledger.steps
    tiny.train(trained)
    assert trained.optimizer.ledger.steps == steps + 1


def test_a_train_function_kept_from_an_earlier_compile_stays_shut():
    model = tiny.private()
    tiny.train(model)
    kept = model.train_function
    tiny.private(model=model)
    tiny.train(model)
    with tiny.nothing_moves(model), pytest.raises(REFUSALS, match=r"model\.fit"):
        kept(lots())


def test_an_optimizer_put_in_place_of_the_private_one_trains_nothing(trained):
    private = trained.optimizer
    weights = trained.get_weights()
    try:
        trained.optimizer = keras.optimizers.SGD(1.0)
        with pytest.raises(RuntimeError, match=r"[Cc]ompile again"):
            tiny.train(trained)
        with pytest.raises(RuntimeError):
            trained.train_on_batch(tiny.X, tiny.Y)
        trained.make_train_function(force=True)
        with pytest.raises(REFUSALS):
            trained.train_function(lots())
        with pytest.raises(REFUSALS):
            trained.train_function(batches())
    finally:
        trained.optimizer = private
    for old, new in zip(weights, trained.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


def test_an_exception_in_a_callback_shuts_the_step_again(trained):
    class Fails(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.train(trained, callbacks=[Fails()])
    with tiny.nothing_moves(trained), pytest.raises(REFUSALS, match=r"model\.fit"):
        trained.train_function(lots())


def test_a_loss_scale_optimizer_around_a_private_one_is_refused():
    model = tiny.linear()
    with pytest.raises(ValueError, match="LossScaleOptimizer"):
        model.compile(optimizer=keras.optimizers.LossScaleOptimizer(tiny.noisy()), loss="mse")


def test_mixed_float16_does_not_wrap_the_private_optimizer():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, dtype="mixed_float16")])
    model.compile(optimizer=tiny.noisy(), loss="mse")
    assert isinstance(model.optimizer, tfdp.NoisySGD)


def test_a_model_compiled_by_keras_is_none_of_the_guards_business():
    model = tiny.linear()
    start = model.get_weights()
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    custom_loop(model)
    tiny.assert_weights(model, tiny.after_sgd(start, clip=np.inf))
