"""Bolt-on SGD: output perturbation of what ordinary SGD finds in a few passes (Wu et al. 2017, arXiv:1606.04722)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfdp.erm.logistic import CURVATURE, gradients
from tfdp.erm.noise import SecretNormals
from tfdp.erm.output import OutputPerturbation


@dataclasses.dataclass(frozen=True)
class BoltOnSGD(OutputPerturbation):
    """SGD that goes ``passes`` times through the records in a random order, and Gaussian noise on its last weights.

    A step takes the gradient of ``1 / batch_size sum over the batch of losses + lambda / 2 ||w||^2``, with a learning rate of
    min(1 / beta, 1 / (lambda t)) at step t, beta = radius^2 / 4 + lambda.

    Formal guarantee: as that of ``OutputPerturbation``, and nothing has to converge.
    """

    passes: int = 10
    batch_size: int = 50

    @property
    def steps(self) -> int:
        return self.passes * math.ceil(self.setting.records / self.batch_size)

    @property
    def sensitivity(self) -> float:
        """How far apart the last weights on neighbours are at most: the strongly convex case of Wu et al. 2017, with the same order for both.

        A step's function is lambda-strongly convex and beta-smooth, a batch holding batch_size records or fewer. So a step of learning
        rate r <= 1 / beta takes two weights closer by the factor 1 - r lambda (Hardt et al. 2016, lemma 3.7), and where a
        batch holds the record in which neighbours differ, which happens once a pass, apart by at most r m radius /
        batch_size. Of what was added at step t, a share of at most t / steps is left at the end where r = 1 / (lambda t), the product
        of the later 1 - 1 / s. So each pass leaves at most m radius / (lambda batch_size steps); before t = beta / lambda the rate is
        less than 1 / (lambda t), the share at most (beta / lambda) / steps or 1, and the same holds. All passes together leave
        m radius / (lambda n), as little as between exact minimisers. Squares add up over the fits.
        """
        setting = self.setting
        one = setting.gradients_moved * setting.radius * self.passes / (setting.penalty * self.batch_size * self.steps)
        return math.sqrt(setting.fits) * one

    def found(self, features: np.ndarray, signs: np.ndarray, normals: SecretNormals) -> np.ndarray:
        weights, t = np.zeros((len(signs), features.shape[1])), 0
        penalty = self.setting.penalty
        beta = CURVATURE * self.setting.radius**2 + penalty
        for _ in range(self.passes):
            order = normals.permutation(len(features))
            for start in range(0, len(order), self.batch_size):
                t += 1
                batch = order[start : start + self.batch_size]
                slope = gradients(weights, features[batch], signs[:, batch], 0.0, np.zeros_like(weights))
                weights = weights - min(1 / beta, 1 / (penalty * t)) * (slope / self.batch_size + penalty * weights)
        return weights

    def which(self) -> str:
        return f"the weights after {self.passes} passes of SGD in batches of {self.batch_size}"

    def how(self) -> str:
        return "bolt-on SGD: the exact Gaussian mechanism on the sensitivity of its last weights"
