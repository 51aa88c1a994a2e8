"""PrivacyLogger writes epsilon and stops nothing."""

import warnings

import keras
import pytest

import tfdp
from tests.callbacks.runs import X, Y, fit, model_with, spent
from tests.optimizers import tiny
from tfdp.callbacks import BudgetStopping, PrivacyLogger


def test_epsilon_of_every_epoch_is_in_the_history():
    model = model_with()
    history = fit(model, PrivacyLogger(1e-6), epochs=3)
    expected = [spent((0.05, 2.0, steps), delta=1e-6) for steps in (20, 40, 60)]
    assert history.history["epsilon"] == pytest.approx(expected, rel=1e-6)
    assert model.optimizer.ledger.steps == 60


def test_it_counts_what_was_spent_before():
    model = model_with()
    fit(model, epochs=1)
    history = fit(model, PrivacyLogger(1e-5), epochs=1)
    assert history.history["epsilon"] == pytest.approx([spent((0.05, 2.0, 40))], rel=1e-6)


def test_epsilon_is_infinite_without_noise():
    model = tiny.private(tiny.noiseless())
    history = tiny.train(model, callbacks=[PrivacyLogger(1e-5)])
    assert history.history["epsilon"] == [float("inf")]


def test_reading_epsilon_changes_nothing():
    model = model_with()
    fit(model, PrivacyLogger(1e-5), epochs=2)
    ledger = model.optimizer.ledger
    first, second = (PrivacyLogger(1e-5) for _ in range(2))
    for logger in (first, second):
        logger.set_model(model)
        logs = {}
        logger.on_epoch_end(0, logs)
        assert logs["epsilon"] == pytest.approx(spent((0.05, 2.0, 40)), rel=1e-6)
    assert model.optimizer.ledger == ledger


def test_an_ordinary_model_has_no_epsilon():
    model = tiny.linear()
    model.compile(optimizer=keras.optimizers.SGD(), loss="mse")
    with pytest.raises(ValueError, match="compiled with a private optimizer"):
        fit(model, PrivacyLogger(1e-5))


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("callback", [lambda: PrivacyLogger(1e-5), lambda: BudgetStopping(1.0, 1e-5)])
def test_a_list_of_keras_that_belongs_to_another_model_is_refused(private, callback):
    model, other = model_with(), model_with()
    if not private:
        other.compile(optimizer="sgd", loss="mse")
    callbacks = keras.callbacks.CallbackList([callback()], model=other)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=f"bound to.*{other.name}|{other.name}.*bound to"):
        model.fit(X, Y, batch_size=50, verbose=0, callbacks=callbacks)


def test_a_list_of_keras_that_belongs_to_no_model_is_refused():
    model = model_with()
    callbacks = keras.callbacks.CallbackList([PrivacyLogger(1e-5)])
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="bound to no model"):
        model.fit(X, Y, batch_size=50, verbose=0, callbacks=callbacks)


def test_an_ordinary_models_fit_does_not_count_the_privacy_of_another_model():
    ordinary, private = tiny.linear(), model_with()
    ordinary.compile(optimizer="sgd", loss="mse")
    before = ordinary.get_weights()
    callbacks = keras.callbacks.CallbackList([BudgetStopping(1.0, 1e-5)], model=private)
    with pytest.raises(ValueError, match="not the one that fit trains"):
        ordinary.fit(X, Y, verbose=0, callbacks=callbacks)
    tiny.assert_weights(ordinary, before, rtol=0)


def warnings_of(train) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train()
    return [str(warning.message) for warning in caught if "delta=" in str(warning.message)]


@pytest.mark.parametrize("make", [PrivacyLogger, lambda delta: BudgetStopping(100.0, delta)])
def test_a_delta_of_one_over_the_number_of_records_says_nothing_and_is_warned_of_once(make):
    model = model_with()
    found = warnings_of(lambda: [fit(model, make(1e-3), epochs=2) for _ in range(2)])
    assert len(found) == 1
    assert found[0].startswith(f"delta=0.001 is at least 1 / {len(X)} records:")
    assert model.optimizer.ledger.steps == 80
    assert warnings_of(lambda: fit(model, make(0.99e-3), epochs=1)) == []


def test_a_delta_of_the_optimizers_target_is_warned_of_once():
    model = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=1.0, target_epsilon=3.0, delta=0.5))
    (found,) = warnings_of(lambda: fit(model, PrivacyLogger(0.5), epochs=1))
    assert found.startswith("delta=0.5 is at least 1 / 1000 records:")


@pytest.mark.parametrize("delta", [0, 1, -1e-5, "small"])
def test_a_delta_that_is_none(delta):
    with pytest.raises(ValueError, match="delta"):
        PrivacyLogger(delta)
