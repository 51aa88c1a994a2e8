"""PrivacyLogger: epsilon in the logs of every epoch."""

import keras

from tfdp.accounting import Budget
from tfdp.accounting.checks import delta as checked_delta
from tfdp.optimizers.hook import training_of
from tfdp.optimizers.training import PrivateTraining

_BOUND = "Give fit a plain list of callbacks, or keras.callbacks.CallbackList([...], model=the_model_that_is_trained)."


class PrivacyLogger(keras.callbacks.Callback):
    """Writes what training cost so far into the logs of every epoch, as ``epsilon``.

    History, CSVLogger, TensorBoard and the progress bar show it like any metric. It stops nothing.

    Example:

    >>> model.fit(x, y, batch_size=256, epochs=15, callbacks=[tfdp.callbacks.PrivacyLogger(delta=1e-5)])

    Args:
        delta: the delta that epsilon is meant at; well below 1 / (number of records).
        accountant: "pld" (tight), "rdp", "moments", or "gdp" (approximate: it can be below the truth).
    """

    async_safe = True  # Keras need not wait for the step to end before it calls on
    writes_epsilon = True  # a callback that watches "epsilon" watches what privacy costs

    def __init__(self, delta: float, accountant: str = "pld"):
        super().__init__()
        self._spending = Budget(1.0, checked_delta(delta), accountant)  # of a budget without a target, what is spent

    @property
    def delta(self) -> float:
        return self._spending.delta

    @property
    def accountant(self) -> str:
        return self._spending.accountant

    @property
    def training(self) -> PrivateTraining:
        """Of the model that this callback is bound to.

        Raises:
            ValueError: there is none.
        """
        if self.model is None:
            raise ValueError(f"{type(self).__name__} is bound to no model. {_BOUND}")
        training = training_of(self.model)
        if training is None:
            raise ValueError(
                f"{type(self).__name__} counts the privacy of a model that is compiled with a private optimizer, and "
                f"{self.model.name!r}, the model it is bound to, is not. Compile with one of tfdp's, for example "
                "tfdp.NoisyAdam(1e-3, l2_norm_clip=1.0, noise_multiplier=1.1)."
            )
        return training

    def on_train_begin(self, logs=None):
        training = self.training  # raises before a step is taken
        if training.run is None:
            raise ValueError(
                f"{type(self).__name__} is bound to the model {self.model.name!r}, which is not the one that fit trains. {_BOUND}"
            )
        training.warn_of_large_delta(self.delta)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["epsilon"] = self._spending.epsilon(self.training.optimizer.ledger)
