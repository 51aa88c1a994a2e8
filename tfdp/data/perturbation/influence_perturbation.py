"""Noise on the records that move a model most: performance improving DBDP-ERM (Kang et al. 2020, data perturbation, algorithm 2)."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tfdp.accounting import checks
from tfdp.accounting.exposure import expose
from tfdp.data.perturbation import records_so_far
from tfdp.data.perturbation.influence_callback import InfluenceRounds
from tfdp.data.perturbation.influence_rounds import Rounds, Setting
from tfdp.data.perturbation.influence_training import OTHER_STEPS, PerturbedTraining, training_of
from tfdp.data.perturbation.records_so_far import RecordsSoFar


class InfluencePerturbation:
    """Trains a model on records of which those get Gaussian noise whose contribution is large.

    Formal guarantee: none. The trained model it starts from, which records get noise, and how much, all depend on the records.

    From the weights the model has (the pretrained theta~), R = T / local_steps rounds for T steps: each draws local_steps records and finds
    their contributions c = H^-1 grad l(z, theta) / n at the round's first weights theta. A record is left as it is where
    ``e^-epsilon <= ||(c + theta) / theta|| <= e^epsilon`` (line 9; division by elements), and gets N(0, sigma_t^2) otherwise, with
    sigma_t of eq. 15 and w_t = ||grad_x grad_theta l||.

    | rule         | the norm in line 9                                                                          |
    |--------------|---------------------------------------------------------------------------------------------|
    | "normalized" | divided by the root of the number of weights, so that it is 1 where c is 0                    |
    | "literal"    | as printed: at least about that root, so that with e^(2 epsilon) weights all records get noise |

    | way in                                    | whose steps they are                                                    |
    |-------------------------------------------|-------------------------------------------------------------------------|
    | `train(x, y, steps, learning_rate)`       | algorithm 2 to the letter: a gradient step on each record as it is drawn, w_t at the weights of that step |
    | `dataset.apply(p)` and `p.callback()`     | those of `fit`, with any optimizer, on batches of the records as perturbed so far; w_t at the weights of the round |

    Example:

    >>> model.fit(x, y, epochs=100)  # ordinary training: theta~
    >>> perturb = tfdp.data.InfluencePerturbation(model, epsilon=1.0, delta=1e-5, lipschitz=1.0)
    >>> noisy = tf.data.Dataset.from_tensor_slices((x, y)).apply(perturb)
    >>> model.fit(noisy.shuffle(len(x)).batch(1), epochs=5, callbacks=[perturb.callback()])  # the model now holds theta_priv
    >>> print(perturb.result)  # its x and y are D_priv

    Args:
        model: built, compiled with its loss, and trained.
        epsilon, delta: what the paper claims.
        lipschitz: G of eq. 15, of one record's loss in the weights.
        rule: see above.
        constant: c of eq. 15, which the paper does not give.
        local_steps: T_local, steps and records a round.
        damping: added to the diagonal of the Hessian.
    """

    def __init__(
        self,
        model: keras.Model,
        epsilon: float,
        delta: float,
        *,
        lipschitz: float,
        rule: str = "normalized",
        constant: float = 1.0,
        local_steps: int = 10,
        damping: float = 0.0,
    ):
        self._model = model
        self._setting = Setting(epsilon, delta, lipschitz, rule, constant, local_steps, damping)
        self._records: RecordsSoFar | None = None
        self._rounds: Rounds | None = None

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The same records in the same order, each as perturbed by the time it is read; for `dataset.apply`.

        The data set is of (x, y), not in batches, of known length and stable order. It is read once, here, and kept in memory. What
        comes out can be read as soon as there is a `callback()`: until then its records are as they were given. What comes
        between it and `fit` sees new values as far as it has not read ahead (`shuffle`, `prefetch`); `cache()` never does.
        """
        if self._records is not None:
            raise ValueError(
                "One InfluencePerturbation is for one data set. Make another for another data set or training."
            )
        self._check_model()
        self._records = records_so_far.read(dataset)
        return self._records.dataset()

    def callback(self) -> InfluenceRounds:
        """The rounds, for one call of `fit` on the data set that this was applied to.

        As many records are drawn as `fit` takes steps, which is T of eq. 15: epochs times batches. With `batch(1)` a step is on one
        record, as in the paper. Afterwards the data set shows D_priv, on which anything may be trained without a callback.
        """
        if self._records is None:
            raise ValueError("There are no records yet: write noisy = dataset.apply(perturb) first, and fit on noisy.")
        self._records.get_ready()
        return InfluenceRounds(self._begin, self._setting.local_steps)

    @property
    def result(self) -> PerturbedTraining:
        """Of `fit` with the callback, as far as it has come."""
        if self._rounds is None:
            raise ValueError("No round was held yet: give fit callbacks=[perturb.callback()].")
        return training_of(self._rounds, self._setting, OTHER_STEPS)

    def train(self, x: np.ndarray, y: np.ndarray, steps: int, learning_rate: float) -> PerturbedTraining:
        """Takes ``steps`` steps of algorithm 2, and leaves theta_priv in the model.

        Weights that were trained privately before lose what was proven of them: their ledger gets an infinite line.
        """
        self._check_model()
        records, local_steps = RecordsSoFar(x, y), self._setting.local_steps
        steps = checks.count("steps", steps, "write T, a multiple of local_steps, such as 1000", at_least=1)
        learning_rate = checks.positive("learning_rate", learning_rate, "write alpha, such as 0.1")
        if steps % local_steps:
            raise ValueError(f"steps={steps} is no multiple of local_steps={local_steps}: a round is not cut.")
        rounds = Rounds(self._model, records, self._setting, steps)
        expose(self._model.trainable_variables)
        step = tf.function(self._step, reduce_retracing=True)
        for _ in range(steps // local_steps):
            for number, large in rounds.draw(local_steps):
                used = rounds.perturb(number, large)
                if used is not None:
                    step(rounds.derivatives, used, records.y[number : number + 1], learning_rate)
        return training_of(rounds, self._setting)

    def _begin(self, model: keras.Model, steps: int | None) -> Rounds:
        """Of `fit`, before its first step."""
        if model is not self._model:
            raise ValueError(
                f"The callback is for the model {self._model.name!r} that the InfluencePerturbation was made with, and fit trains "
                f"{model.name!r}."
            )
        if self._rounds is not None:
            raise ValueError(
                "One InfluencePerturbation is for one call of fit, whose number of steps is in its noise. Go on without the callback, on "
                "D_priv, or make another."
            )
        if not steps:
            raise ValueError(
                "The number of steps is not known, and is in the noise (T of eq. 15). Give fit steps_per_epoch=."
            )
        self._check_model()
        self._rounds = Rounds(model, self._records, self._setting, steps)
        expose(model.trainable_variables)
        return self._rounds

    def _check_model(self) -> None:
        if hasattr(getattr(self._model, "optimizer", None), "ledger"):
            raise ValueError(
                "The model is compiled with a private optimizer, whose ledger can't price these steps: nothing is proven of them. "
                "Compile it with an ordinary one."
            )

    def _step(self, derivatives, x, y, learning_rate) -> None:
        """Lines 10 and 12: one gradient step."""
        gradient = derivatives.split(derivatives.gradient(x, y))
        for variable, part in zip(self._model.trainable_variables, gradient, strict=True):
            variable.assign_sub(tf.cast(learning_rate * part, variable.dtype))
