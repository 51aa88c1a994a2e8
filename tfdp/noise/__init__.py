"""Noise families: log density, variance and tails of the noise that a mechanism adds to each coordinate.

Plain frozen data, in numpy; this room imports neither TensorFlow nor Keras, and loads scipy only when a number is
asked for. What a family costs is `tfdp.accounting`'s subject, how it is drawn `tfdp.mechanisms`'s.
"""

from tfdp.noise.families import Cauchy, Gaussian, HyperbolicSecant, Laplace, StudentT, VarianceGamma
from tfdp.noise.noise import Noise

__all__ = [
    "Cauchy",
    "Gaussian",
    "HyperbolicSecant",
    "Laplace",
    "Noise",
    "StudentT",
    "VarianceGamma",
]
