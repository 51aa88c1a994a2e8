"""All that the inner optimizer does acts on the private gradient: without noise and clip it is Keras's own training."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.mechanisms import GaussianMechanism

NEVER_CLIPS = 1e6

INNER = {
    "momentum and a schedule": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.2, 1, 0.5), momentum=0.9, nesterov=True
    ),
    "weight decay": lambda: keras.optimizers.AdamW(0.05, weight_decay=0.5),
    "an average of weights": lambda: keras.optimizers.Adam(
        0.05, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3
    ),
    "a callable rate and clipnorm": lambda: keras.optimizers.Lion(lambda: 0.05, clipnorm=0.1),
    "global_clipnorm": lambda: keras.optimizers.Adagrad(0.5, global_clipnorm=0.1),
}


def regularised() -> keras.Model:
    return tiny.linear(
        kernel_regularizer=keras.regularizers.L1L2(0.1, 0.3), bias_constraint=keras.constraints.MaxNorm(0.15)
    )


@pytest.mark.parametrize("name", INNER)
def test_without_noise_and_clip_it_is_ordinary_training(name):
    twin = regularised()
    twin.compile(optimizer=INNER[name](), loss="mse")
    twin.fit(tiny.X, tiny.Y, batch_size=tiny.SIZE, epochs=4, shuffle=False, verbose=0)

    model = regularised()
    optimizer = tfdp.PrivateOptimizer(INNER[name](), GaussianMechanism(NEVER_CLIPS, 0.0))
    history = tiny.train(tiny.private(optimizer, model), epochs=4)

    tiny.assert_weights(model, twin.get_weights())
    np.testing.assert_allclose(history.history["loss"], twin.history.history["loss"], rtol=1e-5)
    for mine, other in zip(optimizer.inner_optimizer.variables, twin.optimizer.variables, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-4, atol=1e-6, err_msg=mine.path)


@pytest.mark.parametrize(
    ("private", "inner"),
    [
        (tfdp.NoisySGD, keras.optimizers.SGD),
        (tfdp.NoisyAdam, keras.optimizers.Adam),
        (tfdp.NoisyAdagrad, keras.optimizers.Adagrad),
    ],
)
def test_a_named_optimizer_is_the_keras_optimizer_of_that_name(private, inner):
    for arguments in ({}, {"learning_rate": 0.3, "weight_decay": 0.1}):
        made = private(l2_norm_clip=1.0, noise_multiplier=1.0, **arguments).inner_optimizer
        assert type(made) is inner
        assert made.get_config() | {"name": None} == inner(**arguments).get_config() | {"name": None}


def test_clipnorm_of_the_inner_optimizer_acts_after_the_noise():
    """The noise is a thousand times longer: clipped before it, the change would be so, too."""
    optimizer = tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=1e4, global_clipnorm=0.5)
    model = tiny.private(optimizer)
    start = model.get_weights()
    tiny.train(model)
    change = np.concatenate([np.ravel(a - b) for a, b in zip(model.get_weights(), start, strict=True)])
    np.testing.assert_allclose(np.linalg.norm(change), 0.5, rtol=1e-4)


def test_a_constraint_holds_after_the_noise():
    model = tiny.linear(kernel_constraint=keras.constraints.NonNeg())
    tiny.train(tiny.private(tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=100.0), model), steps=3)
    assert np.all(model.get_weights()[0] >= 0)


def test_a_regulariser_is_neither_clipped_nor_noised_nor_divided_by_the_lot():
    """The examples have weight 0 and the regulariser's gradient is far longer than the clip."""
    model = tiny.linear(kernel_regularizer=keras.regularizers.L2(50.0))
    kernel, bias = model.get_weights()
    tiny.train(
        tiny.private(tfdp.NoisySGD(0.001, l2_norm_clip=1e-3, noise_multiplier=0.0), model),
        sample_weight=np.zeros(tiny.SIZE, "float32"),
    )
    tiny.assert_weights(model, [kernel - 0.001 * 2 * 50.0 * kernel, bias])


def test_the_learning_rate_is_the_inner_optimizers():
    optimizer = tiny.noiseless(learning_rate=0.1)
    optimizer.learning_rate = 0.25
    assert float(optimizer.inner_optimizer.learning_rate) == 0.25
    model = tiny.private(optimizer)
    start = model.get_weights()
    tiny.train(model)
    tiny.assert_weights(model, tiny.after_sgd(start, learning_rate=0.25))
    assert int(optimizer.iterations) == int(optimizer.inner_optimizer.iterations) == 1


@pytest.mark.parametrize("make", [tfdp.NoisySGD, tfdp.DirectionalDPAdam])
def test_fit_ends_with_the_average_of_weights_and_it_is_saved_at_no_cost(make, tmp_path):
    def trained(**arguments):
        model = tiny.private(make(0.1, l2_norm_clip=1.0, noise_multiplier=2.0, **arguments))
        after = []
        note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: after.append(model.get_weights()))
        tiny.train(model, steps=4, callbacks=[note])
        return model, after

    model, after = trained(use_ema=True, ema_momentum=0.75)
    average = after[0]
    for weights in after[1:]:
        average = [0.75 * old + 0.25 * new for old, new in zip(average, weights, strict=True)]
    for found, expected, last in zip(model.get_weights(), average, after[-1], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert np.abs(found - last).max() > 1e-4
    model.save(tmp_path / "averaged.keras")
    loaded = keras.models.load_model(tmp_path / "averaged.keras")
    for found, saved in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, saved)
    assert loaded.optimizer.get_config()["ema_momentum"] == 0.75
    plain, _ = trained()
    epsilons = {tfdp.privacy_statement(one, 1e-5).epsilon for one in (model, loaded, plain)}
    assert len(epsilons) == 1 and epsilons != {None}
