"""The families of Nasr et al. 2020, section 5: Gaussian, Student-t, Laplace, Cauchy, variance gamma, hyperbolic secant.

Parameters are never standardised: `StudentT(9, 1.0)` has standard deviation 1, not sqrt(9 / 7).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp.noise.noise import Noise, positive

_STDDEV = "write the standard deviation of one coordinate's noise in units of the clip, such as 1.0"
_SCALE = "write the scale in units of the clip, such as 1.0"
_NEARLY_NORMAL = 1e7  # degrees of freedom from which on Student's quantile is better found from the normal one


@dataclasses.dataclass(frozen=True)
class Gaussian(Noise):
    stddev: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "stddev", positive("stddev", self.stddev, _STDDEV))

    def log_density(self, x: np.ndarray) -> np.ndarray:
        z = np.asarray(x, dtype=float) / self.stddev
        return -0.5 * z * z - math.log(self.stddev * math.sqrt(2 * math.pi))

    def upper_quantile(self, tail: np.ndarray) -> np.ndarray:
        from scipy import special

        return -self.stddev * special.ndtri(tail)

    def survival(self, x: np.ndarray) -> np.ndarray:
        from scipy import special

        return special.ndtr(-np.asarray(x, dtype=float) / self.stddev)

    @property
    def variance(self) -> float:
        return self.stddev**2


@dataclasses.dataclass(frozen=True)
class StudentT(Noise):
    """Student's t with `df` degrees of freedom, by its standard deviation, or by its scale (the only way up to df 2)."""

    df: float
    stddev: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "df", positive("df", self.df, "write the degrees of freedom, such as 9"))
        if (self.stddev is None) == (self.scale is None):
            raise ValueError("give exactly one of stddev and scale: StudentT(9, stddev=1.0), or StudentT(2, scale=1.0)")
        if self.scale is not None:
            object.__setattr__(self, "scale", positive("scale", self.scale, _SCALE))
            return
        object.__setattr__(self, "stddev", positive("stddev", self.stddev, _STDDEV))
        if self.df <= 2:
            raise ValueError(
                f"a Student-t with df={self.df:g} has no standard deviation: write StudentT({self.df:g}, scale=1.0)"
            )

    @property
    def factor(self) -> float:
        """What a standard Student-t is multiplied by."""
        return self.scale if self.scale is not None else self.stddev * math.sqrt((self.df - 2) / self.df)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        z = np.asarray(x, dtype=float) / self.factor
        constant = (
            _log_of_half_a_step(self.df / 2) - 0.5 * (math.log(self.df) + math.log(math.pi)) - math.log(self.factor)
        )
        return constant - (self.df + 1) / 2 * np.log1p(z * z / self.df)

    def upper_quantile(self, tail: np.ndarray) -> np.ndarray:
        from scipy import special

        tail = np.asarray(tail, dtype=float)
        if self.df > _NEARLY_NORMAL:
            return self.factor * _fishers_quantile(self.df, -special.ndtri(tail))
        # P(|T| > t) = I(nu / (nu + t^2); nu / 2, 1 / 2); near the middle by the complement, which is small there.
        share = special.betaincinv(self.df / 2, 0.5, 2 * tail)
        rest = special.betaincinv(0.5, self.df / 2, 1 - 2 * tail)
        with np.errstate(divide="ignore"):
            far = np.sqrt(self.df * (1 - share) / share)
            near = np.sqrt(self.df * rest / (1 - rest))
        return self.factor * np.where(tail < 0.25, far, near)

    def survival(self, x: np.ndarray) -> np.ndarray:
        from scipy import special

        return special.stdtr(self.df, -np.asarray(x, dtype=float) / self.factor)

    @property
    def variance(self) -> float:
        return self.factor**2 * (self.df / (self.df - 2)) if self.df > 2 else math.inf


def _log_of_half_a_step(z: float) -> float:
    """log(Gamma(z + 1/2) / Gamma(z)): for a large z by Stirling's series, where little is left of a difference of logarithms."""
    if z < 100:
        return math.lgamma(z + 0.5) - math.lgamma(z)
    step = 1 / z
    return 0.5 * math.log(z) - step / 8 + step**3 / 192 - step**5 / 640


def _fishers_quantile(df: float, z: np.ndarray) -> np.ndarray:
    """Student's quantile by the normal one, z: Fisher's series (Abramowitz and Stegun 26.7.5), the error about (z^2 / df)^3."""
    return z + (z**3 + z) / 4 / df + (5 * z**5 + 16 * z**3 + 3 * z) / 96 / df / df


@dataclasses.dataclass(frozen=True)
class Laplace(Noise):
    stddev: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "stddev", positive("stddev", self.stddev, _STDDEV))

    @property
    def _scale(self) -> float:
        return self.stddev / math.sqrt(2)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        return -np.abs(np.asarray(x, dtype=float)) / self._scale - math.log(2 * self._scale)

    def upper_quantile(self, tail: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return -self._scale * np.log(2 * np.asarray(tail, dtype=float))

    def survival(self, x: np.ndarray) -> np.ndarray:
        z = np.asarray(x, dtype=float) / self._scale
        half = 0.5 * np.exp(-np.abs(z))
        return np.where(z >= 0, half, 1 - half)

    @property
    def variance(self) -> float:
        return self.stddev**2


@dataclasses.dataclass(frozen=True)
class Cauchy(Noise):
    """Student's t with one degree of freedom; it has no variance."""

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive("scale", self.scale, _SCALE))

    def log_density(self, x: np.ndarray) -> np.ndarray:
        z = np.asarray(x, dtype=float) / self.scale
        return -np.log1p(z * z) - math.log(math.pi * self.scale)

    def upper_quantile(self, tail: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return self.scale / np.tan(math.pi * np.asarray(tail, dtype=float))

    def survival(self, x: np.ndarray) -> np.ndarray:
        return np.arctan2(1.0, np.asarray(x, dtype=float) / self.scale) / math.pi

    @property
    def variance(self) -> float:
        return math.inf


@dataclasses.dataclass(frozen=True)
class VarianceGamma(Noise):
    """The symmetric variance gamma: a Gaussian whose variance is Gamma(shape)-distributed; a Laplace at shape 1.

    Up to shape 1/2 the density is unbounded at 0, and no accountant prices it.
    """

    shape: float
    stddev: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", positive("shape", self.shape, "write the shape, such as 2.0"))
        object.__setattr__(self, "stddev", positive("stddev", self.stddev, _STDDEV))

    def log_density(self, x: np.ndarray) -> np.ndarray:
        from scipy import special

        # With a = sqrt(2 shape) / stddev and v = shape - 1/2: a (a|x| / 2)^v K_v(a|x|) / (sqrt(pi) Gamma(shape)).
        rate, order = math.sqrt(2 * self.shape) / self.stddev, self.shape - 0.5
        z = rate * np.abs(np.asarray(x, dtype=float))
        constant = math.log(rate) - 0.5 * math.log(math.pi) - math.lgamma(self.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            bessel = np.where(z < 1e6, np.log(special.kve(order, np.minimum(z, 1e6))), 0.5 * np.log(math.pi / 2 / z))
            inside = order * np.log(z / 2) + bessel - z
        at_zero = math.inf if order <= 0 else math.lgamma(order) - math.log(2)
        # Where the Bessel function overflows near 0, the density is that at 0. Beyond 1e6 the first term of its expansion
        # is left, off by the factor 1 + (4 v^2 - 1) / 8e6 at a density of e^-1000000.
        return constant + np.where(np.isfinite(inside) | (z > 1), inside, at_zero)

    def upper_quantile(self, tail: np.ndarray) -> np.ndarray:
        from tfdp.noise.tails import upper_quantile

        return upper_quantile(self, tail)

    @property
    def variance(self) -> float:
        return self.stddev**2

    @property
    def unit(self) -> float:
        return self.stddev / 2


@dataclasses.dataclass(frozen=True)
class HyperbolicSecant(Noise):
    """Density sech(pi x / (2 stddev)) / (2 stddev)."""

    stddev: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "stddev", positive("stddev", self.stddev, _STDDEV))

    def log_density(self, x: np.ndarray) -> np.ndarray:
        z = math.pi / 2 * np.abs(np.asarray(x, dtype=float)) / self.stddev
        return -z - np.log1p(np.exp(-2 * z)) - math.log(self.stddev)

    def upper_quantile(self, tail: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return -2 * self.stddev / math.pi * np.log(np.tan(math.pi / 2 * np.asarray(tail, dtype=float)))

    def survival(self, x: np.ndarray) -> np.ndarray:
        z = math.pi / 2 * np.asarray(x, dtype=float) / self.stddev
        half = 2 / math.pi * np.arctan(np.exp(-np.abs(z)))
        return np.where(z >= 0, half, 1 - half)

    @property
    def variance(self) -> float:
        return self.stddev**2
