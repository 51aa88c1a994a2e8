"""A metric that asks for values is told by its name."""

import keras
import pytest

from tests.optimizers import tiny


class Largest(keras.metrics.Metric):
    def __init__(metric):  # whatever its first argument is called
        super().__init__(name="largest")
        metric.value = metric.add_weight(initializer="zeros")

    def update_state(metric, y_true, y_pred, sample_weight=None):
        metric.value.assign(max(metric.value.numpy(), y_pred.numpy().max()))

    def result(metric):
        return metric.value


@pytest.mark.parametrize("how", [{}, {"run_eagerly": True}])
def test_the_metric_and_the_cure_are_named_before_anything_moves(how):
    model = tiny.private(metrics=["mae", Largest()], **how)
    with tiny.nothing_moves(model), pytest.raises(ValueError, match=r"metric 'largest'.*keras\.ops"):
        tiny.train(model)
