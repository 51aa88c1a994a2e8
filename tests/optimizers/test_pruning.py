"""Pruned gradients through fit: what they cost, remember and save."""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tests.optimizers.test_directional import FEATURES, assert_same, directional, state_of
from tests.optimizers.test_published import published
from tests.optimizers.test_target_epsilon import Interrupts, fit

X = tiny.X * FEATURES
FORMS = {
    "compress": {"pruning_ratio": 0.5},
    "support": {"pruning_ratio": 0.5, "pruning": "support", "support_steps": 3},
    "random": {"pruning_ratio": 0.5, "pruning": "random", "support_steps": 3},
    "support, isotropic": {"pruning_ratio": 0.5, "pruning": "support", "support_steps": 3, "s_min": 1.0, "s_max": 1.0},
}


@pytest.mark.parametrize("form", FORMS)
def test_it_costs_what_noisy_sgd_costs(form):
    ledgers = []
    for optimizer in (directional(noise_multiplier=1.1, **FORMS[form]), tiny.noisy()):
        optimizer.mechanism.noise_multiplier = 1.1
        model = tiny.private(optimizer)
        tiny.train(model, steps=7)
        ledgers.append(optimizer.ledger)
    assert ledgers[0] == ledgers[1]


@pytest.mark.parametrize("how", ["plain", "in parts", "by XLA", "eagerly"])
@pytest.mark.parametrize("form", FORMS)
def test_however_a_lot_is_run_steps_are_the_same(form, how):
    arguments = FORMS[form]
    expected = tiny.private(directional(**arguments))
    tiny.train(expected, X, steps=5)
    model = tiny.private(
        directional(**arguments, **({"max_physical_batch": 3} if how == "in parts" else {})),
        jit_compile=how == "by XLA",
        run_eagerly=how == "eagerly",
    )
    tiny.train(model, X, steps=5)
    tiny.assert_weights(model, expected.get_weights(), rtol=1e-4)


@pytest.mark.parametrize("form", ["compress", "support", "random"])
def test_it_goes_with_a_private_full_gradient(form):
    full = {"direction": "full_gradient", "direction_noise_multiplier": 20.0, "direction_steps": 3}
    model = tiny.private(directional(noise_multiplier=1.0, **FORMS[form], **full))
    tiny.train(model, X, steps=5)
    assert [line.steps for line in model.optimizer.ledger] == [2, 5]


def test_between_dense_steps_only_the_support_moves():
    model = tiny.private(directional(noise_multiplier=1.0, **FORMS["support"]))
    before = np.concatenate([np.ravel(w) for w in model.get_weights()])
    moved = []
    for _ in range(7):
        tiny.train(model, X)
        after = np.concatenate([np.ravel(w) for w in model.get_weights()])
        moved.append(np.count_nonzero(after != before))
        before = after
    assert moved == [4, 2, 2, 4, 2, 2, 4]


def test_compressed_steps_move_the_largest_coordinates():
    model = tiny.private(directional(noise_multiplier=1.0, pruning_ratio=0.5))
    before = model.get_weights()
    tiny.train(model, X)
    assert sum(np.count_nonzero(new != old) for new, old in zip(model.get_weights(), before, strict=True)) == 2


@pytest.mark.parametrize("form", FORMS)
def test_what_it_remembers_is_a_function_of_its_releases_alone(form):
    """Two data sets that release the same leave the same state and weights: here, nothing but the same noise."""
    states, weights = [], []
    for records in (tiny.X, 1000 * tiny.X):
        optimizer = directional(noise_multiplier=1.0, noise_seed=3, **FORMS[form])
        model = tiny.private(optimizer)
        tiny.train(model, records, steps=5, sample_weight=np.zeros(len(records)))
        states.append(state_of(optimizer))
        weights.append(model.get_weights())
    assert_same(*states)
    assert any(np.ptp(np.concatenate([np.ravel(v) for v in values])) > 0 for values in states[0].values())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("how", ["model", "weights", "checkpoint", "pickle"])
@pytest.mark.parametrize("form", FORMS)
def test_it_goes_on_where_it_was(form, how, tmp_path):
    straight = tiny.private(directional(**FORMS[form]))
    tiny.train(straight, X, steps=8)
    stopped = tiny.private(directional(**FORMS[form]))
    tiny.train(stopped, X, steps=4)
    if how == "model":
        stopped.save(tmp_path / "model.keras")
        resumed = keras.models.load_model(tmp_path / "model.keras")
    elif how == "pickle":
        resumed = pickle.loads(pickle.dumps(stopped))
    else:
        resumed = tiny.private(directional(**FORMS[form]))
        resumed.optimizer.build(resumed.trainable_variables)
        if how == "weights":
            stopped.save_weights(tmp_path / "state.weights.h5")
            resumed.load_weights(tmp_path / "state.weights.h5")
        else:
            tf.train.Checkpoint(model=stopped, optimizer=stopped.optimizer).write(str(tmp_path / "state"))
            tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer).read(str(tmp_path / "state"))
    assert type(resumed.optimizer.mechanism) is type(stopped.optimizer.mechanism)
    assert_same(state_of(resumed.optimizer), state_of(stopped.optimizer))
    tiny.train(resumed, X, steps=4)
    tiny.assert_weights(resumed, straight.get_weights(), rtol=1e-6)
    assert resumed.optimizer.ledger == straight.optimizer.ledger


def test_a_ratio_of_0_is_no_pruning():
    trained = []
    for arguments in ({}, {"pruning_ratio": 0.0}):
        optimizer = directional(noise_multiplier=1.0, noise_seed=5, **arguments)
        assert type(optimizer.mechanism) is tfdp.mechanisms.DirectionalMechanism
        model = tiny.private(optimizer)
        tiny.train(model, X, steps=5)
        trained.append(model.get_weights())
    for one, other in zip(*trained, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_published_residual_is_in_no_file_and_0_after_a_load(tmp_path):
    model = published(pruning_ratio=0.5)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[Interrupts(1)])
    residual = state_of(model.optimizer)["residual"]
    assert any(np.any(part) for part in residual)
    for variable in model.optimizer.variables:
        assert "residual" not in variable.path
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "state.weights.h5")
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(tmp_path / "state"))
    saved = [name for name, _ in tf.train.list_variables(str(tmp_path / "state"))]
    assert not [name for name in saved if "residual" in name or "state_of_mechanism" in name]
    model.load_weights(tmp_path / "state.weights.h5")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, loaded):
        assert not any(np.any(part) for part in state_of(one.optimizer).get("residual", []))
    fit(loaded, initial_epoch=1)
    assert loaded.optimizer.ledger.steps == 12
    assert any(np.any(part) for part in state_of(loaded.optimizer)["residual"])


def test_published_pruning_proves_nothing_and_says_what_the_paper_claims():
    model = published(pruning_ratio=0.5)
    fit(model)
    statement = tfdp.privacy_statement(model)
    assert statement.epsilon is None
    none, claimed = statement.claims
    assert none.epsilon == np.inf
    assert "without noise" in claimed.reasons[0]
    assert (claimed.epsilon, claimed.delta, str(claimed.status)) == (2.0, 1e-5, "as published")
    assert "nothing is proven of this training" in str(statement)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"pruning": "support"}, "needs pruning_ratio="),
        ({"pruning": "top", "pruning_ratio": 0.5}, '"compress", "support" or "random"'),
        (
            {"support_steps": 5},
            "support_steps= goes with pruning='support' and pruning_ratio= or pruning='random' and pruning_ratio=",
        ),
        ({"support_steps": 5, "pruning_ratio": 0.5}, "support_steps= goes with pruning='support'"),
        ({"pruning": "random", "pruning_ratio": 0.5, "direction": "noisy_gradient"}, "a random support has none"),
        ({"pruning": "random", "pruning_ratio": 0.5, "support_steps": 0}, "support_steps must be a whole number"),
        ({"pruning_ratio": 1.0}, "pruning_ratio must be below 1"),
        ({"pruning_ratio": -0.5}, "pruning_ratio must not be negative"),
        ({"pruning_ratio": None}, "pruning_ratio must be a finite number"),
        ({"sigma_floor": 1.0}, "sigma_floor= goes with as_published=True"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message):
    with pytest.raises(ValueError, match=message):
        directional(**arguments)
