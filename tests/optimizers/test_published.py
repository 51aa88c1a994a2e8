"""as_published=True through fit: the noise, the claim and the plan."""

import math

import dp_accounting
import keras
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

import tfdp
from tests.optimizers import tiny
from tests.optimizers.test_directional import assert_same, state_of, twice_for_kernels
from tests.optimizers.test_target_epsilon import Interrupts, fit
from tfdp.accounting import FullBatch, GaussianEvent, Status
from tfdp.accounting.published import published_noise_multiplier

TARGET = {"as_published": True, "target_epsilon": 2.0, "delta": 1e-5}
ARRAYS = [np.array([[1.0], [3.0], [0.5]]), np.ones(1)]


def published(direction="ones", kind=tfdp.DirectionalDPSGD, **arguments) -> keras.Model:
    return tiny.private(kind(0.1, l2_norm_clip=1.0, direction=direction, **TARGET | arguments))


def noise_of_plan(steps=12):
    return published_noise_multiplier(2.0, 1e-5, 100 / 400, steps)


@pytest.mark.parametrize("kind", [tfdp.DirectionalDPSGD, tfdp.DirectionalDPAdam])
def test_the_ledger_holds_the_claim_and_the_noise_that_was_known_beforehand(kind):
    model = published(kind=kind)
    fit(model)
    (line,) = model.optimizer.ledger
    assert (line.steps, line.event.claimed_epsilon, line.event.claimed_delta) == (12, 2.0, 1e-5)
    assert line.event.noise_multiplier == pytest.approx(noise_of_plan(), rel=1e-12)


@pytest.mark.parametrize("direction", ["ones", "arrays"])
def test_the_noise_that_was_found_is_the_noise_that_is_added(direction):
    """Weights move by noise alone: the gradients of a constant loss are 0."""
    w = np.linspace(1, 5, 3)[:, None] * np.ones((3, 2000)) if direction == "arrays" else np.ones((3, 2000))
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2000, use_bias=False)])
    given = [w] if direction == "arrays" else "ones"
    optimizer = tfdp.DirectionalDPSGD(1.0, l2_norm_clip=1.0, direction=given, **TARGET)
    model.compile(optimizer=optimizer, loss=lambda y, p: keras.ops.zeros_like(p[:, 0]))
    before = model.get_weights()[0]
    fit(model, epochs=1, steps_per_epoch=1)
    u = w / np.linalg.norm(w)
    sigma = noise_of_plan(1) * np.cbrt(u) * math.sqrt(np.sum(u ** (4 / 3)))
    moved = (model.get_weights()[0] - before) * 100 / sigma
    np.testing.assert_allclose(np.std(moved, axis=1), 1, rtol=0.08)
    (line,) = model.optimizer.ledger
    assert line.event.noise_multiplier == pytest.approx(sigma.min(), rel=1e-4)


def test_the_statement_has_both_claims_and_the_reason():
    model = published()
    fit(model)
    statement = tfdp.privacy_statement(model)
    (claim,) = [c for c in statement.claims if c.status is Status.AS_PUBLISHED and c.delta == 1e-5]
    assert claim.epsilon == 2.0
    assert "epsilon / q" in claim.reasons[0]
    assert statement.best.status is Status.PROVEN
    same = tfdp.accounting.Ledger.poisson(sampling_rate=0.25, noise_multiplier=noise_of_plan(), steps=12)
    assert statement.epsilon == pytest.approx(tfdp.accounting.epsilon(same, delta=1e-5), rel=1e-6)


def test_the_realised_worst_case_is_a_diagnostic_of_the_mechanism():
    model = published(ARRAYS)
    fit(model)
    mechanism, state = model.optimizer.mechanism, model.optimizer.state_of_mechanism
    u = np.array([1, 3, 0.5, 1]) / np.linalg.norm([1, 3, 0.5, 1])
    sigma = noise_of_plan() * np.cbrt(u) * math.sqrt(np.sum(u ** (4 / 3)))
    assert mechanism.realised_worst_case_mu(state) == pytest.approx(1 / sigma.min(), rel=1e-4)
    assert mechanism.realised_worst_case_mu(state) > 1 / noise_of_plan()


def test_steps_beyond_the_plan_are_refused():
    model = published()
    fit(model)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=r"plans 4 steps, of which 0 are left of those"):
        fit(model, epochs=1)


def test_what_an_interrupted_fit_left_may_be_taken_later():
    model = published()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[Interrupts(2)])
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="plans 8 steps, of which 4 are left"):
        fit(model, epochs=2)
    fit(model, epochs=1)
    (line,) = model.optimizer.ledger
    assert line.steps == 12


@pytest.mark.parametrize("direction", ["ones", ARRAYS, twice_for_kernels], ids=["ones", "arrays", "function"])
def test_a_loaded_model_goes_on_with_the_same_noise_to_the_same_end(tmp_path, direction):
    model = published(direction, sigma_floor=0.5)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[Interrupts(1)])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.mechanism.sigma_floor == 0.5
    assert_same(state_of(loaded.optimizer), state_of(model.optimizer))
    fit(loaded, initial_epoch=1)
    (line,) = loaded.optimizer.ledger
    assert line.steps == 12
    assert line.event == model.optimizer.ledger.lines[0].event
    with pytest.raises(ValueError, match="of which 0 are left"):
        fit(loaded, epochs=1)


def test_a_run_that_was_broken_off_in_an_epoch_takes_the_planned_steps_and_no_more(tmp_path):
    backup = lambda: keras.callbacks.BackupAndRestore(tmp_path / "backup", save_freq=1)  # noqa: E731
    model = published()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[backup(), Interrupts(1, 1)])
    resumed = published()
    fit(resumed, callbacks=[backup()])
    (line,) = resumed.optimizer.ledger
    assert line.event == model.optimizer.ledger.lines[0].event
    assert line.steps == int(resumed.optimizer.iterations) == 12


def test_shuffled_batches_are_refused_before_anything_moved():
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((tiny.X, tiny.Y)).shuffle(8).batch(4)
    declared = tfdp.data.declare_sampling(dataset, "shuffled", size=8, batch_size=4)
    model = published()
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="not Shuffled sampling"):
        model.fit(declared, epochs=1, verbose=0)


@pytest.mark.parametrize(
    "direction, pruning_ratio", [("ones", 0.0), (ARRAYS, 0.0), (twice_for_kernels, 0.0), ("ones", 0.5)]
)
def test_config_round_trips(direction, pruning_ratio):
    optimizer = published(direction, pruning_ratio=pruning_ratio).optimizer
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again.mechanism) is type(optimizer.mechanism)
    assert again.budget == optimizer.budget
    assert again.mechanism.target_epsilon == 2.0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"noise_multiplier": 1.0}, "no noise_multiplier="),
        ({"noise_multiplier": 1.0, "target_epsilon": None, "delta": None}, "give target_epsilon= and delta="),
        ({"target_epsilon": None}, "give target_epsilon= and delta="),
        ({"delta": None}, "give target_epsilon= and delta="),
        ({"accountant": "rdp"}, "no accountant"),
        ({"direction": "noisy_gradient"}, "direction with as_published=True must be 'full_gradient', 'ones'"),
        ({"direction_noise_multiplier": 1.0}, "and direction_noise_multiplier="),
        ({"direction_budget": 0.5}, "direction_budget= goes with direction='full_gradient'"),
        ({"direction": "full_gradient", "direction_budget": 1.0}, "between 0 and 1"),
        ({"direction": "full_gradient", "direction_steps": 3}, "direction_steps= goes with"),
        ({"s_min": 0.5}, "s_min= goes with plain directional noise or .*, not with as_published=True: leave it out"),
        ({"decay": 0.5}, "decay= goes with"),
        ({"pruning": "support", "pruning_ratio": 0.5}, "is not of the paper"),
        ({"pruning_ratio": 0.5, "sigma_floor": 1.0}, "sigma_floor= goes with as_published=True, not with"),
        ({"as_published": 1}, "True or False"),
        ({"noise_seed": 3}, "noise_seed=3 can't go with target_epsilon"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message):
    with pytest.raises(ValueError, match=message):
        published(**arguments)


def test_the_default_direction_is_the_papers():
    optimizer = tfdp.DirectionalDPSGD(0.1, l2_norm_clip=1.0, **TARGET)
    assert optimizer.mechanism.direction == "full_gradient"
    assert optimizer.mechanism.full_gradient.share == 1 / 8
    copy = tfdp.DirectionalDPSGD.from_config(optimizer.get_config())
    assert copy.mechanism.full_gradient.share == 1 / 8


@pytest.mark.parametrize("share", [1 / 8, 1 / 3])
def test_of_the_full_version_both_releases_are_in_the_ledger(share):
    model = published("full_gradient", direction_budget=share)
    fit(model)
    releases, steps = model.optimizer.ledger
    assert (releases.steps, steps.steps) == (12, 12)
    paid = published_noise_multiplier(share * 2.0, share * 1e-5, 1.0, 12)
    assert releases.event == GaussianEvent(paid / 2)  # a clipped mean moves by 2 clips
    assert isinstance(releases.sampling, FullBatch)
    assert steps.event.noise_multiplier is None
    left = published_noise_multiplier((1 - share) * 2.0, (1 - share) * 1e-5, 0.25, 12)
    assert model.optimizer.mechanism.noise_multiplier == pytest.approx(left, rel=1e-12)
    statement = tfdp.privacy_statement(model)
    assert statement.epsilon is None
    (claim,) = [c for c in statement.claims if c.status is Status.AS_PUBLISHED]
    assert (claim.epsilon, len(claim.reasons)) == (2.0, 1)  # about all of it
    assert 0 < model.optimizer.mechanism.realised_worst_case_mu(model.optimizer.state_of_mechanism) < math.inf


def test_with_a_floor_the_full_version_is_proven():
    model = published("full_gradient", sigma_floor=1.5)
    fit(model)
    statement = tfdp.privacy_statement(model)
    accountant = PLDAccountant()
    paid = published_noise_multiplier(2.0 / 8, 1e-5 / 8, 1.0, 12)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.25, dp_accounting.GaussianDpEvent(1.5)), 12)
    accountant.compose(dp_accounting.GaussianDpEvent(paid / 2), 12)
    assert statement.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)
    assert statement.best.status is Status.PROVEN


def test_w_is_the_clipped_mean_of_all_gradients_with_its_noise():
    """At a learning rate of 0, so that all of them are of the same weights."""
    x, y, found = np.repeat(tiny.X, 50, axis=0), np.repeat(tiny.Y, 50, axis=0), []
    optimizer = tfdp.DirectionalDPSGD(0.0, l2_norm_clip=1.0, direction="full_gradient", **TARGET)
    model = tiny.private(optimizer)
    mean = tiny.clipped_gradients(model.get_weights(), x, y, clip=np.inf).mean(0)

    def look(batch, logs):
        found.append(np.concatenate([np.ravel(w) for w in optimizer.state_of_mechanism["importance"]]))

    watch = keras.callbacks.LambdaCallback(on_train_batch_end=look)
    model.fit(x, y, batch_size=100, steps_per_epoch=40, verbose=0, callbacks=[watch])
    expected = mean / max(1, np.linalg.norm(mean))
    sigma = published_noise_multiplier(2.0 / 8, 1e-5 / 8, 1.0, 40)
    assert np.all(np.abs(np.mean(found, 0) - expected) <= 5 * sigma / np.sqrt(40))
    assert np.std(found - expected) == pytest.approx(sigma, rel=0.3)


@pytest.mark.parametrize("arguments", [{"jit_compile": True}, {"run_eagerly": True}, {}], ids=["XLA", "eager", "parts"])
def test_however_it_is_run_the_full_version_counts_all_its_releases(arguments):
    parts = {} if arguments else {"max_physical_batch": 30}
    optimizer = tfdp.DirectionalDPSGD(0.1, l2_norm_clip=1.0, pruning_ratio=0.5, **parts, **TARGET)
    model = tiny.private(optimizer, **arguments)
    before = model.get_weights()[0]
    fit(model, epochs=1)
    assert [line.steps for line in optimizer.ledger] == [4, 4]
    assert np.all(np.isfinite(model.get_weights()[0])) and np.any(model.get_weights()[0] != before)


def test_a_run_of_the_full_version_goes_on_where_it_was_broken_off(tmp_path):
    model = published("full_gradient")
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[Interrupts(1)])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    fit(loaded, initial_epoch=1)
    assert [line.steps for line in loaded.optimizer.ledger] == [12, 12]
    assert [line.event for line in loaded.optimizer.ledger] == [line.event for line in model.optimizer.ledger]
    with pytest.raises(ValueError, match="of which 0 are left"):
        fit(loaded, epochs=1)


def test_around_any_optimizer_the_target_is_said_twice():
    mechanism = tfdp.mechanisms.PublishedMechanism(1.0, target_epsilon=2.0, delta=1e-5, direction="ones")
    with pytest.raises(ValueError, match="target_epsilon=2 and delta=1e-05"):
        tfdp.PrivateOptimizer("lion", mechanism, target_epsilon=3.0, delta=1e-5)
    model = tiny.private(tfdp.PrivateOptimizer("lion", mechanism, target_epsilon=2.0, delta=1e-5))
    fit(model)
    assert model.optimizer.ledger.steps == 12


def test_noise_of_public_importances_stays_whatever_becomes_of_the_optimizers_variables():
    """What was proven before the first step holds for the last one."""

    class Zeroes(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            for variable in self.model.optimizer.variables:
                if variable.dtype == "float32" and len(variable.shape) > 0:
                    variable.assign(np.zeros(variable.shape, "f4"))
            seen.append(self.model.get_weights()[0])

    seen: list = []
    model = tiny.linear()
    optimizer = tfdp.DirectionalDPSGD(
        0.1,
        l2_norm_clip=1.0,
        target_epsilon=1.0,
        delta=1e-5,
        as_published=True,
        direction=[np.ones((3, 1)), np.ones(1)],
    )
    model.compile(optimizer=optimizer, loss=lambda y, p: keras.ops.zeros_like(p[:, 0]))
    tiny.train(model, steps=4, batch_size=4, callbacks=[Zeroes()])
    moved = [np.abs(after - before) for before, after in zip(seen, [*seen[1:], model.get_weights()[0]], strict=True)]
    assert all((step > 0).all() for step in moved)


def test_a_mechanism_put_in_later_has_to_keep_the_target_too():
    model = tiny.linear()
    optimizer = tfdp.NoisySGD(0.1, l2_norm_clip=1.0, target_epsilon=1.0, delta=1e-5)
    model.compile(optimizer=optimizer, loss="mse")
    optimizer.mechanism = tfdp.mechanisms.PublishedMechanism(1.0, target_epsilon=100.0, delta=1e-5, direction="ones")
    with pytest.raises(ValueError, match="target_epsilon=100"):
        tiny.train(model, steps=2)
