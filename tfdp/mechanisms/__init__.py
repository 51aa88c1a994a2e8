"""Per-example gradients to one private gradient: bound, sum, add noise, post-process.

A mechanism states what one step of it releases as an event for the ledger. It knows nothing of Keras models.
"""

from tfdp.mechanisms.adaclip import AdaClipMechanism
from tfdp.mechanisms.denoising import denoised
from tfdp.mechanisms.directional import DirectionalMechanism
from tfdp.mechanisms.encoded import EncodedMechanism
from tfdp.mechanisms.encoding import Encoder
from tfdp.mechanisms.full_gradient import FullGradient
from tfdp.mechanisms.gaussian import GaussianMechanism
from tfdp.mechanisms.grid import GaussianOnGridMechanism
from tfdp.mechanisms.noise_samplers import noise_draws
from tfdp.mechanisms.normals import standard_normals
from tfdp.mechanisms.pruning import CompressedMechanism
from tfdp.mechanisms.published import PublishedMechanism
from tfdp.mechanisms.published_pruning import PrunedPublishedMechanism
from tfdp.mechanisms.secret_generator import SecretGenerator
from tfdp.mechanisms.support import RandomSupportMechanism, SupportMechanism

__all__ = [
    "AdaClipMechanism",
    "CompressedMechanism",
    "DirectionalMechanism",
    "EncodedMechanism",
    "Encoder",
    "FullGradient",
    "GaussianMechanism",
    "GaussianOnGridMechanism",
    "PrunedPublishedMechanism",
    "PublishedMechanism",
    "RandomSupportMechanism",
    "SecretGenerator",
    "SupportMechanism",
    "denoised",
    "noise_draws",
    "standard_normals",
]
