"""Per-example gradients to one private gradient: bound, sum, add noise, post-process.

A mechanism states what one step of it releases as an event for the ledger. It knows nothing of Keras models.
"""

from tfdp.mechanisms.adaclip import AdaClipMechanism
from tfdp.mechanisms.directional import DirectionalMechanism
from tfdp.mechanisms.finite_support import finite_support_delta
from tfdp.mechanisms.full_gradient import FullGradient
from tfdp.mechanisms.gaussian import GaussianMechanism
from tfdp.mechanisms.normals import standard_normals
from tfdp.mechanisms.secret_generator import SecretGenerator

__all__ = [
    "AdaClipMechanism",
    "DirectionalMechanism",
    "FullGradient",
    "GaussianMechanism",
    "SecretGenerator",
    "finite_support_delta",
    "standard_normals",
]
