"""PrivateOptimizer: differential privacy around any Keras optimizer."""

import keras
import numpy as np
import tensorflow as tf
from keras.src.utils import tracking

from tfdp.accounting import Budget, Event, FitRecord, Ledger, NotPrivateEvent, checks
from tfdp.mechanisms import GaussianMechanism, SecretGenerator
from tfdp.mechanisms.gaussian import State, if_any
from tfdp.optimizers.attributes import check_settable
from tfdp.optimizers.book import Book, Untracked
from tfdp.optimizers.inner import ONLY_FIT, check_inner, nothing_to_reduce, refuse_apply
from tfdp.optimizers.saved_ledger import TEXTS, as_array, as_text, read_texts
from tfdp.optimizers.settings import check_mechanism, check_privacy


@keras.saving.register_keras_serializable("tfdp")
class PrivateOptimizer(keras.optimizers.Optimizer):
    """Trains a model with differential privacy, with another optimizer's update rule.

    In ``model.fit`` the mechanism turns a lot's per-example gradients into one private gradient; the inner optimizer
    applies it as it would an ordinary one, which costs no privacy (post-processing). Everything the inner optimizer can do
    (schedules, momentum, weight decay, ``clipnorm``, averages of weights) acts on the private gradient. Any other way to a
    weight update raises: ``apply``, ``apply_gradients``, ``train_on_batch``, custom loops.

    Example:

    >>> optimizer = tfdp.PrivateOptimizer(
    ...     keras.optimizers.Lion(1e-4), tfdp.mechanisms.GaussianMechanism(l2_norm_clip=1.0, noise_multiplier=1.1))
    >>> model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    >>> model.fit(x, y, batch_size=256, epochs=5)

    Args:
        inner_optimizer: any Keras optimizer, or the name of one.
        mechanism: what makes a private gradient, for example ``tfdp.mechanisms.GaussianMechanism``. With ``target_epsilon``
            its ``noise_multiplier`` is None: it is found in ``fit``, where sampling and steps are known.
        target_epsilon: the largest epsilon that training may cost. The first ``fit`` is given as much noise as its steps
            need, no step is taken past them, and a later ``fit`` that would cost more raises.
        delta: the delta that ``target_epsilon`` is meant at.
        accountant: the one that ``target_epsilon`` is meant in. "rdp" is a privacy filter: what it promises holds even if
            settings of later fits are chosen by looking at the results of earlier ones.
        max_physical_batch: the most examples to run at once; a larger lot is run in parts inside one step. Memory, not
            privacy or result, depends on it.
        noise_seed: makes the noise reproducible, for tests: whoever knows it can subtract the noise, so every step is then
            an infinite line in the ledger, and no ``target_epsilon`` can be kept.
        private_logs: leave out the count of examples whose gradients were not finite (``non_finite_examples``), a
            diagnostic that is not private, as training metrics are not.
        denoise: what is done to a private gradient before it moves weights: "ks" scales it by its Kolmogorov-Smirnov distance
            from the noise, "laplacian" smooths it (``tfdp.mechanisms.denoised``). It costs no privacy.
    """

    def __init__(
        self,
        inner_optimizer: keras.optimizers.Optimizer | str,
        mechanism: GaussianMechanism,
        *,
        target_epsilon: float | None = None,
        delta: float | None = None,
        accountant: str = "pld",
        max_physical_batch: int | None = None,
        noise_seed: int | None = None,
        private_logs: bool = False,
        denoise: str | None = None,
        name: str = "private_optimizer",
    ):
        inner_optimizer = keras.optimizers.get(inner_optimizer) if isinstance(inner_optimizer, str) else inner_optimizer
        if isinstance(inner_optimizer, PrivateOptimizer):
            raise ValueError("The inner optimizer is private already: use it by itself.")
        check_inner(inner_optimizer)
        check_mechanism(mechanism, max_physical_batch, denoise)
        checks.true_or_false("private_logs", private_logs)
        check_privacy(mechanism.noise_multiplier, target_epsilon, delta, accountant, noise_seed)
        mechanism.check_target(target_epsilon, delta, accountant)
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = inner_optimizer
        self.inner_optimizer.__dict__["apply"] = refuse_apply  # nobody reaches the weights through the inner one
        self.mechanism = mechanism
        self.delta = None if delta is None else checks.delta(delta)
        self.budget = None if target_epsilon is None else Budget(target_epsilon, delta, accountant)
        self.max_physical_batch = max_physical_batch
        self.noise_seed = noise_seed
        self.private_logs = private_logs
        self.denoise = denoise
        self._begin_counting()
        self._secret = Untracked(SecretGenerator(noise_seed))
        self._is_made = True

    def __setattr__(self, name, value):
        if self.__dict__.get("_is_made", False):
            check_settable(self, name, value)
        super().__setattr__(name, value)

    def _begin_counting(self) -> None:
        """Of nothing yet: the ledger, what the mechanism remembers, and gradients that were not finite."""
        # An int64 assigned in the same graph as the weights: whatever saves the weights saves how many steps they hold.
        self._steps = self.add_variable((), "zeros", "int64", aggregation="only_first_replica", name="released_steps")
        self._state_of_mechanism = Untracked({})  # the variables themselves are, see add_variable
        self._first_mechanism, self._settled = Untracked(None), Untracked({})
        self.book = Book(self._steps, self._forget_unsaved)
        with tf.init_scope():
            self._not_finite = Untracked(tf.Variable(0, dtype=tf.int64, trainable=False))

    # The ledger.

    @property
    def ledger(self) -> Ledger:
        """What was released so far, line by line."""
        return self.book.read().ledger

    @property
    def fits(self) -> tuple[FitRecord, ...]:
        """The circumstances of the fits that wrote the ledger: budgets, callbacks, what the user declared."""
        return self.book.read().fits

    def event_of(self, mechanism: GaussianMechanism, state: State | None = None) -> Event:
        """What a step with this mechanism in this state, and this optimizer's noise, releases."""
        if self._secret.value.seeded:
            return NotPrivateEvent("noise_seed was given: whoever knows the seed can subtract the noise")
        return mechanism.event(*if_any(state))

    # The step.

    @property
    def generator(self) -> SecretGenerator:
        return self._secret.value

    def release(self, gradients: list[tf.Tensor], variables: list[keras.Variable], state: State) -> None:
        """Count the step, then let the inner optimizer apply a private gradient. Called by the private step alone.

        ``state`` is what the mechanism remembers from now on. In this order: whoever reads both in between (a checkpoint
        written by another thread) finds no step uncounted.
        """
        with tf.control_dependencies(self.book.count_step()):
            gradients = tf.identity_n(gradients)
            self.remember(state)
        with nothing_to_reduce(self.inner_optimizer):
            type(self.inner_optimizer).apply(self.inner_optimizer, gradients, variables)

    @property
    def written(self) -> list[tf.Variable]:
        """All that a release may write: weights, what the inner optimizer and the mechanism keep, counts, the noise's counter."""
        kept = [v for some in self._state_of_mechanism.value.values() for v in some]
        own = [v.value for v in (*self._trainable_variables, *self.variables, *kept)]
        return [*own, *self.book.counters, self._not_finite.value, self.generator.state]

    @property
    def not_noised(self) -> list[tf.Variable]:
        """What is counted of the records as it is: nothing may depend on it."""
        return [self._not_finite.value]

    @property
    def counts(self) -> list[tf.Variable]:
        """What a release writes beside the weights: no layer may read it."""
        weights = {id(v.value) for v in self._trainable_variables}
        return [v for v in self.written if id(v) not in weights]

    def remember(self, state: State) -> None:
        """What the mechanism makes of a release that was counted; what ``state`` leaves out stays as it is."""
        state = {name: [tf.identity(value) for value in values] for name, values in state.items()}
        for name, values in state.items():
            for variable, value in zip(self._state_of_mechanism.value[name], values, strict=True):
                variable.assign(value)

    @property
    def state_of_mechanism(self) -> State:
        """What the mechanism remembers of its releases."""
        return {name: [tf.identity(v.value) for v in some] for name, some in self._state_of_mechanism.value.items()}

    def check_mechanism(self) -> None:
        """A mechanism that remembers its releases can't be replaced by another, nor replace one: what it would go on from,
        it has not released. And what it remembers was made for settings that must stay as they were.

        Raises:
            ValueError: ``mechanism`` was replaced, or one of its settled settings changed, since the weights are known; or
                float32 would lose its noise.
        """
        own, first = self.mechanism, self._first_mechanism.value
        if hasattr(own, "check_noise"):
            own.check_noise()
        if first is None:
            return
        if own is first:
            self._check_settled()
            return
        if self._state_of_mechanism.value or own.initial_state(self._trainable_variables):
            raise ValueError(
                f"The mechanism was replaced after training began, by a {type(own).__name__}, but the optimizer's "
                f"{type(first).__name__} or this one remembers what it released. Compile again with a new optimizer; the model "
                "keeps its ledger."
            )
        self._settle()

    def _settle(self) -> None:
        self._first_mechanism.value, self._settled.value = self.mechanism, self.mechanism.settled

    def _check_settled(self) -> None:
        for name, now in self.mechanism.settled.items():
            before = self._settled.value[name]
            if before is not now and not (isinstance(now, str | int) and before == now):
                raise ValueError(
                    f"The mechanism's {name} was {before!r} when the weights became known, and what it remembers was made for that: "
                    f"it can't become {now!r}. Compile again with a new optimizer; the model keeps its ledger."
                )

    def count_not_finite(self, examples: tf.Tensor) -> None:
        self._not_finite.value.assign_add(examples)

    @property
    def non_finite_examples(self) -> int | None:
        """How many times an example's gradient was not finite and so contributed 0, since this object was made.

        A diagnostic, not private: it is never saved and no callback sees it. None with ``private_logs=True``.
        """
        return None if self.private_logs else int(self._not_finite.value.numpy())

    def apply(self, grads, trainable_variables=None):
        raise RuntimeError(ONLY_FIT)

    def apply_gradients(self, grads_and_vars):
        raise RuntimeError(ONLY_FIT)

    def scale_loss(self, loss):
        # The first thing an ordinary train_step asks of its optimizer, before it computes any gradient.
        raise RuntimeError(ONLY_FIT)

    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        raise RuntimeError(ONLY_FIT)

    # The face of the inner optimizer.

    @tracking.no_automatic_dependency_tracking
    def build(self, variables):
        if self.built:
            return
        state = self.mechanism.initial_state(variables)  # raises before anything was built
        self._settle()
        self.inner_optimizer.build(variables)
        super().build(variables)
        for name, values in state.items():
            make = self._unsaved_variable if name in self.mechanism.unsaved else self._saved_variable
            self._state_of_mechanism.value[name] = [
                make(f"{name}_{number}", value) for number, value in enumerate(values)
            ]

    def _saved_variable(self, name: str, value: np.ndarray) -> keras.Variable:
        return self.add_variable(value.shape, keras.initializers.Constant(value), "float32", name=name)

    def _unsaved_variable(self, name: str, value: np.ndarray) -> keras.Variable:
        """Not among ``variables``, and out of sight of all tracking: no file ever holds it."""
        return keras.Variable(value, dtype="float32", trainable=False, name=name)

    @property
    def variables(self):
        return self._variables + self.inner_optimizer.variables

    @property
    def learning_rate(self):
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def iterations(self):
        return self.inner_optimizer.iterations

    @property
    def use_ema(self):
        return self.inner_optimizer.use_ema if hasattr(self, "inner_optimizer") else False

    @use_ema.setter
    def use_ema(self, value):
        if value:
            raise ValueError("Set use_ema on the inner optimizer.")

    def finalize_variable_values(self, var_list):
        self.inner_optimizer.finalize_variable_values(var_list)

    # Saving.

    def save_own_variables(self, store):
        steps = self.book.saved_steps  # first: what is written of the weights afterwards has as many, or more
        super().save_own_variables(store)
        saved = self.book.as_saved(steps)
        for name, text in saved.to_texts().items():
            store[name] = as_array(text)
        self.book.written = saved.past.ledger.steps

    def load_own_variables(self, store):
        with self.book.distrusted_if_damaged():
            stored = {key: store[key] for key in store.keys()}  # noqa: SIM118 (Keras's stores are no mappings)
            saved = read_texts({name: as_text(stored.pop(name)) for name in TEXTS if name in stored})
            if saved is not None:
                (number,) = (n for n, variable in enumerate(self._variables) if variable is self._steps)
                saved.check_count(stored.get(str(number)))
        try:
            super().load_own_variables(stored)
        finally:  # the model's weights were loaded before
            self._forget_unsaved()
            if saved is not None:
                self.book.restore(saved)
                self.book.described = saved.past.ledger.steps

    def _forget_unsaved(self) -> None:
        """What was never saved belongs to the weights that were there before."""
        for name in set(self.mechanism.unsaved) & set(self._state_of_mechanism.value):
            for variable in self._state_of_mechanism.value[name]:
                variable.assign(np.zeros(variable.shape, np.float32))

    def get_config(self):
        return {
            "inner_optimizer": keras.saving.serialize_keras_object(self.inner_optimizer),
            "mechanism": keras.saving.serialize_keras_object(self._configured_mechanism()),
            **self._private_config(),
        }

    def _configured_mechanism(self) -> GaussianMechanism:
        """As it was given: noise that was found for a target is saved with the ledger, it is not part of the settings."""
        config = self.mechanism.get_config()
        if self.budget is not None:
            config |= {name: None for name in self.mechanism.calibrated if name in config}
        return type(self.mechanism).from_config(config)

    def _private_config(self):
        budget = {"target_epsilon": None, "accountant": "pld"}
        if self.budget is not None:
            budget = {"target_epsilon": self.budget.target_epsilon, "accountant": self.budget.accountant}
        return {
            **budget,
            "delta": self.delta,
            "max_physical_batch": self.max_physical_batch,
            "noise_seed": self.noise_seed,
            "private_logs": self.private_logs,
            "denoise": self.denoise,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        for part in ("inner_optimizer", "mechanism"):
            if isinstance(config.get(part), dict):
                config[part] = keras.saving.deserialize_keras_object(config[part], custom_objects=custom_objects)
        return cls(**config)
