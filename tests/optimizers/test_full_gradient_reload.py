"""Full gradients go on where they were, whatever is reloaded or reset."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.optimizers import tiny
from tests.optimizers.full_gradients import SIZE, X, Y, counts, direction_of, fit, full, noiseless
from tfdp.accounting import GaussianEvent


@pytest.mark.parametrize("how", ["model", "weights", "checkpoint"])
@pytest.mark.parametrize("every", [5, 4])
def test_it_goes_on_exactly_after_a_reload(how, every, tmp_path):
    """Every record in every lot, no noise: weights, scales, schedule and ledger are those of a run that was not broken off."""

    def steps(model, epochs):
        model.fit(X, Y, batch_size=SIZE, epochs=epochs, steps_per_epoch=1, verbose=0)

    optimizer = lambda: noiseless(0.05, direction_steps=every)  # noqa: E731
    straight, stopped = tiny.private(optimizer()), tiny.private(optimizer())
    steps(straight, 12)
    steps(stopped, 6)
    resumed = tiny.private(optimizer())
    if how == "model":
        stopped.save(tmp_path / "model.keras")
        resumed = keras.models.load_model(tmp_path / "model.keras")
    else:
        resumed.optimizer.build(resumed.trainable_variables)
        if how == "weights":
            stopped.save_weights(tmp_path / "state.weights.h5")
            resumed.load_weights(tmp_path / "state.weights.h5")
        else:
            tf.train.Checkpoint(model=stopped, optimizer=stopped.optimizer).write(str(tmp_path / "state"))
            tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer).read(str(tmp_path / "state"))
    np.testing.assert_array_equal(direction_of(resumed), direction_of(stopped))
    assert resumed.optimizer.ledger == stopped.optimizer.ledger
    assert resumed.optimizer.fits == stopped.optimizer.fits
    steps(resumed, 6)
    assert resumed.optimizer.ledger == straight.optimizer.ledger
    np.testing.assert_allclose(direction_of(resumed), direction_of(straight), rtol=1e-6)
    for one, other in zip(resumed.get_weights(), straight.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_going_back_to_a_checkpoint_gives_no_release_back_and_keeps_to_the_schedule(tmp_path):
    model = tiny.private(full(direction_steps=4))
    fit(model, epochs=1)
    model.save_weights(tmp_path / "first.weights.h5")
    back = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda e, logs: model.load_weights(tmp_path / "first.weights.h5")
    )
    fit(model, epochs=3, callbacks=[back])
    assert counts(model) == [5, 20]


def test_resetting_the_optimizers_variables_makes_no_release_more_or_less():
    def reset(epoch, logs):
        for variable in model.optimizer.variables:
            if "learning_rate" not in variable.path:
                variable.assign(keras.ops.zeros_like(variable))

    model = tiny.private(full(direction_steps=4))
    fit(model, epochs=3, callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=reset)])
    assert counts(model) == [4, 15]
    assert all(isinstance(line.event, GaussianEvent) for line in model.optimizer.ledger)
