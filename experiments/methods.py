"""The ways of training, by name. Each says what it does, how it is made, and which settings it knows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras

    from experiments.settings import RunSettings
    from tfdp.noise import Noise

PRIVATE, RECORDS, ORDINARY = "noise on gradients", "noise on records", "no privacy"


@dataclasses.dataclass(frozen=True)
class Method:
    """A way of training.

    Attributes:
        about: one line for people.
        inner: "sgd", "adam" or "adagrad", which has a learning rate of its own in each task.
        optimizer: of tfdp, for noise on gradients.
        where: the noise goes.
        arguments: of the optimizer, that belong to the method.
        published: for noise on records: which paper's formula gives it, "input" or "data"; "" for proven noise.
    """

    about: str
    inner: str
    optimizer: str = ""
    where: str = PRIVATE
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    published: str = ""

    @property
    def encodes(self) -> bool:
        return self.optimizer.startswith("Encoded")


METHODS = {
    "noisy-sgd": Method("clip and Gaussian noise, SGD (Bu et al. 2019)", "sgd", "NoisySGD"),
    "noisy-adam": Method("clip and Gaussian noise, Adam (Bu et al. 2019)", "adam", "NoisyAdam"),
    "noisy-adagrad": Method("clip and Gaussian noise, AdaGrad", "adagrad", "NoisyAdagrad"),
    "directional-sgd": Method("noise by direction (after Xiang et al. 2021), SGD", "sgd", "DirectionalDPSGD"),
    "directional-adam": Method("noise by direction (after Xiang et al. 2021), Adam", "adam", "DirectionalDPAdam"),
    "adaclip-sgd": Method("AdaClip (Pichapati et al. 2019), SGD", "sgd", "AdaClipDPSGD"),
    "adaclip-adam": Method("AdaClip (Pichapati et al. 2019), Adam", "adam", "AdaClipDPAdam"),
    "encoded-sgd": Method("encoded gradients, any noise (after Nasr et al. 2020), SGD", "sgd", "EncodedDPSGD"),
    "encoded-adam": Method("encoded gradients, any noise (after Nasr et al. 2020), Adam", "adam", "EncodedDPAdam"),
    "dp-lssgd": Method("noisy SGD, smoothed (Wang et al. 2019)", "sgd", "NoisySGD", arguments={"denoise": "laplacian"}),
    "input-perturbation": Method("noise on the records, once; then ordinary Adam", "adam", where=RECORDS),
    "input-perturbation-published": Method(
        "noise on the records by Kang et al. 2020, input perturbation, eq. 12", "adam", where=RECORDS, published="input"
    ),
    "data-perturbation-published": Method(
        "noise on the records by Kang et al. 2020, data perturbation, eq. 10", "adam", where=RECORDS, published="data"
    ),
    "no-privacy-sgd": Method("ordinary SGD: NO PRIVACY, to compare with", "sgd", where=ORDINARY),
    "no-privacy-adam": Method("ordinary Adam: NO PRIVACY, to compare with", "adam", where=ORDINARY),
}
NOISES = {
    "gaussian": ("Gaussian", ()),
    "student-t": ("StudentT", (9,)),
    "laplace": ("Laplace", ()),
    "hyperbolic-secant": ("HyperbolicSecant", ()),
    "variance-gamma": ("VarianceGamma", (2,)),
    "student-t-3": ("StudentT", (3,)),
    "cauchy": ("Cauchy", ()),
}


def noise(name: str) -> Noise:
    """Of standard deviation 1 (scale 1 for Cauchy), to be multiplied by the noise multiplier."""
    from tfdp.noise import Noise

    family, shape = NOISES[name]
    return Noise.kinds[family](*shape, 1.0)


def optimizer_of(settings: RunSettings) -> keras.optimizers.Optimizer:
    """What a run compiles its model with."""
    import keras

    import tfdp

    method = METHODS[settings.method]
    ordinary = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam, "adagrad": keras.optimizers.Adagrad}
    arguments: dict[str, Any] = {}
    if settings.momentum:
        arguments["momentum"] = settings.momentum
    if settings.ema is not None:
        arguments |= {"use_ema": True, "ema_momentum": settings.ema}
    if method.where != PRIVATE:
        return ordinary[method.inner](settings.learning_rate, **arguments)
    arguments |= method.arguments | settings.arguments
    if method.encodes:
        arguments["noise"] = noise(settings.noise or "student-t")
    if settings.noise_multiplier is not None:
        arguments["noise_multiplier"] = settings.noise_multiplier
    else:
        arguments |= {"target_epsilon": settings.epsilon, "delta": settings.delta}
    return getattr(tfdp, method.optimizer)(
        settings.learning_rate,
        l2_norm_clip=settings.clip,
        max_physical_batch=settings.max_physical_batch,
        **arguments,
    )
