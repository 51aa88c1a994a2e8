"""Objective perturbation: the exact minimiser of a loss with a random linear term.

Kifer, Smith and Thakurta 2012 ("Private convex empirical risk minimization and high-dimensional regression", theorem 2) give Gaussian
noise of variance ``radius^2 (8 ln(2 / delta) + 4 epsilon) / epsilon^2`` with a regularisation of at least ``2 beta / epsilon``, beta the
loss's curvature; Redberg, Koskela and Wang 2023 (arXiv:2401.00583) less, for losses in general. What is used here is proven
below. It gains from a logistic loss's derivative having one sign.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp.accounting import Relation, Tradeoff, epsilon_delta_tradeoff, finite_support_delta, gdp_delta
from tfdp.erm.logistic import CURVATURE, minimised
from tfdp.erm.noise import SecretNormals, on_a_grid
from tfdp.erm.setting import Setting

_MOST_COEFFICIENTS = 1e280  # their sum: times 1e-308, where a gdp_delta underflows, it is far below any delta
_SECOND_SHARE = 0.02  # mu of the second noise in units of mu: it adds two ten-thousandths to mu


@dataclasses.dataclass(frozen=True)
class ObjectivePerturbation:
    """The minimiser of ``sum of losses + regularization / 2 ||w||^2 + b.w`` with b ~ N(0, noise_stddev^2), and a little noise.

    Formal guarantee: with labels among public classes and features no longer than ``setting.radius`` the release is (epsilon, delta)-differentially private.

    Proof for one fit and the exact minimiser. For each w there is exactly one b that makes it the minimiser,
    b(w) = -(sum of gradients at w + regularization w), and b(.) is smooth and invertible. So w has the density
    N(b(w); 0, noise_stddev^2) |det b'(w)|. Let D and D' be neighbours, and w drawn on D. The privacy loss at w is

        ln |det b'_D(w)| / |det b'_D'(w)|  +  (||b + h||^2 - ||b||^2) / (2 noise_stddev^2),   b = b_D(w), h = b_D'(w) - b.

    1. Determinants. b' is, up to its sign, a positive definite matrix A >= regularization, to which D's own record adds
       l'' z z', and det(A + l'' z z') = det(A) (1 + l'' z'A^-1 z). That factor lies between 1 and
       1 + radius^2 / (4 regularization); the one of D' only helps. So the first term is at most
       kappa = ln(1 + radius^2 / (4 regularization)).
    2. Noise. A logistic loss's gradient is -y s z with 0 < s < 1. So h = s d - s' d' for *fixed* vectors d, d' of length at most
       radius (one of them 0 if the record is left out), while s and s' depend on w, hence on b. The second term is convex
       in h, and therefore at most its maximum over the corners 0, d, -d', d - d' of all possible h. At a fixed corner c,
       X_c = (2 b.c + ||c||^2) / (2 noise_stddev^2) with b ~ N(0, noise_stddev^2 I) is the privacy loss of a Gaussian mechanism of
       mu_c = ||c|| / noise_stddev; X_0 = 0.
    3. So the loss is at most kappa + max_c X_c, and delta(epsilon) = E max(0, 1 - exp(epsilon - loss)) is at most the sum over corners
       of E[max(0, 1 - exp(epsilon - kappa - X_c)); c is the largest], for epsilon >= kappa. That is at most
       gdp_delta(mu_c, epsilon - kappa). Where a record is left out one corner is left, and the result is that of *one*
       Gaussian mechanism.

    Several fits (one class against the rest) have independent b. Losses add up: fits * kappa, and one corner for each fit,
    whose squared lengths add up. Where a fit's largest corner is 0, all its X_c are negative, which has probability at most 1/2
    and is independent of the other fits. So delta is at most the sum of coefficient_m gdp_delta(sqrt(m) mu, epsilon - fits kappa),
    with mu = radius / noise_stddev and coefficient_m that of q^m in (1/2 + q)^fits, or in (1/2 + 2 q + q^4)^fits where a
    record is replaced (``deltas``).

    The found minimiser (Iyengar et al. 2019, approximate minima perturbation). It is within e = gradient_norm / regularization of the
    exact one, and a function of the exact one and the data (b follows from them). So noise of second_stddev on it is, given
    the exact one, a Gaussian mechanism of mu = 2 e / second_stddev: its square adds to that of every corner.

    Noise has missing tails in both places. The argument of ``finite_support_delta`` compares densities that are a Gaussian's up to
    a factor beyond which the noise is never drawn; the determinants multiply both sides, and a coordinate of h is at most the sum
    of those of d and d'. So it prices b with 1 / noise_multiplier = gradients_moved * mu * sqrt(fits).
    """

    setting: Setting
    mu: float

    def __post_init__(self):
        if self.setting.fits * math.log(sum(_corners(self.setting))) > math.log(_MOST_COEFFICIENTS):
            raise ValueError(
                f"Objective perturbation of {self.setting.fits:,} fits, one a class, is beyond what its proof's sum can be computed "
                "for. Write method='output'."
            )

    @classmethod
    def calibrated(cls, setting: Setting) -> ObjectivePerturbation:
        return cls(
            setting, setting.largest_mu(lambda mu: cls(setting, mu).delta(), lambda mu: cls(setting, mu).tails())
        )

    @property
    def regularization(self) -> float:
        """Of the sum over records: the one asked for, or the least with which determinants cost half of epsilon."""
        setting = self.setting
        floor = CURVATURE * setting.radius**2 / math.expm1(min(setting.epsilon / (2 * setting.fits), 50.0))
        return max(setting.records * setting.penalty, floor)

    @property
    def kappa(self) -> float:
        """What one fit's determinants cost: 1. of the proof."""
        return math.log1p(CURVATURE * self.setting.radius**2 / self.regularization)

    def delta(self, epsilon: float | None = None) -> float:
        """3. of the proof, with true Gaussian noise, at the setting's epsilon or another one."""
        fits = self.setting.fits
        left = (self.setting.epsilon if epsilon is None else epsilon) - fits * self.kappa
        if left < 0:
            return 1.0
        coefficients = np.polynomial.polynomial.polypow(_corners(self.setting), fits)
        second = fits * _SECOND_SHARE**2
        terms = (c * gdp_delta(self.mu * math.sqrt(m + second), left) for m, c in enumerate(coefficients) if c)
        return min(1.0, math.fsum(terms))

    def tails(self) -> float:
        """What missing tails add to it."""
        draws = self.setting.fits * self.setting.weights
        shift = self.mu * math.sqrt(self.setting.fits)
        shifts = (self.setting.gradients_moved * shift, _SECOND_SHARE * shift)
        return sum(finite_support_delta(draws, steps=1, noise_multiplier=1 / shift) for shift in shifts)

    @property
    def noise_stddev(self) -> float:
        """Of each coordinate of b."""
        return self.setting.radius / self.mu

    @property
    def second_stddev(self) -> float:
        """Of the noise that covers the minimiser's tolerance."""
        return 2 * self.setting.gradient_norm / self.regularization / (_SECOND_SHARE * self.mu)

    @property
    def gdp_mu(self) -> None:
        """It is not Gaussian: determinants count."""
        return None

    def tradeoff(self) -> Tradeoff:
        """What all epsilons prove together, without missing tails."""
        epsilons = self.setting.fits * self.kappa + self.setting.epsilon * np.linspace(0, 2, 201)
        return epsilon_delta_tradeoff([(epsilon, self.delta(epsilon)) for epsilon in epsilons])

    def release(self, features: np.ndarray, signs: np.ndarray, normals: SecretNormals) -> np.ndarray:
        linear = self.noise_stddev * normals((len(signs), features.shape[1]))
        norm = self.setting.gradient_norm
        weights = minimised(features, signs, self.regularization, linear, norm)
        noised = weights + self.second_stddev * normals(weights.shape)
        return on_a_grid(noised, self.second_stddev)

    def described(self) -> str:
        return (
            "the minimiser's weights of a loss with a random linear term (objective perturbation), Gaussian with standard deviation "
            f"{self.noise_stddev:.4g}, {1 / self.mu:.4g} times the most a record's gradient can be, at a regularisation of "
            f"{self.regularization:.4g} (of the sum over records); fits: {self.setting.fits}"
        )

    def how(self) -> str:
        return (
            f"objective perturbation: determinants cost {self.setting.fits * self.kappa:.4g} of epsilon, a Gaussian linear term the rest, "
            "and a second noise covers the minimiser's tolerance"
        )


def _corners(setting: Setting) -> list[float]:
    """Coefficients of one fit's polynomial in q: 3. of the proof."""
    return [0.5, 2.0, 0.0, 0.0, 1.0] if setting.relation is Relation.REPLACE_ONE else [0.5, 1.0]
