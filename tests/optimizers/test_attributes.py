"""What is set on a private optimizer takes effect, or raises and says where it belongs."""

import keras
import pytest

import tfdp
from tests.optimizers import tiny

PLACES = {
    "noise_multiplier": r"optimizer\.mechanism\.noise_multiplier = ",
    "l2_norm_clip": r"optimizer\.mechanism\.l2_norm_clip = ",
    "target_epsilon": "Make a new one",
    "inner_optimizer": "Make a new one",
    "clipnorm": r"optimizer\.inner_optimizer\.clipnorm = ",
    "momentum": r"optimizer\.inner_optimizer\.momentum = ",
    "learning_rat": "Did you mean learning_rate",
    "sigma": "What can be set: .*max_physical_batch",
}


@pytest.mark.parametrize("name", PLACES)
def test_an_attribute_that_would_change_nothing_raises(name):
    with pytest.raises(AttributeError, match=PLACES[name]):
        setattr(tiny.noisy(), name, 2.0)


def test_those_that_an_optimizer_has_may_be_set():
    optimizer = tiny.noisy()
    optimizer.learning_rate, optimizer.max_physical_batch = 0.5, 4
    optimizer.mechanism = tfdp.mechanisms.GaussianMechanism(1.0, 2.0)
    optimizer.loss_scale_factor = None  # as it is: Keras's MultiOptimizer writes it into every part
    assert float(optimizer.inner_optimizer.learning_rate) == 0.5


@pytest.mark.parametrize("when", ["on_epoch_end", "on_epoch_begin", "on_train_batch_begin"])
def test_settings_of_the_mechanism_that_change_in_a_running_fit_end_it(when):
    model = tiny.private(tiny.noisy())

    def change(*_, **__):
        model.optimizer.mechanism.noise_multiplier = 0.5

    with pytest.raises(ValueError, match="changed while fit runs"):
        tiny.train(model, epochs=3, callbacks=[keras.callbacks.LambdaCallback(**{when: change})])
    assert [(line.event.noise_multiplier, line.steps) for line in model.optimizer.ledger] == [(1.0, 1)]
