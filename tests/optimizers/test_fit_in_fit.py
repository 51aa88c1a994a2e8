"""One fit at a time: a second one on the same model is refused, and the first goes on undisturbed."""

import threading

import keras
import pytest

from tests.optimizers import tiny

REFUSED = "fit is already running on this model"


class FitsAgain(keras.callbacks.Callback):
    """Calls fit while fit runs, and keeps what came of it."""

    def __init__(self, moment):
        super().__init__()
        self.error: BaseException | None = None
        setattr(self, moment, self._fit)

    def _fit(self, *_, logs=None):
        if self.error is None:
            before = self.model.optimizer.ledger
            try:
                tiny.train(self.model)
            except RuntimeError as error:
                self.error = error
            assert self.model.optimizer.ledger == before


MOMENTS = ("on_train_begin", "on_epoch_begin", "on_train_batch_end", "on_epoch_end", "on_train_end")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_callback_that_calls_fit_is_refused(moment):
    model, callback = tiny.private(tiny.noiseless()), FitsAgain(moment)
    before = model.get_weights()
    tiny.train(model, steps=3, epochs=2, callbacks=[callback])
    assert REFUSED in str(callback.error)
    assert model.optimizer.ledger.steps == 6
    tiny.assert_weights(model, tiny.after_sgd(before, steps=6))


class Waits(keras.callbacks.Callback):
    """Holds fit up until another thread has tried."""

    def __init__(self):
        super().__init__()
        self.reached, self.may_go_on = threading.Event(), threading.Event()

    def on_train_batch_end(self, batch, logs=None):
        self.reached.set()
        assert self.may_go_on.wait(60)


def test_another_thread_that_calls_fit_is_refused():
    model, waits = tiny.private(tiny.noiseless()), Waits()
    before = model.get_weights()
    first = threading.Thread(target=lambda: tiny.train(model, steps=3, callbacks=[waits]))
    first.start()
    try:
        assert waits.reached.wait(60)
        with pytest.raises(RuntimeError, match=REFUSED):
            tiny.train(model)
    finally:
        waits.may_go_on.set()
        first.join()
    assert model.optimizer.ledger.steps == 3
    tiny.assert_weights(model, tiny.after_sgd(before, steps=3))


class Fails(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "arguments"),
    [(ZeroDivisionError, {"callbacks": [Fails()]}), (ValueError, {"batch_size": 0})],
)
def test_after_a_fit_that_failed_the_next_one_runs(error, arguments):
    model = tiny.private(tiny.noisy())
    with pytest.raises(error):
        tiny.train(model, **arguments)
    tiny.train(model)
    assert model.optimizer.ledger.steps == 1
