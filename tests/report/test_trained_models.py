"""Statements of models that were really trained."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import Status, epsilon

SEED = 918273645


def ids(statement) -> set[str]:
    return {limit.id for limit in statement.not_protected}


def train(model, **arguments):
    """Poisson lots of four of the eight records."""
    model.fit(tiny.X, tiny.Y, **{"batch_size": 4, "verbose": 0} | arguments)


def test_a_run_is_proven_at_its_ledgers_epsilon():
    model = tiny.private(tiny.noisy())
    train(model, epochs=3)
    statement = tfdp.privacy_statement(model)
    assert statement.delta == 0.1
    assert statement.epsilon == pytest.approx(epsilon(model.optimizer.ledger, delta=0.1))
    assert str(tfdp.privacy_statement(model.optimizer)) == str(statement)
    assert statement.facts.weights == 4
    assert "non_finite_examples" in ids(statement)


def test_private_logs_leave_no_count_to_warn_of():
    model = tiny.private(tiny.noisy(private_logs=True))
    train(model)
    assert "non_finite_examples" not in ids(tfdp.privacy_statement(model))


def test_a_model_that_was_compiled_and_not_trained_released_nothing():
    statement = tfdp.privacy_statement(tiny.private(tiny.noisy()))
    assert (statement.epsilon, statement.claims[0].how) == (0.0, "nothing was released")


@pytest.mark.parametrize("compiled", [False, True])
def test_an_ordinary_model_has_no_claim_and_is_no_error(compiled):
    model = tiny.linear()
    if compiled:
        model.compile(optimizer="adam", loss="mse")
        train(model)
    statement = tfdp.privacy_statement(model)
    assert [claim.status for claim in statement.claims] == [Status.NONE]
    assert statement.epsilon is None
    assert "private optimizer" in statement.claims[0].reasons[0]


def test_ordinary_training_after_a_private_run_ends_the_claim():
    model = tiny.private(tiny.noisy())
    train(model)
    private = tfdp.privacy_statement(model).epsilon
    model.compile(optimizer="sgd", loss="mse")
    assert tfdp.privacy_statement(model).epsilon == pytest.approx(private)
    train(model)
    statement = tfdp.privacy_statement(model)
    assert (statement.epsilon, statement.claims[0].status) == (None, Status.NONE)
    assert "ordinary optimizer" in statement.claims[0].reasons[0]


def test_the_seed_is_mentioned_and_not_told():
    model = tiny.private(tiny.noisy(noise_seed=SEED))
    train(model)
    statement = tfdp.privacy_statement(model)
    assert statement.claims[0].status is Status.NONE
    assert "noise_seed was given" in str(statement)
    for text in (str(statement), statement.to_json(), repr(statement)):
        assert str(SEED) not in text


def test_other_noise_in_a_second_fit_needs_the_callers_word():
    model = tiny.private(tiny.noisy())
    train(model)
    model.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=2.0), loss="mse")
    train(model)
    statement = tfdp.privacy_statement(model)
    assert (statement.epsilon, statement.claims[0].status) == (None, Status.APPROXIMATE)
    assert len(statement.facts.ledger) == 2
    on_my_word = tfdp.privacy_statement(model, settings_fixed_beforehand=True)
    assert on_my_word.epsilon == pytest.approx(epsilon(model.optimizer.ledger, delta=0.1))


def early_stopping(monitor: str) -> keras.callbacks.EarlyStopping:
    """Ends training after the second epoch."""
    return keras.callbacks.EarlyStopping(monitor=monitor, patience=1, min_delta=1e9)


def test_early_stopping_on_validation_is_priced_at_the_plan():
    model = tiny.private(tiny.noisy())
    train(model, epochs=10, validation_data=(tiny.X + 1, tiny.Y), callbacks=[early_stopping("val_loss")])
    taken = model.optimizer.ledger
    assert taken.steps < 20
    (line,) = taken
    planned = tfdp.accounting.Ledger().record(line.event, line.sampling, 20)
    statement = tfdp.privacy_statement(model)
    assert statement.epsilon == pytest.approx(epsilon(planned, delta=0.1))
    assert f"priced at the 20 steps that were planned, {taken.steps} of which were taken" in " ".join(
        str(statement).split()
    )


def test_early_stopping_on_the_training_loss_leaves_nothing_proven():
    model = tiny.private(tiny.noisy())
    train(model, epochs=10, callbacks=[early_stopping("loss")])
    statement = tfdp.privacy_statement(model)
    assert statement.epsilon is None
    assert "EarlyStopping stops training by loss" in statement.claims[0].reasons[0]


def test_a_callback_of_the_users_own_is_listed():
    class MyCallback(keras.callbacks.Callback):
        pass

    model = tiny.private(tiny.noisy())
    train(model, callbacks=[MyCallback()])
    statement = tfdp.privacy_statement(model)
    assert statement.epsilon is not None
    assert "MyCallback" in str(statement)


def test_a_declared_dataset_says_what_was_not_checked():
    pipeline = tf.data.Dataset.from_tensor_slices((tiny.X, tiny.Y)).map(lambda x, y: (x, y)).shuffle(8).batch(4)
    declared = tfdp.data.declare_sampling(pipeline, "shuffled", size=8, batch_size=4)
    model = tiny.private(tiny.noisy())
    model.fit(declared, epochs=2, verbose=0)
    text = " ".join(str(tfdp.privacy_statement(model)).split())
    assert "passes over batches of 4 of 8 records" in text
    for sentence in declared.unchecked:
        assert f"Assumed, not checked: {sentence}" in text


def test_a_target_in_the_renyi_accountant_is_a_claim_that_outlives_changed_settings():
    def optimizer():
        return tfdp.NoisySGD(0.1, l2_norm_clip=1.0, target_epsilon=3.0, delta=0.01, accountant="rdp")

    model = tiny.private(optimizer())
    train(model, epochs=2)
    statement = tfdp.privacy_statement(model)
    assert statement.delta == 0.01
    (claim,) = [claim for claim in statement.claims if claim.how.startswith("filter")]
    assert claim.status is Status.PROVEN
    assert claim.epsilon == pytest.approx(3.0, rel=1e-3)
    assert statement.epsilon <= claim.epsilon


def test_a_renyi_budget_is_a_proven_claim_where_settings_changed():
    model = tiny.private(tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=4.0))
    for batch_size in (4, 2):
        stopping = tfdp.callbacks.BudgetStopping(5.0, 0.01, accountant="rdp", verbose=0)
        train(model, batch_size=batch_size, callbacks=[stopping])
    statement = tfdp.privacy_statement(model)
    assert len(statement.facts.ledger) == 2
    assert statement.claims[0].status is Status.APPROXIMATE
    assert (statement.delta, statement.epsilon) == (0.01, pytest.approx(5.0, rel=1e-3))


def test_a_saved_and_loaded_model_has_the_same_statement(tmp_path):
    model = tiny.private(tiny.noisy())
    train(model, epochs=10, validation_data=(tiny.X + 1, tiny.Y), callbacks=[early_stopping("val_loss")])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert tfdp.privacy_statement(loaded).to_json() == tfdp.privacy_statement(model).to_json()


def test_no_record_is_in_the_json():
    x = np.full((8, 3), 0.123456789, "float32")
    model = tiny.private(tiny.noisy())
    train(model)
    model.fit(x, tiny.Y, batch_size=4, verbose=0)
    data = tfdp.privacy_statement(model).to_json()
    assert "0.1234567" not in data
    assert set(json.loads(data)) == {
        "format", "version", "delta", "epsilon", "claims", "meaning", "released", "ledger", "fits", "not_protected", "versions",
    }  # fmt: skip
