"""Private optimizers by name whose gradients are encoded, with noise of any family: EncodedDPSGD, EncodedDPAdam."""

import keras

from tfdp.mechanisms import EncodedMechanism
from tfdp.mechanisms.denoising import KS
from tfdp.optimizers.named import NamedOptimizer

_ARGUMENTS = """
    Args:
        learning_rate: a number, a schedule or a callable.
        l2_norm_clip: the l2 norm of a codeword, and the unit of the noise.
        noise: what is added to each coordinate, in units of ``l2_norm_clip``: ``tfdp.noise.StudentT(df=9, stddev=1.0)`` if not
            said otherwise, or any other ``tfdp.noise.Noise``.
        noise_multiplier: by how much ``noise`` is multiplied (1.0). 0.0 trains without noise and without privacy.
        target_epsilon: in place of ``noise_multiplier``, the largest epsilon that training may cost: the first ``fit`` finds the size
            of ``noise`` that its steps need. No step is taken past them; a later ``fit`` that would cost more raises.
        delta: the delta that ``target_epsilon`` is meant at; well below 1 / (number of records).
        accountant: the one that ``target_epsilon`` is meant in: "pld" (tight) or "rdp" (a privacy filter: settings of later fits may
            depend on the results of earlier ones).
        codebook_size: how many codewords there are (1000).
        denoise: what is done to a private gradient before it moves weights, at no cost in privacy: "ks", the default here, scales it by
            its Kolmogorov-Smirnov distance from the noise; "laplacian" smooths it; None does nothing.
        microbatch_size: how many examples are encoded as one, by their mean gradient (1). Above 1 only with
            ``as_published=True``.
        as_published: the paper's algorithm with its microbatches. Its claim does not follow then, and the statement says so.
        max_physical_batch, noise_seed, private_logs: as of ``NoisySGD``.
        **arguments: every other argument of ``keras.optimizers.{inner}``. Its ``clipnorm``, ``weight_decay`` and the like
            act after the noise.
"""


class Encoded(NamedOptimizer):
    """Gradients cut to public codewords, and noise of any family: ``EncodedMechanism``."""

    mechanism_class = EncodedMechanism
    mechanism_arguments = ("noise", "codebook_size", "microbatch_size", "as_published")

    def __init__(
        self,
        *positional,
        noise_multiplier: float | None = None,
        target_epsilon: float | None = None,
        denoise: str | None = KS,
        **arguments,
    ):
        if noise_multiplier is None and target_epsilon is None:
            noise_multiplier = 1.0
        super().__init__(
            *positional,
            noise_multiplier=noise_multiplier,
            target_epsilon=target_epsilon,
            denoise=denoise,
            **arguments,
        )


@keras.saving.register_keras_serializable("tfdp")
class EncodedDPSGD(Encoded):
    __doc__ = f"""SGD on encoded gradients with noise of any family (Nasr et al. 2020).

    Each example's gradient is cut, coordinate by coordinate, to the magnitudes of the codeword that it resembles most; the
    sum gets noise, and the step is scaled by how far the result is from noise.

    Example:

    >>> model.compile(optimizer=tfdp.EncodedDPSGD(0.5, l2_norm_clip=1.0, target_epsilon=3.0, delta=1e-5), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="SGD")}"""

    inner_class = keras.optimizers.SGD
    default_name = "encoded_dp_sgd"


@keras.saving.register_keras_serializable("tfdp")
class EncodedDPAdam(Encoded):
    __doc__ = f"""Adam on encoded gradients with noise of any family (Nasr et al. 2020): see ``EncodedDPSGD``.

    Adam takes back most of what ``denoise="ks"`` does: it divides by the size of earlier gradients.

    Example:

    >>> model.compile(optimizer=tfdp.EncodedDPAdam(1e-3, l2_norm_clip=1.0, target_epsilon=3.0, delta=1e-5), loss="mse")
    >>> model.fit(x, y, batch_size=256, epochs=15)
    {_ARGUMENTS.format(inner="Adam")}"""

    inner_class = keras.optimizers.Adam
    default_name = "encoded_dp_adam"
