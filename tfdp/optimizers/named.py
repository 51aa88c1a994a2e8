"""NoisySGD, NoisyAdam (Bu et al. 2019, algorithms 1 and 2) and NoisyAdagrad: PrivateOptimizer with the Gaussian mechanism."""

import keras

from tfdp.mechanisms import GaussianMechanism
from tfdp.optimizers.private_optimizer import PrivateOptimizer, check_privacy

_ARGUMENTS = """
    Args:
        learning_rate: a number, a schedule or a callable.
        l2_norm_clip: the most an example's gradient may weigh, as an l2 norm over all trainable weights jointly.
        noise_multiplier: the noise's standard deviation in units of ``l2_norm_clip``. 0.0 trains without noise and
            without privacy.
        target_epsilon: in place of ``noise_multiplier``, the largest epsilon that training may cost: the first ``fit``
            finds the noise that its steps need. No step is taken past them; a later ``fit`` that would cost more raises.
        delta: the delta that ``target_epsilon`` is meant at; well below 1 / (number of records).
        accountant: the one that ``target_epsilon`` is meant in: "pld" (tight), "rdp" (a privacy filter: settings of later
            fits may depend on the results of earlier ones), "moments" or "gdp" (approximate).
        max_physical_batch: the most examples run at once; a larger lot is run in parts inside one step.
        noise_seed: makes noise reproducible, for tests. There is no privacy then, and the ledger says so; so it can't go
            with ``target_epsilon``.
        private_logs: leave out the count of examples with gradients that are not finite.
        **arguments: every other argument of ``keras.optimizers.{inner}``. Its ``clipnorm``, ``weight_decay`` and the like
            act after the noise.
"""


class NamedOptimizer(PrivateOptimizer):
    """A PrivateOptimizer that makes its own inner optimizer."""

    inner_class: type[keras.optimizers.Optimizer]

    def __init__(
        self,
        learning_rate=None,
        *,
        l2_norm_clip: float | None = None,
        noise_multiplier: float | None = None,
        target_epsilon: float | None = None,
        delta: float | None = None,
        accountant: str = "pld",
        max_physical_batch: int | None = None,
        noise_seed: int | None = None,
        private_logs: bool = False,
        name: str | None = None,
        **arguments,
    ):
        if l2_norm_clip is None:
            raise ValueError(
                "Give l2_norm_clip=, a positive number: the most one example's gradient may weigh, as an l2 norm over all "
                "trainable weights. 1.0 is a usual start."
            )
        if "num_microbatches" in arguments:
            raise ValueError("num_microbatches is not needed: every example is clipped by itself. Leave it out.")
        check_privacy(noise_multiplier, target_epsilon, delta, accountant, noise_seed)
        if arguments.get("epsilon", 0.0) >= 0.01:
            raise ValueError(
                f"epsilon={arguments['epsilon']} is the small number in the divisor of keras.optimizers."
                f"{self.inner_class.__name__}. Did you mean target_epsilon=?"
            )
        if learning_rate is not None:
            arguments["learning_rate"] = learning_rate
        super().__init__(
            self.inner_class(**arguments),
            GaussianMechanism(l2_norm_clip, noise_multiplier),
            target_epsilon=target_epsilon,
            delta=delta,
            accountant=accountant,
            max_physical_batch=max_physical_batch,
            noise_seed=noise_seed,
            private_logs=private_logs,
            name=name or self.default_name,
        )

    def get_config(self):
        inner = self.inner_optimizer.get_config()
        for own in ("name", "gradient_accumulation_steps", "loss_scale_factor"):
            inner.pop(own, None)
        return {**inner, **self._configured_mechanism().get_config(), **self._private_config()}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        if isinstance(config.get("learning_rate"), dict):
            config["learning_rate"] = keras.saving.deserialize_keras_object(
                config["learning_rate"], custom_objects=custom_objects
            )
        return cls(**config)


@keras.saving.register_keras_serializable("tfdp")
class NoisySGD(NamedOptimizer):
    __doc__ = f"""Differentially private SGD (Bu et al. 2019, algorithm 1).

    ``w <- w - learning_rate * (sum_i clip(g_i, C) + sigma C N(0, I)) / batch_size``, with momentum if wanted.

    Example:

    >>> model.compile(optimizer=tfdp.NoisySGD(0.15, l2_norm_clip=1.0, noise_multiplier=1.3), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="SGD")}"""

    inner_class = keras.optimizers.SGD
    default_name = "noisy_sgd"


@keras.saving.register_keras_serializable("tfdp")
class NoisyAdam(NamedOptimizer):
    __doc__ = f"""Differentially private Adam (Bu et al. 2019, algorithm 2): Adam on the noisy clipped gradient.

    Example:

    >>> model.compile(optimizer=tfdp.NoisyAdam(1e-3, l2_norm_clip=1.0, noise_multiplier=1.1), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="Adam")}"""

    inner_class = keras.optimizers.Adam
    default_name = "noisy_adam"


@keras.saving.register_keras_serializable("tfdp")
class NoisyAdagrad(NamedOptimizer):
    __doc__ = f"""Differentially private AdaGrad: AdaGrad on the noisy clipped gradient.

    Example:

    >>> model.compile(optimizer=tfdp.NoisyAdagrad(0.05, l2_norm_clip=1.0, noise_multiplier=1.1), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="Adagrad")}"""

    inner_class = keras.optimizers.Adagrad
    default_name = "noisy_adagrad"
