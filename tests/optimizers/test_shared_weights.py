"""Whoever trains the weights, through whatever model: every model that holds them knows what it cost."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import FullBatch, GaussianEvent, Line, NotPrivateEvent
from tfdp.optimizers.hook import fits_of, ledger_of

SHOWN = Line(GaussianEvent(1.0), FullBatch(tiny.SIZE), 2)


def trained(steps=2) -> keras.Model:
    model = tiny.private(tiny.noisy())
    tiny.train(model, steps=steps)
    return model


def around(inner: keras.Model) -> keras.Model:
    outer = keras.Sequential([keras.layers.Input((3,)), inner, keras.layers.Dense(1)])
    outer.build((None, 3))
    return outer


def ordinary(model: keras.Model) -> None:
    model.compile(optimizer="sgd", loss="mse")
    model.fit(tiny.X, tiny.Y, verbose=0)


def infinite(model: keras.Model) -> list[Line]:
    return [line for line in ledger_of(model) if isinstance(line.event, NotPrivateEvent)]


def test_a_loaded_model_that_others_train_says_so(tmp_path):
    trained().save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    outer = around(loaded)
    loaded.compile(optimizer="sgd", loss="mse")  # it is no longer trained privately
    ordinary(outer)
    assert SHOWN in ledger_of(loaded)
    assert infinite(loaded)
    assert infinite(outer)
    assert tfdp.privacy_statement(loaded, delta=1e-5).epsilon is None


def test_an_ordinary_fit_through_another_model_shows_without_another_fit():
    model = trained()
    outer = around(model)
    model.compile(optimizer="sgd", loss="mse")
    ordinary(outer)
    assert SHOWN in ledger_of(model)
    assert len(infinite(model)) == 1


def test_a_private_fit_through_another_model_counts_for_the_inner_one():
    model = trained()
    outer = around(model)
    model.compile(optimizer="sgd", loss="mse")
    outer.compile(optimizer=tiny.noisy(), loss="mse")
    tiny.train(outer, steps=3)
    expected = [Line(GaussianEvent(1.0), FullBatch(tiny.SIZE), 5)]
    assert list(ledger_of(model)) == list(ledger_of(outer)) == list(outer.optimizer.ledger) == expected
    assert sum(record.steps for record in fits_of(model)) == 5


def test_training_that_began_through_another_model_counts():
    inner = tiny.private(tiny.noisy())
    outer = around(inner)
    outer.compile(optimizer=tiny.noisy(), loss="mse")
    tiny.train(outer, steps=3)
    assert ledger_of(inner).steps == 3


def test_a_frozen_backbone_is_part_of_what_its_head_cost():
    backbone = trained()
    outer = around(backbone)
    backbone.trainable = False
    outer.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=2.0), loss="mse")
    tiny.train(outer, steps=3)
    assert [(line.event.noise_multiplier, line.steps) for line in ledger_of(outer)] == [(1.0, 2), (2.0, 3)]
    assert outer.optimizer.ledger == ledger_of(outer)
    assert ledger_of(backbone).steps == 2


def test_files_carry_what_was_taken_in(tmp_path):
    backbone = trained()
    outer = around(backbone)
    backbone.compile(optimizer="sgd", loss="mse")
    outer.compile(optimizer=tiny.noisy(), loss="mse")
    tiny.train(outer, steps=3)
    outer.save(tmp_path / "outer.keras")
    assert keras.models.load_model(tmp_path / "outer.keras").optimizer.ledger.steps == 5


@pytest.mark.parametrize("rounds", [1, 3])
def test_training_in_turns_counts_every_step_once(rounds):
    one = tiny.linear()
    two = around(one)
    first, second = tiny.noisy(), tiny.noisy()
    for _ in range(rounds):
        one.compile(optimizer=first, loss="mse")
        tiny.train(one, steps=2)
        one.compile(optimizer="sgd", loss="mse")
        two.compile(optimizer=second, loss="mse")
        tiny.train(two, steps=3)
        two.compile(optimizer="sgd", loss="mse")
    assert ledger_of(one).steps == ledger_of(two).steps == 5 * rounds


def test_models_with_nothing_in_common_know_nothing_of_each_other():
    one, two = trained(), tiny.private(tiny.noisy())
    tiny.train(two, steps=3)
    assert (ledger_of(one).steps, ledger_of(two).steps) == (2, 3)


def test_weights_that_were_never_private_stay_ordinary():
    model = tiny.linear()
    ordinary(model)
    outer = around(model)
    outer.compile(optimizer=tiny.noisy(), loss="mse")
    tiny.train(outer)
    assert infinite(outer) == []
    assert np.isfinite(tfdp.accounting.epsilon(ledger_of(outer), delta=1e-5))
