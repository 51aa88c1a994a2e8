"""How classifiers are scored."""

import numpy as np

from experiments import scores


def test_the_error_of_the_expected_rating_is_that_of_its_formula():
    class Sure:
        def predict(self, x, **_):
            return np.log(x)

    chances = np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    expected = np.sqrt(((0.75 - 2) ** 2 + (1.7 - 1) ** 2) / 2)
    np.testing.assert_allclose(scores.rmse(Sure(), chances, np.array([2, 1])), expected, rtol=1e-12)
