"""The Keras face: PrivateOptimizer around any Keras optimizer, the named ones, and the hook that brings them to a model."""

from tfdp.optimizers import hook, past_in_files
from tfdp.optimizers.encoded import EncodedDPAdam, EncodedDPSGD
from tfdp.optimizers.named import (
    AdaClipDPAdam,
    AdaClipDPSGD,
    DirectionalDPAdam,
    DirectionalDPSGD,
    NoisyAdagrad,
    NoisyAdam,
    NoisySGD,
)
from tfdp.optimizers.private_optimizer import PrivateOptimizer

hook.install()
past_in_files.install()

__all__ = [
    "AdaClipDPAdam",
    "AdaClipDPSGD",
    "DirectionalDPAdam",
    "DirectionalDPSGD",
    "EncodedDPAdam",
    "EncodedDPSGD",
    "NoisyAdagrad",
    "NoisyAdam",
    "NoisySGD",
    "PrivateOptimizer",
]
