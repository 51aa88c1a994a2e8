"""What fit says when it ends: that settings changed, and that gradients were not finite."""

import warnings

import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny

TARGET = {"l2_norm_clip": 1.0, "target_epsilon": 8.0, "delta": 1e-5}


def told(model, *data, **arguments) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tiny.train(model, *data, **arguments)
    return [str(one.message) for one in caught if "after_fit" in one.filename]


def test_the_fit_that_loses_the_proof_says_so_once():
    model = tiny.private(tiny.noisy())
    assert not told(model) and not told(model)
    assert tfdp.privacy_statement(model).epsilon is not None
    (line,) = told(model, batch_size=4)
    assert "settings_fixed_beforehand=True" in line
    assert tfdp.privacy_statement(model).epsilon is None
    assert not told(model, batch_size=4)


@pytest.mark.parametrize("optimizer", ["filter", "no noise"])
def test_where_no_proof_is_lost_nothing_is_said(optimizer):
    filtered = tfdp.NoisySGD(0.1, **TARGET, accountant="rdp")
    model = tiny.private(filtered if optimizer == "filter" else tiny.noiseless())
    if optimizer == "filter":
        tiny.train(model, epochs=2, callbacks=[StopsAfterTheFirst()])
    else:
        tiny.train(model)
    before = tfdp.privacy_statement(model).epsilon
    assert not told(model, batch_size=4)
    assert model.optimizer.ledger.steps == 2
    assert (tfdp.privacy_statement(model).epsilon is None) == (before is None)


class StopsAfterTheFirst(tfdp.callbacks.PrivacyLogger):
    def __init__(self):
        super().__init__(1e-5)

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True


@pytest.mark.parametrize("private_logs", [False, True])
def test_gradients_that_are_not_finite_are_told_unless_logs_are_private(private_logs):
    model = tiny.private(tiny.noisy(private_logs=private_logs))
    x = tiny.X.copy()
    x[:3] = np.nan
    lines = told(model, x, steps=2)
    assert len(lines) == (not private_logs)
    assert all("6 times" in line and "16 times" in line and "private_logs=True" in line for line in lines)
    assert not told(model, steps=2)  # the next fit tells of its own
