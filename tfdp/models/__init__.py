"""Models made ready for private training: batch norm, which mixes examples, replaced by what does not."""

from tfdp.models.frozen import FrozenBatchNormalization
from tfdp.models.replaced import ReplacedInside, without_batch_norm

__all__ = ["FrozenBatchNormalization", "ReplacedInside", "without_batch_norm"]
