"""Output perturbation of gradient descent: a fixed number of full steps, and Gaussian noise (Zhang et al. 2017, arXiv:1703.09947).

Zhang et al. bound how far a record moves the last weights by a constant times ``radius (1 / beta + 1 / lambda) / n``; what is
proven here has no constant, and is less for fewer steps.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp.erm.logistic import CURVATURE, gradients
from tfdp.erm.noise import SecretNormals
from tfdp.erm.output import OutputPerturbation


@dataclasses.dataclass(frozen=True)
class GradientDescent(OutputPerturbation):
    """``gradient_steps`` steps of gradient descent from 0, and Gaussian noise on its last weights.

    A step takes the gradient of ``1 / n sum of losses + lambda / 2 ||w||^2`` with a learning rate of 2 / (beta + lambda),
    beta = radius^2 / 4 + lambda.

    Formal guarantee: as that of ``OutputPerturbation``, and nothing has to converge.
    """

    gradient_steps: int = 100

    @property
    def curvature(self) -> float:
        """The largest of one fit's mean loss without its penalty: beta - lambda."""
        return CURVATURE * self.setting.radius**2

    @property
    def learning_rate(self) -> float:
        return 2 / (self.curvature + 2 * self.setting.penalty)

    @property
    def sensitivity(self) -> float:
        """How far apart the last weights on neighbours are at most: an l2 norm over all fits jointly.

        Let F and F' be one fit's mean losses with penalty on neighbours, w and w' its weights after the same number of steps on each, and r
        the learning rate. A step makes of their difference

            w - w' - r (grad F(w) - grad F(w'))  +  r (grad F'(w') - grad F(w')).

        The gradients of the first part differ by A (w - w'), A the mean of F's second derivatives on the way from w' to w: symmetric,
        with eigenvalues between lambda and beta. So those of 1 - r A lie between 1 - r beta = -q and 1 - r lambda = q, with
        1 / q = 1 + 2 lambda / (beta - lambda), and the first part is at most q ||w - w'|| long. The second is that of one record's gradient over n (or of two, one
        subtracted), the penalty's being the same: at most r m radius / n long, m = ``gradients_moved``. Both start at 0, so after T steps
        they are at most

            r m radius / n (1 + q + ... + q^(T - 1)) = m radius / (lambda n) (1 - q^T)

        apart, for r / (1 - q) = 1 / lambda: less than the exact minimisers. Squares add up over the fits.
        """
        setting = self.setting
        left = -math.expm1(-self.gradient_steps * math.log1p(2 * setting.penalty / self.curvature))
        return math.sqrt(setting.fits) * setting.gradients_moved * setting.radius / self.regularization * left

    def found(self, features: np.ndarray, signs: np.ndarray, normals: SecretNormals) -> np.ndarray:
        weights = np.zeros((len(signs), features.shape[1]))
        linear = np.zeros_like(weights)
        for _ in range(self.gradient_steps):
            slope = gradients(weights, features, signs, self.regularization, linear)
            weights = weights - self.learning_rate / len(features) * slope
        return weights

    def which(self) -> str:
        return f"the weights after {self.gradient_steps} steps of gradient descent"

    def how(self) -> str:
        return "gradient descent: the exact Gaussian mechanism on the sensitivity of its last weights"
