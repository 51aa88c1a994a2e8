"""When full gradients are released, what the ledger says of them, and how a target is shared."""

import keras
import pytest
import tensorflow as tf
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import tfdp
from tests.optimizers import tiny
from tests.optimizers.full_gradients import BATCH, SIZE, X, Y, counts, direction_of, fit, full, spent
from tests.optimizers.test_target_epsilon import Interrupts
from tfdp.accounting import FullBatch, GaussianEvent, NotPrivateEvent, Poisson
from tfdp.optimizers.full_pass import FullPass


@pytest.mark.parametrize(
    ("every", "epochs", "expected"),
    [(None, 3, [3, 15]), (1, 1, [5, 5]), (4, 3, [4, 15]), (100, 3, [1, 15]), (7, 3, [3, 15])],
)
def test_the_ledger_has_a_line_for_steps_and_one_for_full_gradients(every, epochs, expected):
    model = tiny.private(full(direction_steps=every))
    fit(model, epochs=epochs)
    assert counts(model) == expected
    assert {(line.event, line.sampling) for line in model.optimizer.ledger} == {
        (GaussianEvent(3.0), Poisson(BATCH / SIZE, SIZE)),
        (GaussianEvent(20.0), FullBatch(SIZE)),
    }
    assert int(model.optimizer.iterations) == expected[1]


def test_no_step_is_taken_before_a_release_that_is_due(monkeypatch):
    monkeypatch.setattr(FullPass, "release", lambda self: None)
    model = tiny.private(full())
    model.optimizer.build(model.trainable_variables)
    with tiny.nothing_moves(model):
        fit(model)
    assert counts(model) == [0, 0]


def test_between_two_of_them_it_stays():
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(direction_of(self.model).tobytes())

    model = tiny.private(full(direction_steps=4))
    fit(model, callbacks=[Watch()])
    assert len(seen) == 10
    assert [seen.index(one) for one in seen] == [0] * 4 + [4] * 4 + [8] * 2


def test_the_schedule_goes_on_over_several_fits():
    model = tiny.private(full(direction_steps=4))
    found = []
    for _ in range(4):
        fit(model, epochs=1)
        found.append(counts(model))
    assert found == [[2, 5], [3, 10], [4, 15], [5, 20]]
    assert tfdp.privacy_statement(model, 1e-5).epsilon == pytest.approx(spent(model.optimizer.ledger), rel=1e-3)


def test_a_ledger_of_one_schedule_is_proven_without_a_word():
    model = tiny.private(full())
    fit(model)
    statement = tfdp.privacy_statement(model, delta=1e-5)
    assert spent(model.optimizer.ledger) <= statement.epsilon * (1 + 1e-6)
    assert statement.epsilon == pytest.approx(spent(model.optimizer.ledger), rel=1e-3)
    assert "2 releases between the steps" in " ".join(str(statement).split())


@pytest.mark.parametrize("change", ["steps' noise", "lot size", "schedule"])
def test_another_plan_in_a_later_fit_is_not(change):
    model = tiny.private(full())
    fit(model)
    if change == "steps' noise":
        model.optimizer.mechanism.noise_multiplier = 4.0
    if change == "schedule":
        model.optimizer.mechanism.full_gradient.every = 3
    fit(model, batch_size=50 if change == "lot size" else BATCH)
    assert tfdp.privacy_statement(model, delta=1e-5).epsilon is None
    assert tfdp.privacy_statement(model, delta=1e-5, settings_fixed_beforehand=True).epsilon is not None


def test_a_pass_that_was_interrupted_released_nothing_and_is_made_up_for():
    class Broken:
        def __init__(self):
            self.reads = 0

        def __len__(self):
            return SIZE

        def __getitem__(self, i):
            self.reads += 1
            if self.breaks and i == 60:
                raise RuntimeError("disk")
            return {"x": X[i], "y": Y[i]}

    source, model = Broken(), tiny.private(full(max_physical_batch=10))
    model.optimizer.build(model.trainable_variables)
    source.breaks = True
    with tiny.nothing_moves(model), pytest.raises(tf.errors.OpError, match="disk"):
        fit(model, source, None)
    source.breaks = False
    fit(model, source, None)
    assert counts(model) == [2, 10]


def test_noise_that_is_known_protects_nothing():
    model = tiny.private(full(noise_seed=1))
    fit(model)
    assert all(isinstance(line.event, NotPrivateEvent) for line in model.optimizer.ledger)
    assert counts(model) == [2, 10]


@pytest.mark.parametrize("every", [None, 3])
@pytest.mark.parametrize(("share", "accountant"), [(1 / 8, "pld"), (1 / 8, "rdp"), (1 / 3, "pld")])
def test_full_gradients_cost_their_share_and_all_together_the_target(every, share, accountant):
    target = {"target_epsilon": 2.0, "delta": 1e-5, "accountant": accountant}
    model = tiny.private(
        full(**target, direction_budget=share, direction_steps=every, optimizer=tfdp.DirectionalDPAdam)
    )
    fit(model, epochs=3)
    counted = {"pld": PLDAccountant, "rdp": RdpAccountant}[accountant]
    assert counts(model) == [3 if every is None else 5, 15]
    assert 0.995 * 2.0 <= spent(model.optimizer.ledger, counted) <= 2.0
    alone = spent(model.optimizer.ledger, counted, only=FullBatch)  # which dp-accounting rounds up by up to 4e-8
    assert 0.99 * share * 2.0 < alone <= share * 2.0 * (1 + 1e-6)
    assert 0 < tfdp.privacy_statement(model).epsilon <= 2.0


def test_after_the_plan_nothing_is_released_any_more():
    model = tiny.private(full(target_epsilon=2.0, delta=1e-5))
    fit(model)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="of which 0 keep"):
        fit(model, epochs=1)


@pytest.mark.parametrize("save_freq", ["epoch", 1, 2])
def test_a_run_that_was_broken_off_takes_what_was_planned_and_no_more(tmp_path, save_freq):
    backup = lambda: keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=save_freq)  # noqa: E731
    target = {"target_epsilon": 2.0, "delta": 1e-5, "direction_steps": 4}
    model = tiny.private(full(**target))
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[backup(), Interrupts(1, 1)])
    resumed = tiny.private(full(**target))
    fit(resumed, callbacks=[backup()])
    assert counts(resumed) == [3, 10]
    events = [line.event for line in resumed.optimizer.ledger]
    assert events == [line.event for line in model.optimizer.ledger]
    assert 0.995 * 2.0 <= spent(resumed.optimizer.ledger) <= 2.0
    assert 0 < tfdp.privacy_statement(resumed).epsilon <= 2.0


def test_the_noise_that_was_found_is_not_part_of_the_settings():
    model = tiny.private(full(target_epsilon=2.0, delta=1e-5, direction_steps=4))
    fit(model)
    config = model.optimizer.get_config()
    assert (config["noise_multiplier"], config["direction_noise_multiplier"]) == (None, None)
    copy = tfdp.DirectionalDPSGD.from_config(config)
    assert copy.mechanism.full_gradient.every == 4
    assert copy.get_config() == config
