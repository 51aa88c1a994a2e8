"""Shadow models: what training on a record, or without it, makes of the record's loss (LiRA, Carlini et al. 2022, arXiv:2112.03570)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfdp.accounting import checks
from tfdp.audit.losses import check_one_loss, losses_of

_LEAST = 4  # two with each record and two without it, from which a variance is found
_SMALLEST_LOSS = 1e-12

Records = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Shadows:
    """Of each shadow model and each record, members first.

    Attributes:
        confidences: ``[shadows, records]``.
        included: the same: whether the shadow was trained on the record.
    """

    confidences: np.ndarray
    included: np.ndarray

    def likelihood_ratios(self, confidences: np.ndarray) -> np.ndarray:
        """ln of how much likelier each record's confidence is if it was trained on.

        Normal densities, with means of each record's own and variances of all records together (Carlini et al. 2022, section
        VI-C: with few shadows a variance of each record's own says less).
        """
        from scipy import stats

        found = []
        for which in (self.included, ~self.included):
            number = which.sum(0)
            mean = np.where(which, self.confidences, 0.0).sum(0) / number
            variance = np.sum(np.square(self.confidences - mean)[which]) / np.sum(number - 1)
            found.append(stats.norm.logpdf(confidences, mean, max(np.sqrt(variance), _SMALLEST_LOSS)))
        return found[0] - found[1]


def confidences_of(model: keras.Model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``-ln(e^loss - 1)``: of a cross-entropy the logit of the right label's probability, which is nearly normal."""
    losses = np.maximum(losses_of(model, x, y), _SMALLEST_LOSS)
    return -(losses + np.log(-np.expm1(-losses)))


def train_shadows(
    make_model: Callable[[], keras.Model],
    members: Records,
    others: Records,
    *,
    count: int,
    seed: int | None = None,
    **fit: Any,
) -> Shadows:
    """Train models as the audited one was, each on a random half of all records; each record is in half of them.

    What comes out is computed from all records without noise, and so is not private.

    Example:

    >>> shadows = tfdp.audit.train_shadows(make_model, members, others, count=16, batch_size=100, epochs=20)
    >>> print(tfdp.audit.membership_inference(model, members, others, shadows=shadows))

    Args:
        make_model: returns a new model, compiled as the audited one was.
        members, others: (x, y), as for ``membership_inference``. The halves resemble its training set best if there are as many
            of these as of those.
        count: how many models, an even number from 4 on: of two in a row, one gets the records that the other does not.
        seed: of the halves.
        **fit: of ``model.fit``, such as ``batch_size`` and ``epochs``.
    """
    count = checks.count("count", count, "write how many shadow models to train, such as 16", at_least=_LEAST)
    if count % 2:
        raise ValueError(f"count must be even, not {count}: each record is in half of the shadow models.")
    x, y = (np.concatenate(parts) for parts in zip(members, others, strict=True))
    random, confidences, included = np.random.default_rng(seed), [], []
    for number in range(count):
        half = ~included[-1] if number % 2 else random.permutation(len(y)) < len(y) // 2
        model = make_model()
        check_one_loss(model, "Membership inference by shadow models")
        model.fit(x[half], y[half], **{"verbose": 0} | fit)
        confidences.append(confidences_of(model, x, y))
        included.append(half)
    return Shadows(np.array(confidences), np.array(included))
