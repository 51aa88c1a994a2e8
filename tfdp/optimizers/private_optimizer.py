"""PrivateOptimizer: differential privacy around any Keras optimizer."""

import json

import keras
import numpy as np
import tensorflow as tf
from keras.src.utils import tracking

from tfdp.accounting import Event, Ledger, NotPrivateEvent, Poisson, Sampling
from tfdp.mechanisms import GaussianMechanism, SecretGenerator

ONLY_FIT = (
    "A private optimizer moves weights only inside model.fit, where lots are drawn, gradients clipped and noised, and "
    "the ledger written. Write model.compile(optimizer=...) and model.fit(x, y, batch_size=expected_lot_size)."
)


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
        mechanism: what makes a private gradient, for example ``tfdp.mechanisms.GaussianMechanism``.
        max_physical_batch: the most examples to run at once; a larger lot is run in parts inside one step. Memory, not
            privacy or result, depends on it.
        noise_seed: makes the noise reproducible, for tests: whoever knows it can subtract the noise, so every step is then
            an infinite line in the ledger.
        private_logs: leave out the count of examples whose gradients were not finite (``non_finite_examples``), a
            diagnostic that is not private, as training metrics are not.
    """

    def __init__(
        self,
        inner_optimizer: keras.optimizers.Optimizer | str,
        mechanism: GaussianMechanism,
        *,
        max_physical_batch: int | None = None,
        noise_seed: int | None = None,
        private_logs: bool = False,
        name: str = "private_optimizer",
    ):
        if isinstance(inner_optimizer, str):
            inner_optimizer = keras.optimizers.get(inner_optimizer)
        check_inner(inner_optimizer)
        if max_physical_batch is not None and (
            not isinstance(max_physical_batch, int | np.integer)
            or isinstance(max_physical_batch, bool)
            or max_physical_batch < 1
        ):
            raise ValueError(f"max_physical_batch must be a positive whole number or None, not {max_physical_batch!r}.")
        if not all(hasattr(mechanism, part) for part in ("bounded_sum", "privatise", "event")):
            raise ValueError(
                f"mechanism must be what makes a private gradient, such as tfdp.mechanisms.GaussianMechanism(l2_norm_clip=1.0, "
                f"noise_multiplier=1.1), not {mechanism!r}."
            )
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = inner_optimizer
        self.mechanism = mechanism
        self.max_physical_batch = max_physical_batch
        self.noise_seed = noise_seed
        self.private_logs = bool(private_logs)
        # An int64 assigned in the same graph as the weights: whatever saves the weights saves how many steps they hold.
        self._steps = self.add_variable((), "zeros", "int64", aggregation="only_first_replica", name="released_steps")
        self._secret = Untracked(SecretGenerator(noise_seed))
        self._book = Book(self._steps)
        with tf.init_scope():
            self._not_finite = Untracked(tf.Variable(0, dtype=tf.int64, trainable=False))
        self.inner_optimizer.__dict__["apply"] = refuse_apply  # nobody reaches the weights through the inner one

    # The ledger.

    @property
    def ledger(self) -> Ledger:
        """What was released so far, line by line."""
        return self._book.read()

    def open_line(self, event: Event, sampling: Sampling, steps_per_pass: int | None = None) -> None:
        """From now on every step is one of these."""
        if self._secret.value.seeded:
            event = NotPrivateEvent("noise_seed was given: whoever knows the seed can subtract the noise")
        self._book.open(event, sampling, steps_per_pass)

    def close_line(self) -> None:
        """Steps that turn up from now on (a checkpoint of another run was restored) are of unknown kind."""
        self._book.close()

    def adopt_ledger(self, ledger: Ledger, *, own_included: bool) -> None:
        """Go on from the ledger of a model, which may or may not hold this optimizer's own lines."""
        self._book.restore(ledger if own_included else Ledger.combined(ledger, self.ledger))

    # The step.

    @property
    def generator(self) -> SecretGenerator:
        return self._secret.value

    def release(self, gradients: list[tf.Tensor], variables: list[keras.Variable]) -> None:
        """Count the step, then let the inner optimizer apply a private gradient. Called by the private step alone."""
        self._steps.assign_add(1)
        type(self.inner_optimizer).apply(self.inner_optimizer, gradients, variables)

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
        self.inner_optimizer.build(variables)
        super().build(variables)

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
        super().save_own_variables(store)
        store["ledger"] = np.frombuffer(self.ledger.to_json().encode(), np.uint8)

    def load_own_variables(self, store):
        stored = {key: store[key] for key in store.keys()}  # noqa: SIM118 (Keras's stores are no mappings)
        text = stored.pop("ledger", None)
        super().load_own_variables(stored)
        if text is not None:
            self._book.restore(Ledger.from_json(bytes(np.asarray(text, np.uint8)).decode()))

    def get_config(self):
        return {
            "inner_optimizer": keras.saving.serialize_keras_object(self.inner_optimizer),
            "mechanism": keras.saving.serialize_keras_object(self.mechanism),
            **self._private_config(),
        }

    def _private_config(self):
        return {
            "max_physical_batch": self.max_physical_batch,
            "noise_seed": self.noise_seed,
            "private_logs": self.private_logs,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        for part in ("inner_optimizer", "mechanism"):
            if isinstance(config.get(part), dict):
                config[part] = keras.saving.deserialize_keras_object(config[part], custom_objects=custom_objects)
        return cls(**config)


class Untracked:
    """Keeps what must not be saved out of the sight of Keras's and TensorFlow's tracking of attributes."""

    def __init__(self, value):
        self.value = value


class Book(tf.train.experimental.PythonState):
    """The ledger in the making: closed lines, and one that is open from some step on.

    Being a PythonState, it is written into a ``tf.train.Checkpoint`` of the optimizer and read from it.
    """

    def __init__(self, steps: keras.Variable):
        self._steps = Untracked(steps)
        self._closed = Ledger()
        self._closed_at = 0
        self._line: tuple[Event, Sampling, int | None] | None = None

    def steps(self) -> int:
        return int(self._steps.value.numpy())

    def read(self) -> Ledger:
        since = self.steps() - self._closed_at
        if since <= 0:
            return self._closed
        if self._line is None:
            return self._closed.record(*unknown(), since)
        event, sampling, steps_per_pass = self._line
        passes = None if steps_per_pass is None else -(-since // steps_per_pass)
        return self._closed.record(event, sampling, since, passes)

    def open(self, event: Event, sampling: Sampling, steps_per_pass: int | None) -> None:
        self.close()
        self._line = (event, sampling, steps_per_pass)

    def close(self) -> None:
        self._closed, self._closed_at, self._line = self.read(), self.steps(), None

    def restore(self, ledger: Ledger) -> None:
        """From a file: steps that the weights hold beyond the ledger's are of unknown kind, an infinite line.

        An open line stays open: BackupAndRestore reads its file when fit has begun.
        """
        unknown_steps = self.steps() - ledger.steps
        self._closed = ledger.record(*unknown(), unknown_steps) if unknown_steps > 0 else ledger
        self._closed_at = self.steps()

    def serialize(self) -> str:
        ledger, steps = self._closed, self._closed_at
        with tf.init_scope():
            if tf.executing_eagerly():  # tf.saved_model.save can't read variables here: it leaves an open line out
                ledger, steps = self.read(), self.steps()
        return json.dumps({"ledger": ledger.to_json(), "steps": steps})

    def deserialize(self, text: bytes) -> None:
        stored = json.loads(text)  # its own count of steps: the variable may be read before or after
        self._closed, self._closed_at = Ledger.from_json(stored["ledger"]), stored["steps"]


def unknown() -> tuple[Event, Sampling]:
    return NotPrivateEvent("steps that no line of the ledger describes"), Poisson(1.0, None)


def refuse_apply(*args, **kwargs):
    raise RuntimeError(ONLY_FIT)


def check_inner(inner: keras.optimizers.Optimizer) -> None:
    """Inner optimizers that would undo what the mechanism does."""
    if isinstance(inner, PrivateOptimizer):
        raise ValueError("The inner optimizer is private already: use it by itself.")
    if not isinstance(inner, keras.optimizers.Optimizer):
        raise ValueError(f"inner_optimizer must be a Keras optimizer, not {inner!r}.")
    if isinstance(inner, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "LossScaleOptimizer reacts to the data (it skips steps whose gradients overflow). Give its inner optimizer; "
            "float16 gradients are scaled by a fixed number before clipping."
        )
    if inner.gradient_accumulation_steps:
        raise ValueError(
            "gradient_accumulation_steps would add up private gradients, each noised by itself. For large lots on little "
            "memory give the large batch_size to fit and max_physical_batch= to the private optimizer."
        )
    if inner.loss_scale_factor:
        raise ValueError("loss_scale_factor is not needed: float16 gradients are scaled inside the private step.")
