"""PrivacyLogger writes epsilon and stops nothing."""

import keras
import pytest

from tests.callbacks.test_budget_stopping import fit, model_with, spent
from tests.optimizers import tiny
from tfdp.callbacks import PrivacyLogger


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


@pytest.mark.parametrize("delta", [0, 1, -1e-5, "small"])
def test_a_delta_that_is_none(delta):
    with pytest.raises(ValueError, match="delta"):
        PrivacyLogger(delta)
