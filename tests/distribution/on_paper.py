"""What numpy says of an epoch, and of the size of noise."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from tests.optimizers import tiny


def epoch(
    weights: Sequence, lots: Sequence[tuple[np.ndarray, np.ndarray]], expected: float
) -> tuple[list, float, float]:
    """Weights after private SGD without noise, and the means of loss and absolute error over all rows that were met."""
    errors = []
    for x, y in lots:
        kernel, bias = (np.float64(w) for w in weights)
        errors.append(x @ kernel + bias - y)
        weights = tiny.after_sgd(weights, x, y, lot=expected)
    errors = np.concatenate(errors)
    return weights, float(np.mean(errors**2)), float(np.mean(np.abs(errors)))


def assert_close(found: Sequence, expected: Sequence) -> None:
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-5, atol=1e-6)


def is_chi_square(squares: float, draws: int) -> bool:
    """Whether so many squares of standard normals may sum to this: one time in a million they don't."""
    law = stats.chi2(draws)
    return 2 * min(law.cdf(squares), law.sf(squares)) > 1e-6
