"""What ``explain`` says is what ``fit`` does, and nothing of the model changes."""

import keras
import numpy as np
import pytest

import tfdp
from tfdp.optimizers.hook import training_of

L, ops = keras.layers, keras.ops
X = np.random.default_rng(0).normal(size=(12, 5, 3)).astype("f4")
Y = np.random.default_rng(1).normal(size=(12, 2)).astype("f4")


class OwnCell(L.GRUCell):
    """Might do anything."""


class Looped(L.RNN):
    """A recurrent layer without a rule: its cell is a user's own."""

    def __init__(self):
        super().__init__(OwnCell(3))


def model():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((5, 3)), L.Dense(4, "tanh"), Looped(), L.Dense(2)])


@pytest.mark.parametrize("compiled", ["not", "ordinarily", "privately"])
def test_it_says_what_fit_does(compiled):
    explained, trained = model(), model()
    private = tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=0.0)
    if compiled != "not":
        explained.compile(
            "sgd" if compiled == "ordinarily" else tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), "mse"
        )
    before = explained.get_weights()
    found = tfdp.explain(explained, X, Y, batch_size=4)
    trained.compile(private, "mse")
    trained.fit(X, Y, batch_size=4, verbose=0)
    (plan,) = [training_of(trained)._step.plan]
    names = {site.layer.name.rstrip("_0123456789"): site for site in plan.sites.values()}
    for row in found.rows:
        site = names[row.site.rstrip("_0123456789")]
        assert row.fast == (not site.runs_again)
    assert [row.weight for row in found.slow] == [v.path for v in explained.layers[1].trainable_variables]
    assert all(row.why and row.advice for row in found.slow)
    assert all(row.weight in str(found) for row in found.rows)
    assert found.made_up_targets == (compiled == "not")
    for now, then in zip(explained.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_without_targets_a_squared_error_takes_the_place_of_the_loss():
    functional = keras.Input((5, 3))
    outputs = {"a": L.Dense(2, name="a")(functional), "b": L.Dense(1, name="b")(functional)}
    found = tfdp.explain(keras.Model(functional, outputs), X)
    assert found.made_up_targets
    assert not found.slow
    assert found.time > 0


def test_a_rule_of_ones_own_is_used_and_checked():
    class Scale(L.Layer):
        def build(self, input_shape):
            self.w = self.add_weight(shape=(input_shape[-1],), initializer="ones")

        def call(self, x):
            return x * self.w

    def rule_of(layer):
        return tfdp.explain(keras.Sequential([keras.Input((3,)), layer, L.Dense(1)]), X[:, 0]).rows[0].rule

    @tfdp.gradients.rule(Scale, tap=tfdp.gradients.at_output)
    def scale(call, d):
        return [(call.layer.w, tfdp.gradients.Materialised(d[0] * call.inputs, call.layer.w.shape))]

    assert rule_of(Scale()) == "scale"

    @tfdp.gradients.rule(Scale, tap=tfdp.gradients.at_output)
    def wrong(call, d):
        return [(call.layer.w, tfdp.gradients.Materialised(d[0], call.layer.w.shape))]

    assert rule_of(Scale()) != "wrong"


def test_without_records_it_asks_for_some():
    with pytest.raises(ValueError, match=r"tfdp\.explain\(model, x, y\)"):
        tfdp.explain(model())


def test_a_cost_that_is_not_counted_is_said_to_be_so():
    convolutional = keras.Sequential([keras.Input((5, 3)), L.Conv1D(2, 3), L.Flatten(), L.Dense(2)])
    found = str(tfdp.explain(convolutional, X, Y))
    assert "?" not in found and "Not counted:" in found
