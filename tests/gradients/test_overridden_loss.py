"""A ``compute_loss`` of the user's own that leaves out or weighs what layers add: one step beside Keras's own."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import tfdp

N = 8


class AddsALoss(layers.Layer):
    def call(self, x):
        self.add_loss(ops.mean(ops.sum(ops.square(x), axis=-1)))
        return x


EXTRAS = {
    "added loss": lambda: [layers.Dense(4, "tanh"), AddsALoss()],
    "activity regulariser": lambda: [layers.Dense(4, "tanh", activity_regularizer="l2")],
    "weight regulariser": lambda: [layers.Dense(4, "tanh", kernel_regularizer=keras.regularizers.L2(0.3))],
}


def squares(self, y, y_pred):
    return ops.mean(ops.square(y - y_pred))


EXTRAS["weight regularisers"] = lambda: [*EXTRAS["weight regulariser"](), *EXTRAS["weight regulariser"]()]
EXTRAS["both"] = lambda: [*EXTRAS["activity regulariser"](), *EXTRAS["weight regulariser"]()]
LOSSES = {
    "left out": lambda self, x, y, y_pred, sample_weight, training: squares(self, y, y_pred),
    "a tenth": lambda self, x, y, y_pred, sample_weight, training: squares(self, y, y_pred) + 0.1 * sum(self.losses),
    "all": lambda self, x, y, y_pred, sample_weight, training: squares(self, y, y_pred) + sum(self.losses),
    "their mean": lambda self, x, y, y_pred, sample_weight, training: (
        squares(self, y, y_pred) + ops.mean(ops.stack(self.losses))
    ),
    "the first alone": lambda self, x, y, y_pred, sample_weight, training: squares(self, y, y_pred) + self.losses[0],
    "half of everything": lambda self, *given: 0.5 * keras.Model.compute_loss(self, *given),
}


def trained(extra: str, loss: str, optimizer):
    """The model after one step on all records, and the loss that fit logs."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.body = keras.Sequential([layers.Input((3,)), *EXTRAS[extra](), layers.Dense(2)])

        def call(self, x):
            return self.body(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return LOSSES[loss](self, x, y, y_pred, sample_weight, training)

    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(N, 3)).astype("f4"), random.normal(size=(N, 2)).astype("f4")
    model = Model()
    model.compile(optimizer=optimizer, loss="mse")
    history = model.fit(x, y, batch_size=N, epochs=1, shuffle=False, verbose=0)
    return model, history.history["loss"][0]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("extra", EXTRAS)
def test_without_clip_and_noise_a_step_is_that_of_keras(extra, loss):
    plain, logged = trained(extra, loss, keras.optimizers.SGD(1.0))
    private, private_logged = trained(extra, loss, tfdp.NoisySGD(1.0, l2_norm_clip=1e6, noise_multiplier=0.0))
    for expected, found in zip(plain.get_weights(), private.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert private_logged == pytest.approx(logged, rel=1e-4)


NO_FACTOR = {
    "the data": lambda x, losses: ops.mean(ops.square(x)) * sum(losses),
    "the weights, by a root": lambda x, losses: ops.sqrt(sum(losses)),
    "the weights, by the largest": lambda x, losses: ops.max(ops.stack(losses)),
    "the weights, by a norm": lambda x, losses: ops.sqrt(sum(loss * loss for loss in losses)),
}


@pytest.mark.parametrize("name", NO_FACTOR)
def test_regularisers_without_a_factor_of_their_own_are_refused(name, monkeypatch):
    def loss(self, x, y, y_pred, sample_weight, training):
        return squares(self, y, y_pred) + NO_FACTOR[name](x, self.losses)

    monkeypatch.setitem(LOSSES, name, loss)
    with pytest.raises(ValueError, match="decide how much the weights' regularisers count"):
        trained("weight regularisers", name, tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=1.0))
