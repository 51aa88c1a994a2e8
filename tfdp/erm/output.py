"""Output perturbation: the minimiser of a strongly convex loss, and Gaussian noise for how far one record moves it.

Chaudhuri, Monteleoni and Sarwate 2011 (arXiv:0912.0071, lemma 7 and corollary 8) bound the move; in place of their noise the
Gaussian mechanism is calibrated exactly (Balle and Wang 2018, arXiv:1805.06530).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp.accounting import Tradeoff, finite_support_delta, gdp_delta, gdp_tradeoff
from tfdp.erm.logistic import minimised
from tfdp.erm.noise import SecretNormals, on_a_grid
from tfdp.erm.setting import Setting


@dataclasses.dataclass(frozen=True)
class OutputPerturbation:
    """Found minimisers with Gaussian noise.

    Formal guarantee: with labels among public classes and features no longer than ``setting.radius`` the release is (epsilon, delta)-differentially private, and
    mu-Gaussian differentially private up to the noise's missing tails.
    """

    setting: Setting
    mu: float

    @classmethod
    def calibrated(cls, setting: Setting, **own: int) -> OutputPerturbation:
        draws = setting.fits * setting.weights
        mu = setting.largest_mu(
            cost=lambda mu: gdp_delta(mu, setting.epsilon),
            tails=lambda mu: finite_support_delta(draws, steps=1, noise_multiplier=1 / mu),
        )
        return cls(setting, mu, **own)

    @property
    def regularization(self) -> float:
        """Lambda of the sum over records."""
        return self.setting.records * self.setting.penalty

    @property
    def sensitivity(self) -> float:
        """How far apart the found weights of neighbours are at most: an l2 norm over all fits jointly.

        Let F and F' be one fit's sums of losses and penalty on neighbours, w and w' their minimisers. F' - F is one record's loss
        (or two, one of them subtracted), whose gradient is at most m * radius long, m = ``gradients_moved``: the logistic
        loss's derivative lies between -1 and 1. F's gradient is 0 at w, and at w' it is that difference. F is
        regularization-strongly convex, so regularization * ||w - w'|| <= m * radius. That is 2 L / (n lambda) of Chaudhuri et
        al. for a replaced record. Both found minimisers are within gradient_norm / regularization of the true ones. Squares
        add up over the fits.
        """
        setting = self.setting
        one = setting.gradients_moved * setting.radius + 2 * setting.gradient_norm
        return math.sqrt(setting.fits) * one / self.regularization

    @property
    def noise_stddev(self) -> float:
        return self.sensitivity / self.mu

    @property
    def gdp_mu(self) -> float:
        """Of Gaussian differential privacy, up to missing tails."""
        return self.mu

    def tradeoff(self) -> Tradeoff:
        """Without missing tails."""
        return gdp_tradeoff(self.mu)

    def found(self, features: np.ndarray, signs: np.ndarray, normals: SecretNormals) -> np.ndarray:
        """Weights before noise."""
        linear = np.zeros((len(signs), features.shape[1]))
        return minimised(features, signs, self.regularization, linear, self.setting.gradient_norm)

    def release(self, features: np.ndarray, signs: np.ndarray, normals: SecretNormals) -> np.ndarray:
        weights = self.found(features, signs, normals)
        return on_a_grid(weights + self.noise_stddev * normals(weights.shape), self.noise_stddev)

    def which(self) -> str:
        """What is released with noise, in words."""
        return "the weights that minimise the loss"

    def described(self) -> str:
        return (
            f"{self.which()} (output perturbation) with Gaussian noise of standard deviation {self.noise_stddev:.4g} "
            f"each, {1 / self.mu:.4g} times the l2 sensitivity {self.sensitivity:.4g}; fits: {self.setting.fits}"
        )

    def how(self) -> str:
        return "output perturbation: the exact Gaussian mechanism on the minimiser's sensitivity"
