"""What a model was trained with before, or is set back to in the middle of fit, is under the budget too."""

import keras
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from tests.callbacks.runs import fit, model_with, spent
from tests.optimizers import tiny
from tfdp.accounting import GaussianEvent
from tfdp.callbacks import BudgetStopping


def test_what_was_spent_before_with_other_settings_counts():
    model = model_with(noise_multiplier=3.0)
    fit(model, epochs=1, batch_size=100)
    model.optimizer.mechanism.noise_multiplier = 2.0
    fit(model, epochs=1, batch_size=20)
    fit(model, BudgetStopping(1.0, 1e-5), batch_size=50)
    before = [(0.1, 3.0, 10), (0.02, 2.0, 50)]
    steps = model.optimizer.ledger.lines[2].steps
    assert spent(*before, (0.05, 2.0, steps)) <= 1.0 < spent(*before, (0.05, 2.0, steps + 1))


def test_after_ordinary_training_it_says_that_no_budget_can_be_kept():
    model, stop = model_with(), BudgetStopping(8.0, 1e-5, verbose=0)
    fit(model, epochs=1)
    model.compile(optimizer="sgd", loss="mse")
    fit(model, epochs=1)
    tiny.private(tiny.noisy(), model=model)
    with tiny.nothing_moves(model):
        fit(model, stop, epochs=1)
    assert "infinite already (the model was trained with an ordinary optimizer in between)" in stop.stopped_because
    assert "one more" not in stop.stopped_because


def test_in_a_model_that_was_loaded_a_budget_that_does_not_bind_says_nothing(tmp_path):
    model = model_with()
    fit(model, epochs=2)
    model.save(tmp_path / "model.keras")
    loaded, stop = keras.models.load_model(tmp_path / "model.keras"), BudgetStopping(100.0, 1e-5)
    fit(loaded, stop, epochs=1)
    assert loaded.optimizer.ledger.steps == 60
    assert stop.stopped_because is None


class Rewinds(keras.callbacks.Callback):
    """Goes back to a checkpoint in the middle of fit."""

    def __init__(self, path, *, at_epoch, at_batch=None):
        super().__init__()
        self.path, self.at_epoch, self.at_batch, self.epoch = path, at_epoch, at_batch, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (self.at_epoch, self.at_batch):
            self.model.load_weights(self.path)

    def on_epoch_end(self, epoch, logs=None):
        if (epoch, None) == (self.at_epoch, self.at_batch):
            self.model.load_weights(self.path)


@pytest.mark.parametrize("at_batch", [None, 3])
def test_a_checkpoint_restored_in_the_middle_brings_its_ledger_under_the_budget(tmp_path, at_batch):
    """It comes from a run that spent most of the budget: what is left is counted anew."""
    costly = model_with(1.5)
    fit(costly, epochs=1)
    costly.save_weights(tmp_path / "costly.weights.h5")
    model = model_with(2.0)
    fit(model, BudgetStopping(1.2, 1e-5), Rewinds(tmp_path / "costly.weights.h5", at_epoch=1, at_batch=at_batch))
    steps = {line.event: line.steps for line in model.optimizer.ledger}
    assert steps[GaussianEvent(1.5)] == 20
    assert steps[GaussianEvent(2.0)] > 24
    assert spent((0.05, 1.5, 20), (0.05, 2.0, steps[GaussianEvent(2.0)])) <= 1.2
    assert spent((0.05, 1.5, 20), (0.05, 2.0, steps[GaussianEvent(2.0)] + 1)) > 1.2


def test_going_back_to_a_checkpoint_gives_no_step_back(tmp_path):
    """What was seen of the steps that are thrown away may be why they are."""
    path = tmp_path / "best.weights.h5"
    model = model_with(2.0)
    fit(model, epochs=1)
    model.save_weights(path)
    fit(model, BudgetStopping(1.0, 1e-5), *(Rewinds(path, at_epoch=epoch) for epoch in range(10)))
    assert model.optimizer.ledger.steps == 82


def test_a_checkpoint_loaded_as_every_epoch_begins_lets_training_go_on(tmp_path):
    path = tmp_path / "first.weights.h5"
    model = model_with(2.0)
    fit(model, epochs=1)
    model.save_weights(path)
    load = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: model.load_weights(path))
    history = fit(model, BudgetStopping(1.0, 1e-5), load, epochs=2)
    assert model.optimizer.ledger.steps == 60
    assert np.isfinite(history.history["loss"]).all()


class Resets(keras.callbacks.Callback):
    """A warm restart: the optimizer's state is thrown away."""

    def on_epoch_begin(self, epoch, logs=None):
        for variable in self.model.optimizer.variables:
            if "learning_rate" not in variable.path:
                variable.assign(keras.ops.zeros_like(variable))


def test_resetting_the_optimizers_variables_gives_no_step_back():
    model = model_with(2.0)
    fit(model, BudgetStopping(1.0, 1e-5), Resets())
    assert model.optimizer.ledger.steps == 82
    assert all(isinstance(line.event, GaussianEvent) for line in model.optimizer.ledger)


def test_a_renyi_budget_keeps_its_order_whatever_changes():
    model = model_with(2.0)
    stop = lambda: BudgetStopping(2.0, 1e-5, "rdp")  # noqa: E731
    fit(model, stop(), epochs=2)
    model.optimizer.mechanism.noise_multiplier = 6.0
    fit(model, stop(), batch_size=400, epochs=200)
    (record,) = model.optimizer.fits
    (budget,) = record.budgets
    assert record.fits == 2
    slow, fast = (line.steps for line in model.optimizer.ledger)
    counted = lambda more: spent((0.05, 2.0, slow), (0.4, 6.0, more), accountant=lambda: RdpAccountant([budget.order]))  # noqa: E731
    assert counted(fast) <= 2.0 < counted(fast + 1)
