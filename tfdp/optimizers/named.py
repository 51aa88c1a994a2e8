"""Private optimizers by name: a PrivateOptimizer with one of Keras's optimizers and a mechanism.

NoisySGD, NoisyAdam (Bu et al. 2019, algorithms 1 and 2), NoisyAdagrad: isotropic noise. DirectionalDPSGD and
DirectionalDPAdam (after Xiang et al. 2021), AdaClipDPSGD and AdaClipDPAdam (Pichapati et al. 2019): clip and noise in an
ellipsoid.
"""

import keras

from tfdp.accounting import checks
from tfdp.mechanisms import AdaClipMechanism, GaussianMechanism, GaussianOnGridMechanism
from tfdp.optimizers.directional_forms import ARGUMENTS, check_target_of_published, chosen_form, form_of
from tfdp.optimizers.private_optimizer import PrivateOptimizer
from tfdp.optimizers.settings import check_known, check_privacy

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
        denoise: what is done to a private gradient before it moves weights, at no cost in privacy: "ks" or "laplacian"
            (``tfdp.mechanisms.denoised``).{own}
        **arguments: every other argument of ``keras.optimizers.{inner}``. Its ``clipnorm``, ``weight_decay`` and the like
            act after the noise.
"""

_GRID = """
        grid: round sums and noise to a fine public grid (False), so that the last bits of what is released say nothing
            (``tfdp.mechanisms.GaussianOnGridMechanism``, docs/threat_model.md). The noise is 0.1 % larger for it."""

_DIRECTIONAL = """
        direction: what the noise spares: by "noisy_gradient", the default, coordinates in which earlier releases are large in
            the mean; by "full_gradient" those in which the noised mean of all records' clipped gradients is large, a release
            of its own before the first step and after every ``direction_steps``; by "ones" all alike; or what a list of
            arrays, or a function of a weight, says. Arrays and functions must be public knowledge.
        moments: how large the squares of examples' gradients are in the mean, if that is public knowledge: a list of arrays or
            a function of a weight, of which only ratios count. Without it they are estimated from releases.
        s_min, s_max: the bounds of s (0.1 and 10, with ``moments`` 0.001 and 1000). With both 1 the noise is isotropic.
        decay: of the running means that s is made of (0.99).
        direction_noise_multiplier: with "full_gradient" and ``noise_multiplier``: that release's noise in units of the clip.
        direction_budget: with "full_gradient" and ``target_epsilon``: the share of it that these releases cost by
            themselves (1/8). Steps and releases together keep to the target.
        direction_steps: with "full_gradient": steps from one release to the next. None: ceil(n / batch_size), an epoch.
        pruning_ratio: the share of all coordinates by which weights do not move in a step (0.0). 0.9 keeps the largest tenth.
        pruning: "compress", the default, chooses among what was released and carries the rest to the next step; "support"
            leaves coordinates that were small in earlier releases out of clip and noise, "random" those that a public seed
            draws, for which ``direction`` is "ones" if not given and can't be "noisy_gradient".
        support_steps: with ``pruning="support"``: steps from one dense release, which chooses the support, to the next (10);
            with "random": from one drawing to the next (10).
        as_published: the paper's algorithm to the letter, for ``target_epsilon`` and ``delta`` (False). It does not give what it
            claims, and the statement says what is proven of it. ``direction`` is "full_gradient" (before every step, the default
            here), "ones", arrays or a function; none of s is used. With ``pruning_ratio`` nothing is proven.
        sigma_floor: with ``as_published``: the least noise of a coordinate, in units of ``l2_norm_clip``."""

_ADACLIP = """
        variance_min, variance_max: bounds of a coordinate's variance (1e-12 and 10).
        mean_decay, variance_decay: of the running means (0.99 and 0.9)."""


_DIVISOR = "write a small number to keep divisors above 0, such as 1e-7"


class NamedOptimizer(PrivateOptimizer):
    """A PrivateOptimizer that makes its own inner optimizer and mechanism.

    The mechanism's own arguments are the optimizer's, too: those in ``mechanism_arguments`` go there, all that are left to the
    inner optimizer.
    """

    inner_class: type[keras.optimizers.Optimizer]
    mechanism_class: type[GaussianMechanism] = GaussianMechanism
    mechanism_arguments: tuple[str, ...] = ()

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
        denoise: str | None = None,
        name: str | None = None,
        **arguments,
    ):
        if "num_microbatches" in arguments:
            raise ValueError("num_microbatches is not needed: every example is clipped by itself. Leave it out.")
        takers = (NamedOptimizer, self.inner_class)
        check_known(type(self).__name__, arguments, takers, self.mechanism_arguments)
        if l2_norm_clip is None:
            raise ValueError(
                "Give l2_norm_clip=, a positive number: the most one example's gradient may weigh, as an l2 norm over all "
                "trainable weights. 1.0 is a usual start."
            )
        if name is not None and not isinstance(name, str):
            raise ValueError(f"name must be a string or None, not {name!r}.")
        check_privacy(noise_multiplier, target_epsilon, delta, accountant, noise_seed)
        if "epsilon" in arguments and checks.non_negative("epsilon", arguments["epsilon"], _DIVISOR) >= 0.01:
            raise ValueError(
                f"epsilon={arguments['epsilon']} is the small number in the divisor of keras.optimizers."
                f"{self.inner_class.__name__}. Did you mean target_epsilon=?"
            )
        if learning_rate is not None:
            arguments["learning_rate"] = learning_rate
        privacy = {"noise_multiplier": noise_multiplier, "target_epsilon": target_epsilon, "delta": delta}
        mechanism = self._mechanism(arguments, {"l2_norm_clip": l2_norm_clip, **privacy})
        super().__init__(
            self.inner_class(**arguments),
            mechanism,
            target_epsilon=target_epsilon,
            delta=delta,
            accountant=accountant,
            max_physical_batch=max_physical_batch,
            noise_seed=noise_seed,
            private_logs=private_logs,
            denoise=denoise,
            name=name or self.default_name,
        )

    def _mechanism(self, arguments: dict, privacy: dict) -> GaussianMechanism:
        """Takes the mechanism's arguments out of those that were given, and makes it."""
        own = {argument: arguments.pop(argument) for argument in self.mechanism_arguments if argument in arguments}
        noise = {name: privacy[name] for name in ("l2_norm_clip", "noise_multiplier")}
        return self.mechanism_class.from_config({**noise, **own})

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


class Noisy(NamedOptimizer):
    """Isotropic noise, on a grid or not."""

    mechanism_arguments = ("grid",)

    def _mechanism(self, arguments: dict, privacy: dict) -> GaussianMechanism:
        grid = arguments.pop("grid", False)
        kind = GaussianOnGridMechanism if checks.true_or_false("grid", grid) else GaussianMechanism
        return kind(privacy["l2_norm_clip"], privacy["noise_multiplier"])

    def get_config(self):
        return {**super().get_config(), "grid": isinstance(self.mechanism, GaussianOnGridMechanism)}


@keras.saving.register_keras_serializable("tfdp")
class NoisySGD(Noisy):
    __doc__ = f"""Differentially private SGD (Bu et al. 2019, algorithm 1).

    ``w <- w - learning_rate * (sum_i clip(g_i, C) + sigma C N(0, I)) / batch_size``, with momentum if wanted.

    Example:

    >>> model.compile(optimizer=tfdp.NoisySGD(0.15, l2_norm_clip=1.0, noise_multiplier=1.3), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="SGD", own=_GRID)}"""

    inner_class = keras.optimizers.SGD
    default_name = "noisy_sgd"


@keras.saving.register_keras_serializable("tfdp")
class NoisyAdam(Noisy):
    __doc__ = f"""Differentially private Adam (Bu et al. 2019, algorithm 2): Adam on the noisy clipped gradient.

    Example:

    >>> model.compile(optimizer=tfdp.NoisyAdam(1e-3, l2_norm_clip=1.0, noise_multiplier=1.1), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="Adam", own=_GRID)}"""

    inner_class = keras.optimizers.Adam
    default_name = "noisy_adam"


@keras.saving.register_keras_serializable("tfdp")
class NoisyAdagrad(Noisy):
    __doc__ = f"""Differentially private AdaGrad: AdaGrad on the noisy clipped gradient.

    Example:

    >>> model.compile(optimizer=tfdp.NoisyAdagrad(0.05, l2_norm_clip=1.0, noise_multiplier=1.1), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="Adagrad", own=_GRID)}"""

    inner_class = keras.optimizers.Adagrad
    default_name = "noisy_adagrad"


class Directional(NamedOptimizer):
    """Noise with a standard deviation for each coordinate: ``DirectionalMechanism``, or one of the other forms."""

    mechanism_arguments = ARGUMENTS

    def __init__(self, *positional, **arguments):
        if arguments.get("as_published") is True:
            check_target_of_published(arguments)
        if arguments.get("target_epsilon") is None and arguments.get("direction_budget", 1 / 8) != 1 / 8:
            raise ValueError(
                "direction_budget= is a share of target_epsilon=. With noise_multiplier= give direction_noise_multiplier=."
            )
        super().__init__(*positional, **arguments)

    def _mechanism(self, arguments: dict, privacy: dict) -> GaussianMechanism:
        form = chosen_form(arguments)
        own = {argument: arguments.pop(argument) for argument in form.arguments if argument in arguments}
        names = ["l2_norm_clip", "noise_multiplier"]
        if form.mechanism.has_own_accounting:
            names += ["target_epsilon", "delta"]
        return form.mechanism.from_config({**{name: privacy[name] for name in names}, **own})

    def get_config(self):
        return {**super().get_config(), **form_of(self.mechanism).chosen_by}


@keras.saving.register_keras_serializable("tfdp")
class DirectionalDPSGD(Directional):
    __doc__ = f"""SGD with directional noise (after Xiang et al. 2021).

    A coordinate's noise has the standard deviation ``noise_multiplier * l2_norm_clip * s``, and examples are clipped to
    ``||g / s|| <= l2_norm_clip``. So it costs exactly what NoisySGD costs, whatever s is; s is made of what was released before.

    Example:

    >>> model.compile(optimizer=tfdp.DirectionalDPSGD(0.15, l2_norm_clip=1.0, noise_multiplier=1.3), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="SGD", own=_DIRECTIONAL)}"""

    inner_class = keras.optimizers.SGD
    default_name = "directional_dp_sgd"


@keras.saving.register_keras_serializable("tfdp")
class DirectionalDPAdam(Directional):
    __doc__ = f"""Adam with directional noise (after Xiang et al. 2021): see ``DirectionalDPSGD``.

    Example:

    >>> model.compile(optimizer=tfdp.DirectionalDPAdam(1e-3, l2_norm_clip=1.0, noise_multiplier=1.1), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="Adam", own=_DIRECTIONAL)}"""

    inner_class = keras.optimizers.Adam
    default_name = "directional_dp_adam"


class AdaClip(NamedOptimizer):
    """Clip and noise around the running mean of the releases, by their spread: ``AdaClipMechanism``."""

    mechanism_class = AdaClipMechanism
    mechanism_arguments = ("variance_min", "variance_max", "mean_decay", "variance_decay")


@keras.saving.register_keras_serializable("tfdp")
class AdaClipDPSGD(AdaClip):
    __doc__ = f"""SGD with AdaClip (Pichapati et al. 2019): a baseline of Xiang et al.

    Examples are clipped to ``||(g - a) / b|| <= l2_norm_clip``, with a the mean and b the spread of earlier releases, in units in
    which that is about 1 for a usual example; a coordinate's noise has the standard deviation ``noise_multiplier *
    l2_norm_clip * b``. So it costs exactly what NoisySGD costs.

    Example:

    >>> model.compile(optimizer=tfdp.AdaClipDPSGD(0.15, l2_norm_clip=0.1, noise_multiplier=1.3), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="SGD", own=_ADACLIP)}"""

    inner_class = keras.optimizers.SGD
    default_name = "adaclip_dp_sgd"


@keras.saving.register_keras_serializable("tfdp")
class AdaClipDPAdam(AdaClip):
    __doc__ = f"""Adam with AdaClip (Pichapati et al. 2019): see ``AdaClipDPSGD``.

    Example:

    >>> model.compile(optimizer=tfdp.AdaClipDPAdam(1e-3, l2_norm_clip=0.1, noise_multiplier=1.1), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="Adam", own=_ADACLIP)}"""

    inner_class = keras.optimizers.Adam
    default_name = "adaclip_dp_adam"
