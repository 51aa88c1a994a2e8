"""Examples whose gradients are not finite contribute exactly nothing, and no step is skipped for them."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny

BAD = [1, 4]  # the records that hold a bad value
GOOD = [0, 2, 3, 5]

MODELS = {
    "dense": lambda: [keras.layers.Flatten(), keras.layers.Dense(3, activation="relu"), keras.layers.Dense(1)],
    "convolution": lambda: [keras.layers.Conv1D(2, 2), keras.layers.Flatten(), keras.layers.Dense(1)],
    "recurrent": lambda: [keras.layers.LSTM(2), keras.layers.LayerNormalization(), keras.layers.Dense(1)],
}


def records(value):
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((6, 4, 2)).astype("float32"), rng.standard_normal((6, 1)).astype("float32")
    x[BAD[0], 1, 0] = value
    y[BAD[1]] = value
    return x, y


def weights_after_a_step(name, x, y, learning_rate):
    keras.utils.set_random_seed(2)
    model = keras.Sequential([keras.Input((4, 2)), *MODELS[name]()])
    tiny.private(tfdp.NoisySGD(learning_rate, l2_norm_clip=0.5, noise_multiplier=0.0), model)
    tiny.train(model, x, y)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_lot_with_bad_values_gives_the_weights_of_a_lot_without_them(name):
    x, y = records(np.nan if name != "dense" else np.inf)
    model = weights_after_a_step(name, x, y, learning_rate=6.0)  # divides by 6
    without = weights_after_a_step(name, x[GOOD], y[GOOD], learning_rate=4.0)  # divides by 4
    for got, wanted in zip(model.get_weights(), without.get_weights(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert model.optimizer.non_finite_examples == 2
    assert without.optimizer.non_finite_examples == 0


def bad_records():
    x = tiny.X.copy()
    x[:] = np.nan
    return x, tiny.Y


def test_a_lot_of_bad_values_alone_is_noised_and_counted():
    model = tiny.private(tiny.noisy())
    start = model.get_weights()
    tiny.train(model, *bad_records(), steps=2)
    for old, new in zip(start, model.get_weights(), strict=True):
        assert np.all(np.isfinite(new)) and np.all(new != old)
    assert model.optimizer.ledger.steps == 2
    assert model.optimizer.non_finite_examples == 2 * tiny.SIZE


def test_private_logs_hide_the_count():
    model = tiny.private(tiny.noisy(private_logs=True))
    tiny.train(model, *bad_records())
    assert model.optimizer.non_finite_examples is None
    assert model.optimizer.ledger.steps == 1


def test_the_count_is_in_no_log_and_no_file(tmp_path):
    model = tiny.private(tiny.noisy())
    history = tiny.train(model, *bad_records())
    assert set(history.history) == {"loss"}
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").optimizer.non_finite_examples == 0


@pytest.mark.parametrize("size", [1e19, 1e30, 3e38])
def test_huge_but_finite_values_do_not_reach_the_weights_unclipped(size):
    x = tiny.X.copy()
    x[0] = size
    model = tiny.private()
    start = model.get_weights()
    tiny.train(model, x)
    change = np.concatenate([np.ravel(a - b) for a, b in zip(model.get_weights(), start, strict=True)])
    rest = np.linalg.norm(tiny.clipped_gradients(start, tiny.X[1:], tiny.Y[1:]).sum(0))
    assert np.linalg.norm(change) <= 0.1 * (rest + tiny.CLIP) / tiny.SIZE * (1 + 1e-5)
