"""Training ends exactly at the budget: the last step fits, one more does not, by dp-accounting's own count."""

import csv
import itertools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import tfdp
from tests.callbacks.runs import SIZE, X, Y, fit, model_with, spent
from tests.optimizers import tiny
from tfdp.accounting import FullBatch
from tfdp.callbacks import BudgetStopping

SETTINGS = {
    "ends in the middle of an epoch": (2.0, 50, 1.0),
    "ends in the first epoch": (2.0, 50, 0.4),
    "small lots": (1.0, 5, 1.0),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_last_step_fits_and_one_more_does_not(name):
    noise, batch_size, target = SETTINGS[name]
    model = model_with(noise)
    fit(model, BudgetStopping(target, 1e-5), batch_size=batch_size)
    steps = model.optimizer.ledger.steps
    assert spent((batch_size / SIZE, noise, steps)) <= target < spent((batch_size / SIZE, noise, steps + 1))


@pytest.mark.parametrize("accountant", ["rdp", "moments", "gdp"])
def test_another_accountant_counts_by_its_own_epsilon(accountant):
    model = model_with()
    history = fit(model, BudgetStopping(1.0, 1e-5, accountant))
    ledger, line = model.optimizer.ledger, model.optimizer.ledger.lines[0]
    one_more = ledger.record(line.event, line.sampling, 1)
    within = tfdp.accounting.epsilon(ledger, delta=1e-5, accountant=accountant)
    assert within <= 1.0 < tfdp.accounting.epsilon(one_more, delta=1e-5, accountant=accountant)
    assert history.history["epsilon"][-1] == pytest.approx(within, rel=1e-9)


EXECUTION = {
    "step by step": {},
    "four steps at once": {"steps_per_execution": 4},
    "seven steps at once": {"steps_per_execution": 7},
    "more steps at once than an epoch has": {"steps_per_execution": 64},
    "XLA": {"jit_compile": True},
    "eager": {"run_eagerly": True},
}


@pytest.mark.parametrize("name", EXECUTION)
def test_however_steps_are_run_weights_move_so_often_and_no_more(name):
    model = model_with(**EXECUTION[name])
    fit(model, BudgetStopping(1.0, 1e-5))
    assert int(model.optimizer.iterations) == model.optimizer.ledger.steps == 82


def test_eighty_two_steps_are_right_in_the_tests_here():
    assert spent((0.05, 2.0, 82)) <= 1.0 < spent((0.05, 2.0, 83))


class NeverStops(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = False


def test_a_callback_that_trains_on_gets_nothing_out_of_it():
    model = model_with()
    seen = []
    watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(model.get_weights()))
    fit(model, BudgetStopping(0.9, 1e-5), NeverStops(), watch, epochs=8)
    assert model.optimizer.ledger.steps == int(model.optimizer.iterations) == 66
    for later in seen[4:]:
        tiny.assert_weights(model, later, rtol=0)


def test_a_spent_budget_means_no_step_at_all():
    model = model_with()
    fit(model, BudgetStopping(1.0, 1e-5))
    with tiny.nothing_moves(model):
        history = fit(model, BudgetStopping(1.0, 1e-5), epochs=3)
    assert len(history.epoch) == 1
    assert np.isnan(history.history["loss"]).all()
    assert history.history["epsilon"] == [pytest.approx(spent((0.05, 2.0, 82)), rel=1e-6)]


def test_a_budget_that_does_not_bind_changes_nothing(capsys):
    model = model_with()
    stop = BudgetStopping(100.0, 1e-5)
    history = fit(model, stop, epochs=2)
    assert len(history.epoch) == 2
    assert model.optimizer.ledger.steps == 40
    assert stop.stopped_because is None
    assert capsys.readouterr().out == ""


def test_of_two_budgets_the_one_that_is_spent_first_ends_training():
    model = model_with()
    wide, narrow = BudgetStopping(1.0, 1e-5, verbose=0), BudgetStopping(0.9, 1e-5, verbose=0)
    fit(model, wide, narrow)
    assert model.optimizer.ledger.steps == 66
    assert wide.stopped_because is None
    assert "epsilon 0.9" in narrow.stopped_because


def test_a_pass_of_a_declared_dataset_is_paid_for_as_a_whole():
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(100).repeat()
    declared = tfdp.data.declare_sampling(dataset, "shuffled", size=SIZE, batch_size=100)
    model = model_with(10.0)
    model.fit(declared, steps_per_epoch=7, epochs=50, verbose=0, callbacks=[BudgetStopping(1.0, 1e-5)])
    passes = next(n for n in itertools.count() if spent((1, 10.0, n + 1)) > 1.0)
    assert passes > 2
    assert model.optimizer.ledger.steps == passes * 10


def test_every_callback_sees_epsilon_wherever_it_stands(tmp_path):
    model = model_with()
    logger, stop = keras.callbacks.CSVLogger(tmp_path / "log.csv"), BudgetStopping(0.7, 1e-5)
    history = fit(model, logger, stop)
    written = [float(row["epsilon"]) for row in csv.DictReader((tmp_path / "log.csv").open())]
    steps = [20, model.optimizer.ledger.steps]
    np.testing.assert_allclose(written, [spent((0.05, 2.0, n)) for n in steps], rtol=1e-6)
    assert history.history["epsilon"] == written


def test_callbacks_in_a_list_of_keras_stay_as_they_were():
    model = model_with()
    stop = BudgetStopping(0.7, 1e-5)
    callbacks = keras.callbacks.CallbackList([keras.callbacks.TerminateOnNaN(), stop], add_history=True, model=model)
    before = set(callbacks.callbacks)
    model.fit(X, Y, batch_size=50, epochs=20, verbose=0, callbacks=callbacks)
    steps = model.optimizer.ledger.steps
    assert spent((0.05, 2.0, steps)) <= 0.7 < spent((0.05, 2.0, steps + 1))
    assert set(callbacks.callbacks) == before


def test_it_says_in_one_line_why_it_stopped(capsys):
    model = model_with()
    stop = BudgetStopping(1.0, 1e-5)
    fit(model, stop)
    said = "ended after 82 of 1000 planned steps: one more would cost more than epsilon 1 at delta 1e-05, pld."
    assert stop.stopped_because == said
    assert capsys.readouterr().out == f"BudgetStopping: {said}\n"
    fit(model, BudgetStopping(0.5, 1e-5, verbose=0))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [(tiny.noiseless, "noise_multiplier is 0"), (lambda: tiny.noisy(noise_seed=1), "noise_seed was given")],
)
def test_without_secret_noise_no_step_keeps_to_a_budget(optimizer, reason):
    model, stop = tiny.private(optimizer()), BudgetStopping(8.0, 1e-5)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=f"Nothing was trained.*{reason}"):
        tiny.train(model, callbacks=[stop])


def test_a_budget_too_small_for_the_first_step_is_refused_with_what_that_costs():
    model = model_with()
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="not one step fits") as refused:
        fit(model, BudgetStopping(0.01, 1e-5))
    cost = float(re.search(r"alone costs (\d+\.\d+)\.", str(refused.value)).group(1))
    assert spent((0.05, 2.0, 1)) <= cost <= 1.01 * spent((0.05, 2.0, 1))
    fit(model, BudgetStopping(1.0, 1e-5))  # the refused fit left nothing behind
    assert model.optimizer.ledger.steps == 82
    fit(model, BudgetStopping(1.0, 1e-5))  # what was spent by a run is no error
    assert model.optimizer.ledger.steps == 82


def test_an_ordinary_model_has_no_budget():
    model = tiny.linear()
    model.compile(optimizer="sgd", loss="mse")
    before = model.get_weights()
    with pytest.raises(ValueError, match="compiled with a private optimizer"):
        fit(model, BudgetStopping(1.0, 1e-5))
    tiny.assert_weights(model, before, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1e-5), "target_epsilon must be positive"),
        ((float("nan"), 1e-5), "target_epsilon must be a finite number"),
        ((1.0, 0.0), "delta must lie strictly between 0 and 1"),
        ((1.0, 1e-5, "zcdp"), "accountant must be one of"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        BudgetStopping(*arguments)


def test_no_epoch_no_step():
    model = model_with()
    fit(model, BudgetStopping(1.0, 1e-5), epochs=3, initial_epoch=3)
    assert model.optimizer.ledger.steps == 0


def test_a_full_batch_is_priced_without_sampling():
    model = model_with(30.0)
    fit(model, BudgetStopping(0.2, 1e-5), batch_size=SIZE, epochs=100)
    (line,) = model.optimizer.ledger
    assert line.sampling == FullBatch(SIZE)
    assert spent((1, 30.0, line.steps)) <= 0.2 < spent((1, 30.0, line.steps + 1))


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize(("every", "target"), [(None, 1.0), (7, 0.8), (1, 0.6)])
def test_full_gradients_are_within_the_budget_too(every, target, accountant):
    noise = {"noise_multiplier": 2.0, "direction_noise_multiplier": 40.0, "direction_steps": every}
    optimizer = tfdp.DirectionalDPSGD(0.1, l2_norm_clip=1.0, direction="full_gradient", **noise)
    model = tiny.private(optimizer)
    fit(model, BudgetStopping(target, 1e-5, accountant))
    counted = {type(line.sampling): line.steps for line in model.optimizer.ledger}
    steps, full = counted.get(tfdp.accounting.Poisson, 0), counted.get(FullBatch, 0)
    every = 20 if every is None else every

    def cost(steps):
        order = [budget.order for record in optimizer.fits for budget in record.budgets]
        by = (lambda: RdpAccountant(order)) if accountant == "rdp" and order else PLDAccountant
        return spent((0.05, 2.0, steps), (1, 40.0, -(-steps // every)), accountant=by)

    assert full == -(-steps // every)
    assert int(optimizer.iterations) == steps
    assert cost(steps) <= target
    assert cost(steps + 1) > target * (1 - 1e-3)


def test_a_budget_below_the_first_full_gradient_is_refused():
    noise = {"noise_multiplier": 2.0, "direction_noise_multiplier": 40.0}
    model = tiny.private(tfdp.DirectionalDPSGD(0.1, l2_norm_clip=1.0, direction="full_gradient", **noise))
    before = model.get_weights()
    with pytest.raises(ValueError, match="not one step fits"):
        fit(model, BudgetStopping(0.05, 1e-5))
    assert model.optimizer.ledger.steps == 0
    np.testing.assert_array_equal(model.get_weights()[0], before[0])
