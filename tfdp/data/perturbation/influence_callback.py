"""The rounds of algorithm 2 (Kang et al. 2020, data perturbation) between the steps of `fit`."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import keras

from tfdp.data.perturbation.influence_rounds import Rounds


class InfluenceRounds(keras.callbacks.Callback):
    """Before every local_steps-th step of `fit` a round: as many records are drawn, and those of large contribution get noise.

    Made by `InfluencePerturbation.callback`. Rounds that are due within one execution of several steps (`steps_per_execution`) are
    held together, before the next.

    Args:
        begin: is told the model and T, checks that all is as it has to be, and gives the rounds.
        local_steps: T_local.
    """

    def __init__(self, begin: Callable[[keras.Model, int | None], Rounds], local_steps: int):
        super().__init__()
        self._begin, self._local_steps = begin, local_steps
        self._rounds: Rounds | None = None
        self._taken = self._before_epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        if self._rounds is None:
            steps = self.params.get("steps")
            self._rounds = self._begin(self.model, steps and steps * (self.params["epochs"] - epoch))
        self._before_epoch = self._taken
        self._rounds.records.was_read()

    def on_train_batch_begin(self, batch, logs=None):
        rounds = self._rounds
        while rounds.drawn <= self._taken and rounds.drawn < rounds.steps:
            for number, large in rounds.draw(min(self._local_steps, rounds.steps - rounds.drawn)):
                rounds.perturb(number, large)

    def on_train_batch_end(self, batch, logs=None):
        if not self._taken and not self._rounds.records.was_read():
            raise ValueError(
                "fit does not read the records that get the noise. Give it the data set that the perturbation was applied to: "
                "model.fit(dataset.apply(perturb).batch(...), callbacks=[perturb.callback()])."
            )
        self._taken = self._before_epoch + batch + 1

    def on_epoch_end(self, epoch, logs=None):
        if self._before_epoch and not self._rounds.records.was_read():
            warnings.warn(
                f"In epoch {epoch + 1} no record was read anew, so that fit saw nothing of the rounds since. A cache() after the "
                "perturbation does that: leave it out.",
                stacklevel=2,
            )
