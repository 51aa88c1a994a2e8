"""What a noise must be for its price to hold, checked on the noise at hand; a refusal says why."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from tfdp.noise import Noise

_PROBES = np.concatenate(
    [[0.0], np.geomspace(1e-12, 1e-3, 500), np.linspace(1e-3, 30, 30000)[1:], np.geomspace(30, 1e9, 2000)[1:]]
)
_TAILS = np.array([0.4, 0.25, 0.1, 1e-2, 1e-4, 1e-8])
_TOLERANCE = 1e-12
_MOST = 1e100


def check_noise(noise: Noise) -> None:
    """Raises ValueError unless the noise is symmetric about 0, bounded, densest at 0 and never denser farther out.

    It is a test at 32,000 points between 1e-12 and 1e9 times half the interquartile range, not a proof: a family of
    tfdp's own has these properties by its formula, a user's family must have them.

    They are what makes a larger shift cost more, and so the codeword price everything under its envelope. Claim: let f
    be symmetric about 0 and nonincreasing in |x|. Then for every g >= 0 the hockey-stick

        E_g(t) = integral of max(0, f(x - t) - g f(x)) dx    is nondecreasing in |t|.

    Proof. Let t >= 0 (symmetry) and first g >= 1. With y = x - t the integrand is max(0, f(y) - g f(y + t)). For y >= 0,
    f(y + t) falls as t grows. For y < 0 it is positive only where f(y + t) < f(y), hence only where |y + t| > |y|, that is
    t > 2 |y|; from there on y + t > 0 and f(y + t) falls as t grows. So each point's share is nondecreasing. For g < 1,
    E_g(P || Q) = 1 - g + g E_(1/g)(Q || P), and x -> t - x exchanges the two densities.

    Every Renyi divergence, and every other f-divergence, is a mixture of hockey-sticks with nonnegative weights, so they
    are nondecreasing in |t| too, and so are the moments M_k. (The moments alone: M_k(t) is the integral of f^k(x - t)
    f^(1-k)(x), a function that falls with |x| against one that grows with it; Anderson 1955 in one dimension.)
    """
    if not isinstance(noise, Noise):
        raise ValueError(f"noise must be a tfdp.noise.Noise such as tfdp.noise.StudentT(9, stddev=1.0), not {noise!r}")
    if reason := _hidden(noise) or _refusal(noise):
        raise ValueError(f"{noise!r} cannot be priced: {reason}")


def _hidden(noise: Noise) -> str | None:
    """Ledgers hold a noise's fields, and prices are remembered by them: what is not among them would be lost, or mixed up."""
    fields = dataclasses.fields(noise)
    unknown = set(getattr(noise, "__dict__", ())) - {field.name for field in fields}
    if unknown or not all(field.compare and field.init for field in fields) or noise.scaled(2.0) == noise:
        return (
            "not all its parameters are fields that tell it from others; write @dataclasses.dataclass(frozen=True) above "
            "its class and name each parameter there, as in `stddev: float`"
        )
    return None


@functools.lru_cache(maxsize=128)
def _refusal(noise: Noise) -> str | None:
    if not 1 / _MOST <= noise.unit <= _MOST:
        return f"it is beyond what densities can be computed for: half its interquartile range is {noise.unit:.3g}"
    x = noise.unit * _PROBES
    right, left = noise.log_density(x), noise.log_density(-x)
    if not np.isfinite(right[0]):
        return (
            "its density is not finite at 0, where moments of high order diverge and those of low order cannot be "
            "integrated with a bound; take a noise with a bounded density (VarianceGamma with a shape above 1/2)"
        )
    if not (np.isfinite(right[_PROBES <= 30]).all() and (right < np.inf).all()):
        return "its log density is not finite everywhere, so that some outputs would be certain of a record"
    size = 1 + np.abs(np.where(np.isfinite(right), right, 0.0))
    with np.errstate(invalid="ignore"):
        if (np.abs(right - left) > _TOLERANCE * size).any():
            return (
                "it is not symmetric about 0, so that a record's removal may cost more than its addition; "
                "make log_density a function of abs(x)"
            )
        if (np.diff(right) > _TOLERANCE * size[1:]).any():
            return (
                "its density grows somewhere with |x|, so that a larger shift may cost less, and a codeword would not "
                "bound what lies under it; take a noise that is densest at 0 and ever less dense farther out"
            )
    with np.errstate(invalid="ignore"):
        moved = noise.standard.log_density(x / noise.size) - np.log(noise.size)
        if (np.abs(moved - right) > 1e-10 * size).any():
            return (
                "its stddev or scale does not multiply it: log_density(x) must be that of size 1 at x / size, rescaled"
            )
    return _disagreement(noise)


def _disagreement(noise: Noise) -> str | None:
    """Whether density and quantiles are of one distribution: the mass above the quantile, integrated."""
    masses = Noise.survival(noise, noise.upper_quantile(_TAILS))
    whole = 2 * float(Noise.survival(noise, np.array([1e-15 * noise.unit]))[0])
    # `survival` never exceeds 1/2, so a density with too much mass shows in its tails.
    if abs(whole - 1) > 1e-7 or (np.abs(masses / _TAILS - 1) > 1e-6).any():
        return (
            "log_density does not integrate to 1, or upper_quantile is of another distribution: above its quantile of "
            f"{_TAILS[1]:g} the density has the mass {masses[1]:.8g}"
        )
    return None
