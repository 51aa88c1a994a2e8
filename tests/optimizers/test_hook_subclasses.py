"""Models of the user's own class, and models whose layers change."""

import keras
import numpy as np
import pytest

from tests.optimizers import tiny


class OwnFitAndCompile(keras.Sequential):
    def compile(self, optimizer="sgd", extra=None, **arguments):
        self.__dict__.setdefault("seen", []).append(("compile", extra))
        super().compile(optimizer=optimizer, **arguments)

    def fit(self, features, targets, **arguments):
        self.__dict__["seen"].append(("fit", len(features)))
        return super().fit(features, targets, **arguments)


def test_own_fit_and_compile_are_still_called():
    model = OwnFitAndCompile(tiny.linear().layers)
    start = model.get_weights()
    model.compile(optimizer=tiny.noiseless(), extra="hello", loss="mse")
    model.fit(tiny.X, tiny.Y, batch_size=tiny.SIZE, verbose=0)
    assert model.seen == [("compile", "hello"), ("fit", tiny.SIZE)]
    tiny.assert_weights(model, tiny.after_sgd(start))


class OwnTrainStep(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


class OwnTrainFunction(keras.Sequential):
    def make_train_function(self, force=False):
        self.train_function = lambda iterator: {}


@pytest.mark.parametrize("model_class", [OwnTrainStep, OwnTrainFunction])
def test_a_model_that_trains_in_its_own_way_is_refused_at_compile(model_class):
    model = model_class([keras.layers.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=rf"{model_class.__name__} has a (train_step|make_train_function)"):
        model.compile(optimizer=tiny.noiseless(), loss="mse")
    model.compile(optimizer="sgd", loss="mse")  # an ordinary optimizer is none of our business


def test_a_train_step_put_on_the_model_itself_is_refused_at_compile():
    model = tiny.linear()
    model.train_step = lambda data: {}
    with pytest.raises(ValueError, match="train_step of its own"):
        tiny.private(model=model)


def test_layers_may_be_added_and_taken_away_before_the_next_compile():
    model = tiny.private()
    tiny.train(model)
    model.pop()
    model.add(keras.layers.Dense(2))
    model.add(keras.layers.Dense(1))
    tiny.private(model=model)
    before = model.get_weights()
    tiny.train(model)
    assert any(np.any(old != new) for old, new in zip(before, model.get_weights(), strict=True))
    assert model.optimizer.ledger.steps == 2


def test_scikit_learn_wrappers_train_privately():
    pytest.importorskip("sklearn")

    def make(X, y):
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, activation="softmax")])
        model.compile(optimizer=tiny.noisy(), loss="categorical_crossentropy")
        return model

    classifier = keras.wrappers.SKLearnClassifier(make)
    classifier.fit(tiny.X, (tiny.Y[:, 0] > 0).astype(int), batch_size=4, verbose=0)
    assert classifier.model_.optimizer.ledger.steps == 2
