"""The bounds of Xiang et al. 2021, section 5, against closed forms and a convex solver."""

import math

import numpy as np
import pytest
from scipy import optimize

from tfdp.accounting import distortion_components, distortion_rate, mutual_information_bound, rate_distortion


def gaussian_entropy(variance):
    return 0.5 * np.log(2 * np.pi * np.e * np.asarray(variance, dtype=float))


def test_theorem_2():
    assert mutual_information_bound(0.0) == 0
    assert mutual_information_bound(1.0) == pytest.approx((math.e - 1) / 2)
    assert mutual_information_bound(1e9) == math.inf


def test_it_bounds_the_information_of_randomised_response():
    """A fair bit, kept with probability e^eps / (1 + e^eps), is exactly eps-differentially private."""
    for epsilon in (0.1, 1.0, 3.0):
        keep = math.exp(epsilon) / (1 + math.exp(epsilon))
        information = math.log(2) + keep * math.log(keep) + (1 - keep) * math.log(1 - keep)
        assert information <= mutual_information_bound(epsilon)


@pytest.mark.parametrize(("count", "variance", "rate"), [(1, 1.0, 0.5), (7, 0.3, 4.0), (50, 20.0, 0.0)])
def test_equal_gaussian_components_share_the_rate_equally(count, variance, rate):
    entropies = gaussian_entropy([variance] * count)
    exact = count * variance * math.exp(-2 * rate / count)
    assert distortion_rate(np.ones(count), entropies, rate) == pytest.approx(exact, rel=1e-13)
    if rate:
        assert rate_distortion(np.ones(count), entropies, exact) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("rate", [0.05, 0.7, 3.0, 12.0])
def test_water_filling_is_what_a_convex_solver_finds(rate):
    random = np.random.default_rng(3)
    weights, variances = random.normal(size=6), 10 ** random.uniform(-1, 1, size=6)
    powers = np.log(weights**2 * variances)
    # In u = log D the problem is convex: least sum of e^u with sum (log beta - u) / 2 <= R and u <= log beta.
    solution = optimize.minimize(
        lambda u: np.exp(u).sum(),
        powers - 2 * rate / 6,
        jac=np.exp,
        bounds=[(None, power) for power in powers],
        constraints={"type": "ineq", "fun": lambda u: rate - (powers - u).sum() / 2},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    entropies = gaussian_entropy(variances)
    assert distortion_rate(weights, entropies, rate) == pytest.approx(solution.fun, rel=1e-6)
    np.testing.assert_allclose(
        distortion_components(weights, entropies, rate), np.exp(solution.x), rtol=1e-3, atol=1e-9
    )


def test_the_components_satisfy_equations_15():
    weights, entropies, rate = np.array([0.5, 2.0, 1.0, 0.0]), np.array([0.1, 1.2, -3.0, 1.0]), 1.7
    components = distortion_components(weights, entropies, rate)
    beta = weights**2 * np.exp(2 * entropies) / (2 * np.pi * np.e)
    level = components[components < beta].max()
    np.testing.assert_allclose(components, np.minimum(level, beta), rtol=1e-12)
    used = weights > 0
    spread = 0.5 * (1 + np.log(2 * np.pi * components[used] / weights[used] ** 2))
    assert entropies[used].sum() - spread.sum() == pytest.approx(rate)


def test_rate_and_distortion_invert_each_other():
    random = np.random.default_rng(5)
    for _ in range(100):
        size = random.integers(1, 9)
        weights, entropies = random.normal(size=size), random.normal(size=size) * 2
        rate = float(random.exponential(3))
        distortion = distortion_rate(weights, entropies, rate)
        assert rate_distortion(weights, entropies, distortion) == pytest.approx(rate, rel=1e-9, abs=1e-9)


def test_more_information_leaves_less_distortion():
    values = [distortion_rate([1.0, 3.0], [0.0, 1.0], rate) for rate in np.linspace(0, 20, 60)]
    assert np.all(np.diff(values) < 0) and np.all(np.diff(values, 2) > -1e-12)


def test_the_ends_of_the_scale():
    assert distortion_rate([0.0, 0.0], [1.0, 2.0], 1.0) == 0
    assert rate_distortion([1.0], [0.0], 0.0) == math.inf
    assert rate_distortion([1.0], [0.0], 1e9) == 0
    assert rate_distortion([0.0], [0.0], 0.0) == 0


@pytest.mark.parametrize(
    ("weights", "entropies", "rate", "message"),
    [
        ([1.0], [1.0, 2.0], 1.0, "same length"),
        ([], [], 1.0, "same length"),
        ([1.0], [math.inf], 1.0, "must be finite"),
        ([1.0], [1.0], -1.0, "rate must not be negative"),
        ([1.0], [1.0], math.nan, "rate must be a finite number"),
    ],
)
def test_bad_arguments_say_what_to_write(weights, entropies, rate, message):
    with pytest.raises(ValueError, match=message):
        distortion_rate(weights, entropies, rate)
