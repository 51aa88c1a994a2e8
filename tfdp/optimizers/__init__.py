"""The Keras face: PrivateOptimizer around any Keras optimizer, the named ones, and the hook that brings them to a model."""

from tfdp.optimizers import hook
from tfdp.optimizers.named import NoisyAdagrad, NoisyAdam, NoisySGD
from tfdp.optimizers.private_optimizer import PrivateOptimizer

hook.install()

__all__ = ["NoisyAdagrad", "NoisyAdam", "NoisySGD", "PrivateOptimizer"]
