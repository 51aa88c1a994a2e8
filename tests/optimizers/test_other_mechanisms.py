"""A mechanism of another class may take the place of the first: its own steps are taken, and priced."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny
from tfdp.accounting import GaussianEvent, NotPrivateEvent
from tfdp.mechanisms import GaussianMechanism


class Doubled(GaussianMechanism):
    """The same settings, twice the step, another price."""

    def privatise(self, sums, expected_lot_size, generator):
        return [2 * s for s in super().privatise(sums, expected_lot_size, generator)]

    def event(self):
        return NotPrivateEvent("doubled")


def test_with_the_same_settings_another_class_is_another_mechanism():
    model = tiny.private(tiny.noiseless())
    tiny.train(model)
    model.optimizer.mechanism = Doubled(tiny.CLIP, 0.0)
    before = model.get_weights()
    tiny.train(model)
    assert [line.event.reason for line in model.optimizer.ledger][1] == "doubled"
    tiny.assert_weights(model, tiny.after_sgd(before, learning_rate=0.2))


def test_with_the_same_class_and_settings_nothing_is_traced_anew():
    model = tiny.private(tiny.noisy())
    tiny.train(model)
    graph = model.train_function
    model.optimizer.mechanism = GaussianMechanism(tiny.CLIP, 1.0)
    tiny.train(model)
    assert model.train_function is graph
    (line,) = model.optimizer.ledger
    assert line.event == GaussianEvent(1.0)


def test_a_target_finds_the_noise_of_a_mechanism_that_was_given_none():
    optimizer = tfdp.PrivateOptimizer("sgd", GaussianMechanism(1.0), target_epsilon=3.0, delta=1e-5)
    model = tiny.private(optimizer)
    x, y = (np.repeat(part, 50, axis=0) for part in (tiny.X, tiny.Y))
    model.fit(x, y, batch_size=100, verbose=0)
    assert isinstance(optimizer.inner_optimizer, keras.optimizers.SGD)
    assert 0.99 * 3.0 <= tfdp.accounting.epsilon(optimizer.ledger, delta=1e-5) <= 3.0


class WithTable(GaussianMechanism):
    """Its settings may be changed in place."""

    def __init__(self, l2_norm_clip, noise_multiplier=None, table=None):
        super().__init__(l2_norm_clip, noise_multiplier)
        self.table = table

    def privatise(self, sums, expected_lot_size, generator):
        return [self.table["factor"] * s for s in super().privatise(sums, expected_lot_size, generator)]

    def get_config(self):
        return {**super().get_config(), "table": self.table}


def test_settings_that_are_changed_in_place_are_seen():
    model = tiny.private(tfdp.PrivateOptimizer(keras.optimizers.SGD(0.1), WithTable(tiny.CLIP, 0.0, {"factor": 1.0})))
    tiny.train(model)
    model.optimizer.mechanism.table["factor"] = 2.0
    before = model.get_weights()
    tiny.train(model)
    tiny.assert_weights(model, tiny.after_sgd(before, learning_rate=0.2))


@pytest.mark.parametrize(
    "optimizer, setting, value",
    [
        ("directional", "direction", "ones"),
        ("directional", "moments", [1.0, 2.0]),
        ("directional", "s_min and s_max", 1.0),
        ("encoded", "codebook_size", 5),
    ],
)
def test_settings_that_its_memory_was_made_for_stay(optimizer, setting, value):
    made = {"directional": tfdp.DirectionalDPSGD, "encoded": tfdp.EncodedDPSGD}[optimizer]
    model = tiny.private(made(0.1, l2_norm_clip=1.0, noise_multiplier=1.0))
    tiny.train(model)
    weights, ledger = model.get_weights(), model.optimizer.ledger
    for name in setting.split(" and "):
        setattr(model.optimizer.mechanism, name, value)
    with pytest.raises(ValueError, match="when the weights became known"):
        tiny.train(model)
    tiny.assert_weights(model, weights, rtol=0)
    assert model.optimizer.ledger == ledger


def test_nor_may_a_callback_change_them_as_fit_begins():
    class Enlarges(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.model.optimizer.mechanism.codebook_size = 20

    model = tiny.private(tfdp.EncodedDPSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, codebook_size=10))
    tiny.train(model)
    ledger = model.optimizer.ledger
    with pytest.raises(ValueError, match="codebook_size was 10"):
        model.fit(tiny.X, tiny.Y, batch_size=len(tiny.X), callbacks=[Enlarges()], verbose=0)
    assert model.optimizer.ledger == ledger
