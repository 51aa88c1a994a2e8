"""Ordinary training that came before the first private step is said; after a private optimizer was compiled in it costs all."""

import json

import keras
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import NotPrivateEvent, Status
from tfdp.optimizers.hook import ledger_of


def not_built() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(1)])


def ordinary(model: keras.Model, fits: int = 1) -> keras.Model:
    model.compile("adam", "mse")
    for _ in range(fits):
        model.fit(tiny.X, tiny.Y, verbose=0)
    return model


def private(model: keras.Model, **fit) -> keras.Model:
    tiny.private(tiny.noisy(), model)
    tiny.train(model, **fit)
    return model


@pytest.mark.parametrize("make", [tiny.linear, not_built])
def test_after_a_private_compile_it_is_an_infinite_line_although_no_private_step_came_before(make):
    model = make()
    tiny.private(tiny.noisy(), model)
    private(ordinary(model))
    assert any(isinstance(line.event, NotPrivateEvent) for line in model.optimizer.ledger)
    assert tfdp.privacy_statement(model).epsilon is None


@pytest.mark.parametrize("make", [tiny.linear, not_built])
def test_before_any_private_compile_it_is_a_condition_of_every_claim(make, tmp_path):
    model = ordinary(make(), fits=2)
    model.train_on_batch(tiny.X, tiny.Y)
    private(model)
    model.save(tmp_path / "x.keras")
    for one in (
        model,
        keras.models.load_model(tmp_path / "x.keras"),
        keras.models.load_model(tmp_path / "x.keras", compile=False),
    ):
        statement = tfdp.privacy_statement(one)
        assert statement.best.status is Status.PROVEN
        text = " ".join(str(statement).split())
        before = "Ordinary training (3 calls of fit or train_on_batch) of these weights came before: if it was on the same records, nothing"
        assert (
            "(proven, of the private steps alone: ordinary training came before)." in text.split("What was released")[0]
        )
        assert "covers the private steps only" in text and before in text
        assert "WARNING: before the first private step" in text.split("What is claimed")[0]
        assert json.loads(statement.to_json())["fits"][0]["trained_before"] == 3


def test_without_a_private_step_nothing_is_claimed_of_it(tmp_path):
    model = ordinary(tiny.linear())
    model.save(tmp_path / "x.keras")
    for one in (model, keras.models.load_model(tmp_path / "x.keras")):
        tiny.private(tiny.noisy(), one)
        statement = tfdp.privacy_statement(one)
        assert statement.claims[0].status is Status.NONE
        assert "1 call of fit or train_on_batch" in " ".join(str(statement).split())
        assert statement.not_protected[0].id == "everything"


def test_it_is_said_once_when_private_training_begins(capsys):
    model = ordinary(tiny.linear())
    private(model, verbose=2)
    tiny.train(model, verbose=2)
    assert capsys.readouterr().out.count("had ordinary training before this first private fit") == 1


def test_weights_that_another_model_trained_before_are_among_them():
    """Public pretraining and a new head: it costs nothing, and it is said."""
    body = ordinary(tiny.linear())
    outer = private(keras.Sequential([keras.Input((3,)), body, keras.layers.Dense(1)]))
    assert tfdp.privacy_statement(outer).facts.trained_before == 1
    assert ledger_of(outer).steps == 1
    assert tfdp.privacy_statement(outer).epsilon > 0


def test_a_callback_that_compiles_a_private_optimizer_in_does_not_hide_the_fit_it_is_in():
    model = tiny.linear()
    inner = keras.callbacks.LambdaCallback(on_train_end=lambda logs: tiny.private(tiny.noisy(), model))
    model.compile("sgd", "mse")
    model.fit(tiny.X, tiny.Y, verbose=0, callbacks=[inner])
    assert tfdp.privacy_statement(model).epsilon is None


def test_a_model_that_had_none_says_nothing_of_it():
    model = private(tiny.linear())
    model.evaluate(tiny.X, tiny.Y, verbose=0)
    assert tfdp.privacy_statement(model).facts.trained_before == 0
    assert "WARNING: before the first private step" not in str(tfdp.privacy_statement(model))
