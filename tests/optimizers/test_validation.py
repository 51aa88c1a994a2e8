"""validation_split and validation_data: the split's part is not trained on, and not counted."""

import numpy as np
import pytest

from tests.optimizers import tiny
from tfdp.accounting import GaussianEvent, Line, Poisson


def test_rate_and_steps_come_from_the_training_part():
    model = tiny.private(tiny.noisy())
    history = model.fit(tiny.X, tiny.Y, batch_size=3, validation_split=0.25, verbose=0)
    assert list(model.optimizer.ledger) == [Line(GaussianEvent(1.0), Poisson(3 / 6, 6), 2)]
    assert "val_loss" in history.history


def test_the_last_records_are_validated_on_and_not_trained_on():
    y = tiny.Y.copy()
    y[6:] = 1e3
    model = tiny.private()
    start = model.get_weights()
    history = model.fit(tiny.X, y, batch_size=6, validation_split=0.25, verbose=0)
    expected = tiny.after_sgd(start, tiny.X[:6], y[:6])
    tiny.assert_weights(model, expected)
    residuals = tiny.X[6:] @ expected[0] + expected[1] - y[6:]
    np.testing.assert_allclose(history.history["val_loss"], [np.mean(residuals**2)], rtol=1e-5)


def test_a_split_does_not_go_with_a_public_size():
    model = tiny.private(tiny.noisy())
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="validation_data"):
        model.fit(tiny.X, tiny.Y, batch_size=2, validation_split=0.25, public_size=8, verbose=0)


def test_validation_data_is_evaluated_as_by_evaluate():
    model = tiny.private()
    other = np.random.default_rng(5).standard_normal((5, 3)).astype("float32")
    data = (other, np.ones((5, 1), "float32"))
    history = tiny.train(model, validation_data=data, validation_batch_size=2)
    np.testing.assert_allclose(history.history["val_loss"], [model.evaluate(*data, verbose=0)], rtol=1e-6)
