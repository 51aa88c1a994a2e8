"""target_epsilon: the first fit finds the noise, no fit spends more, and a run that goes on has the same noise."""

import dp_accounting
import keras
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import Ledger

SIZE = 400
X = np.random.default_rng(3).standard_normal((SIZE, 3)).astype("float32")
Y = np.random.default_rng(4).standard_normal((SIZE, 1)).astype("float32")
TARGET = {"l2_norm_clip": 1.0, "target_epsilon": 2.0, "delta": 1e-5}


def targeted(optimizer=tfdp.NoisySGD, model=None, **arguments) -> keras.Model:
    return tiny.private(optimizer(0.1, **TARGET | arguments), model=model)


def fit(model, **arguments):
    return model.fit(X, Y, **{"batch_size": 100, "epochs": 3, "verbose": 0} | arguments)


def spent(ledger: Ledger, accountant=PLDAccountant) -> float:
    """Of a ledger of Poisson lots, by dp-accounting driven directly."""
    counted = accountant()
    for line in ledger:
        gaussian = dp_accounting.GaussianDpEvent(line.event.noise_multiplier)
        counted.compose(dp_accounting.PoissonSampledDpEvent(line.sampling.sampling_rate, gaussian), line.steps)
    return counted.get_epsilon(1e-5)


@pytest.mark.parametrize("optimizer", [tfdp.NoisySGD, tfdp.NoisyAdam, tfdp.NoisyAdagrad])
def test_the_planned_steps_spend_the_target_and_no_more(optimizer):
    model = targeted(optimizer)
    fit(model)
    assert model.optimizer.ledger.steps == 12
    assert 0.995 * 2.0 <= spent(model.optimizer.ledger) <= 2.0


def test_any_optimizer_can_have_a_target():
    mechanism = tfdp.mechanisms.GaussianMechanism(1.0, None)
    inner = keras.optimizers.Lion(1e-3)
    model = tiny.private(tfdp.PrivateOptimizer(inner, mechanism, target_epsilon=1.0, delta=1e-5, accountant="rdp"))
    fit(model)
    assert 0.995 <= spent(model.optimizer.ledger, RdpAccountant) <= 1.0


def test_the_noise_that_was_found_is_the_noise_that_is_added():
    """Weights move by noise alone: the gradients of a constant loss are 0."""
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2000, use_bias=False)])
    model.compile(optimizer=tfdp.NoisySGD(1.0, **TARGET), loss=lambda y, p: keras.ops.zeros_like(p[:, 0]))
    before = model.get_weights()[0]
    model.fit(X, Y, batch_size=100, steps_per_epoch=1, verbose=0)
    (line,) = model.optimizer.ledger
    moved = (model.get_weights()[0] - before) * 100
    assert np.std(moved) == pytest.approx(line.event.noise_multiplier, rel=0.05)


def test_a_later_fit_that_would_exceed_it_raises_and_changes_nothing():
    model = targeted()
    fit(model)
    fits = model.optimizer.fits
    with (
        tiny.nothing_moves(model),
        pytest.raises(ValueError, match=r"plans 4 steps, of which 0 keep to target_epsilon=2 "),
    ):
        fit(model, epochs=1)
    assert model.optimizer.fits == fits


class Interrupts(keras.callbacks.Callback):
    def __init__(self, at_epoch, at_batch=None):
        super().__init__()
        self.at, self.epoch = (at_epoch, at_batch), None

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        if (epoch, None) == self.at:
            raise KeyboardInterrupt

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt


def test_what_an_interrupted_fit_left_may_be_spent_later():
    model = targeted()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[Interrupts(2)])
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="plans 8 steps, of which 4 keep"):
        fit(model, epochs=2)
    fit(model, epochs=1)
    (line,) = model.optimizer.ledger
    assert line.steps == 12
    assert spent(model.optimizer.ledger) <= 2.0


def test_before_the_first_step_a_new_plan_finds_new_noise():
    model = targeted()
    with pytest.raises(KeyboardInterrupt):
        fit(model, epochs=1, callbacks=[Interrupts(0)])
    assert model.optimizer.ledger.steps == 0
    fit(model, epochs=5)
    assert 0.995 * 2.0 <= spent(model.optimizer.ledger) <= 2.0


def test_another_lot_size_is_held_to_the_same_target():
    model = targeted()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[Interrupts(1)])
    with pytest.raises(ValueError, match="plans 2 steps, of which 1 keep"):
        fit(model, epochs=1, batch_size=200)
    fit(model, epochs=1, batch_size=200, steps_per_epoch=1)
    assert spent(model.optimizer.ledger) <= 2.0


def test_what_an_earlier_optimizer_spent_counts():
    model = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=2.0))
    fit(model, epochs=1)
    targeted(model=model)
    fit(model)
    assert [line.steps for line in model.optimizer.ledger] == [4, 12]
    assert 0.995 * 2.0 <= spent(model.optimizer.ledger) <= 2.0


def test_a_target_that_is_spent_already_raises():
    model = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=0.5))
    fit(model)
    targeted(model=model)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="already spent"):
        fit(model)


def saved_as_keras(model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


def saved_as_weights(model, folder):
    model.save_weights(folder / "model.weights.h5")
    other = targeted()
    other.optimizer.build(other.trainable_variables)
    other.load_weights(folder / "model.weights.h5")
    return other


@pytest.mark.parametrize("reload", [saved_as_keras, saved_as_weights])
def test_a_loaded_model_goes_on_with_the_same_noise_to_the_same_end(tmp_path, reload):
    model = targeted()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[Interrupts(1)])
    loaded = reload(model, tmp_path)
    fit(loaded, initial_epoch=1)
    (line,) = loaded.optimizer.ledger
    assert line.steps == 12
    assert line.event == model.optimizer.ledger.lines[0].event
    with pytest.raises(ValueError, match="of which 0 keep"):
        fit(loaded, epochs=1)


@pytest.mark.parametrize("save_freq", ["epoch", 1])
def test_a_run_that_was_broken_off_in_an_epoch_takes_the_planned_steps_and_no_more(tmp_path, save_freq):
    backup = lambda: keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=save_freq)  # noqa: E731
    model = targeted()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[backup(), Interrupts(1, 1)])
    resumed = targeted()
    fit(resumed, callbacks=[backup()])
    (line,) = resumed.optimizer.ledger
    assert line.event == model.optimizer.ledger.lines[0].event
    assert line.steps == int(resumed.optimizer.iterations) == 12
    assert spent(resumed.optimizer.ledger) <= 2.0


def test_its_settings_survive_a_round_trip():
    optimizer = tfdp.NoisyAdam(0.1, **TARGET, accountant="rdp")
    model = tiny.private(optimizer)
    fit(model, epochs=1)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert copy.budget == optimizer.budget
    assert copy.get_config() == optimizer.get_config()
    assert copy.mechanism.noise_multiplier is None


def test_noise_without_a_target_keeps_its_noise():
    copy = tfdp.NoisyAdam.from_config(tfdp.NoisyAdam(0.1, l2_norm_clip=1.0, noise_multiplier=1.25).get_config())
    assert copy.mechanism.noise_multiplier == 1.25
    assert copy.budget is None
