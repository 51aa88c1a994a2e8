"""Whole runs of EncodedDPSGD and EncodedDPAdam: budgets, interruptions, physical batches, XLA.

Where privacy is counted the noise is Gaussian: then codewords have norm 1, and dp-accounting knows the price.
"""

import dp_accounting
import keras
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

import tfdp
from tests.optimizers import tiny
from tests.optimizers.test_encoded import FEW, MANY_X, MANY_Y, encoded, noiseless
from tfdp.accounting import EncodedEvent
from tfdp.mechanisms import EncodedMechanism
from tfdp.noise import Gaussian, Laplace

KINDS = [tfdp.EncodedDPSGD, tfdp.EncodedDPAdam]
ROWS = len(MANY_X)


def gaussian_epsilon(rate: float, noise: float, steps: int) -> float:
    """At delta 1e-5, by dp-accounting."""
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    return PLDAccountant().compose(event, steps).get_epsilon(1e-5)


def flat_weights(model: keras.Model) -> np.ndarray:
    return np.concatenate([np.ravel(w) for w in model.get_weights()])


def test_budget_stopping_takes_all_steps_that_fit_and_no_more():
    model = tiny.private(encoded(noise=Gaussian(2.0), denoise="ks"))
    stop = tfdp.callbacks.BudgetStopping(0.6, 1e-5)
    history = model.fit(MANY_X, MANY_Y, batch_size=20, epochs=20, verbose=0, callbacks=[stop])
    steps = model.optimizer.ledger.steps
    assert gaussian_epsilon(20 / ROWS, 2.0, steps) <= 0.6 < gaussian_epsilon(20 / ROWS, 2.0, steps + 1 + steps // 40)
    assert steps == int(model.optimizer.iterations) < 20 * ROWS / 20
    assert history.history["epsilon"][-1] <= 0.6


def test_a_target_by_loss_distributions_finds_the_size_of_the_noise():
    model = tiny.private(encoded(kind=tfdp.EncodedDPAdam, noise=Gaussian(1.0), target_epsilon=1.5, delta=1e-5, **FEW))
    model.fit(MANY_X, MANY_Y, batch_size=40, epochs=2, verbose=0)
    noise = model.optimizer.mechanism.noise_multiplier
    assert 1.47 < gaussian_epsilon(40 / ROWS, noise, model.optimizer.ledger.steps) <= 1.5
    assert tfdp.privacy_statement(model).epsilon <= 1.5


class Interrupted(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kind", KINDS)
def test_backup_and_restore_goes_on_with_the_same_line(kind, tmp_path):
    made = lambda: tiny.private(encoded(kind=kind, noise=Laplace(0.8), denoise="ks"))  # noqa: E731
    backup = lambda: keras.callbacks.BackupAndRestore(tmp_path / "backup")  # noqa: E731
    model, resumed, seen = made(), made(), []
    with pytest.raises(KeyboardInterrupt):
        tiny.train(model, epochs=4, callbacks=[backup(), Interrupted()])
    watch = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(flat_weights(resumed)))
    tiny.train(resumed, epochs=4, callbacks=[backup(), watch])
    np.testing.assert_array_equal(seen[0], flat_weights(model))
    (line,) = resumed.optimizer.ledger
    assert (line.event, line.steps) == (EncodedEvent(Laplace(0.8), resumed.optimizer.mechanism.codebook), 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_survives_saving_in_the_middle_of_its_run(kind, tmp_path):
    target = {"target_epsilon": 3.0, "delta": 1e-5, "accountant": "rdp", **FEW}
    model = tiny.private(encoded(kind=kind, **target))
    with pytest.raises(KeyboardInterrupt):
        model.fit(MANY_X, MANY_Y, batch_size=100, epochs=3, verbose=0, callbacks=[Interrupted()])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.fit(MANY_X, MANY_Y, batch_size=100, epochs=3, initial_epoch=2, verbose=0)
    (line,), (before,) = loaded.optimizer.ledger, model.optimizer.ledger
    assert (line.event, line.steps, before.steps) == (before.event, 12, 8)
    assert tfdp.accounting.epsilon(loaded.optimizer.ledger, delta=1e-5, accountant="rdp") <= 3.0


@pytest.mark.parametrize("kind", KINDS)
def test_physical_batches_under_xla_take_the_same_noiseless_steps(kind):
    plain = tiny.private(noiseless(kind=kind))
    parts = tiny.private(noiseless(kind=kind, max_physical_batch=3), jit_compile=True)
    for model in (plain, parts):
        tiny.train(model, steps=2)
    tiny.assert_weights(parts, plain.get_weights())


def test_physical_batches_of_whole_microbatches_change_nothing_to_the_last_bit():
    found = []
    for limit in (None, 2, 4):
        model = tiny.private(noiseless(microbatch_size=2, as_published=True, max_physical_batch=limit))
        tiny.train(model, steps=3)
        found.append(flat_weights(model))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_microbatches_are_not_cut_in_two_by_any_optimizer():
    mechanism = EncodedMechanism(1.0, 1.0, microbatch_size=4, as_published=True)
    with pytest.raises(ValueError, match="give a multiple of 4"):
        tfdp.PrivateOptimizer("sgd", mechanism, max_physical_batch=6)
    assert tfdp.PrivateOptimizer("sgd", mechanism, max_physical_batch=8).max_physical_batch == 8
