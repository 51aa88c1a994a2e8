"""The graph of a step is made for certain weights: freezing or unfreezing one without compiling again is refused."""

import keras
import numpy as np
import pytest

import tfdp
from tests.optimizers import tiny


def two_layers() -> keras.Model:
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])


@pytest.mark.parametrize("at_first", [True, False])
def test_a_change_without_compiling_again_is_refused_and_compiling_again_is_the_cure(at_first):
    model = two_layers()
    layer = model.layers[0]
    layer.trainable = at_first
    tiny.private(tiny.noisy(), model)
    tiny.train(model)
    layer.trainable = not at_first
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=r"[Cc]ompile again"):
        tiny.train(model)
    tiny.private(tiny.noisy(), model)
    kernel = layer.kernel.numpy()
    tiny.train(model)
    assert np.any(layer.kernel.numpy() != kernel) == layer.trainable
    assert model.optimizer.ledger.steps == 2


def test_a_model_without_trainable_weights_is_refused():
    model = two_layers()
    model.trainable = False
    tiny.private(tfdp.NoisyAdam(l2_norm_clip=1.0, noise_multiplier=1.0), model)
    with pytest.raises(ValueError, match="no trainable weights"):
        tiny.train(model)


def test_weights_that_are_overwritten_with_their_gradient_are_refused():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, dtype="float8_from_float32")])
    tiny.private(tiny.noisy(), model)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match="float8"):
        tiny.train(model)


def test_weights_may_be_made_by_the_first_fit():
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
    tiny.train(tiny.private(model=model))
    tiny.assert_weights(model, tiny.after_sgd([np.zeros((3, 1)), np.zeros(1)]))
