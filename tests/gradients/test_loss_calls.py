"""Layers that a ``compute_loss`` calls: run once for the lot, and no way around the checks. That they are exact, the zoo shows."""

import keras
import pytest
from keras import layers, ops

from tests.gradients.neighbours import proved
from tests.optimizers import tiny
from tests.zoo.mixing_layers import ShiftsTheLot
from tfdp.gradients.blame import MixesExamples


class Taught(keras.Model):
    """Its loss is how far it is from what another layer says of the features."""

    def __init__(self, teacher: layers.Layer):
        super().__init__()
        self.student, self.teacher = layers.Dense(2), teacher

    def call(self, x):
        return self.student(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        said = self.teacher(x)
        return ops.mean(ops.square(y_pred - said[: ops.shape(y_pred)[0]]))


def plan_of(*teacher: layers.Layer):
    model = Taught(keras.Sequential([layers.Input((3,)), *teacher]))
    model.compile(optimizer="sgd", loss=None)
    model(tiny.X)
    return proved(model, tiny.X)


def test_a_teachers_weights_have_the_rules_of_its_layers():
    plan = plan_of(layers.Dense(3, "tanh"), layers.Dense(2))
    assert [line.split(": ")[1] for line in plan.describe()] == ["dense"] * 3
    assert not plan.alone


def test_a_teacher_that_mixes_examples_is_refused():
    with pytest.raises(MixesExamples):
        plan_of(layers.Dense(2), ShiftsTheLot())


class Twice(layers.Layer):
    """Rows of two views of each example, one view after the other."""

    def call(self, x):
        return ops.concatenate([x, 2 * x])


def test_rows_that_are_not_the_examples_are_not_taken_for_them():
    assert plan_of(layers.Dense(2), Twice()).alone


class Codes(keras.Model):
    """One head on the codes of features and of targets."""

    def __init__(self):
        super().__init__()
        self.of_x, self.of_y, self.head = layers.Dense(3, "tanh"), layers.Dense(3, "tanh"), layers.Dense(2)

    def build(self, input_shape):
        self.of_x.build((None, 3))
        self.of_y.build((None, 1))
        self.head.build((None, 3))

    def call(self, x):
        return x

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        of_x, of_y = self.of_x(x), self.of_y(y)
        return ops.mean(ops.square(self.head(of_x) - 2.0)) + 3 * ops.mean(ops.abs(self.head(of_y)))


def test_one_layer_on_two_outputs_gets_each_of_them():
    model = Codes()
    model.build((None, 3))
    model.compile(optimizer="sgd")
    plan = proved(model, tiny.X, tiny.Y[:, None])
    assert [line.split(": ")[1] for line in plan.describe()] == ["dense"] * 3
