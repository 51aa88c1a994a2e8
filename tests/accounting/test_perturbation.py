"""The papers' formulas against values computed by hand.

With delta = e^-4 and T = 25, T ln(1 / delta) is 100. All numbers below are chosen so that roots come out whole.
"""

import math

import pytest

from tfdp.accounting.perturbation import data_noise, input_noise, record_noise

DELTA, STEPS = math.exp(-4), 25


def test_equation_9():
    """5 * 2^2 * 25 * 4 / (5 * 4 * sqrt(16) * 0.5^2) = 2000 / 20 = 10^2"""
    found = input_noise(0.5, DELTA, STEPS, size=5, lipschitz=2.0, strong_convexity=16.0, constant=5.0)
    assert found == pytest.approx(10.0, rel=1e-12)


def test_equation_12():
    """5 * 2^2 * 25 * 4 / (5 * 4 * 0.5^2) = 2000 / 5 = 20^2"""
    assert input_noise(0.5, DELTA, STEPS, size=5, lipschitz=2.0, constant=5.0) == pytest.approx(20.0, rel=1e-12)


def test_equation_10():
    """5 * 0.1 * 2 * sqrt(100) / 0.5 = 20"""
    found = data_noise(0.5, DELTA, STEPS, sampling_rate=0.1, lipschitz=2.0, constant=5.0)
    assert found == pytest.approx(20.0, rel=1e-12)


def test_equation_15():
    """5 * 2 * sqrt(100) / (sqrt(4) * 5 * 0.5) = 100 / 5 = 20"""
    found = record_noise(0.5, DELTA, STEPS, size=5, lipschitz=2.0, scale=4.0, constant=5.0)
    assert found == pytest.approx(20.0, rel=1e-12)


def test_adult_at_the_papers_budget():
    """sqrt(100 * 11.512925 / (45222 * 45221)) / (0.01^(1/4) * 0.1) = 33.930702 / 45221.5 / 0.0316227766"""
    found = input_noise(0.1, 1e-5, steps=100, size=45222, lipschitz=1.0, strong_convexity=0.01)
    assert found == pytest.approx(0.0237273, rel=1e-5)


def test_no_noise_on_a_record_is_enough_where_none_reaches_the_gradient():
    assert record_noise(0.5, DELTA, STEPS, size=5, lipschitz=2.0, scale=0.0) == math.inf


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"steps": 0}, "steps"),
        ({"steps": 2.5}, "steps"),
        ({"size": 1}, "size"),
        ({"size": 10**400}, "size must be at most"),
        ({"steps": 10**400}, "steps must be at most"),
        ({"lipschitz": 0.0}, "lipschitz"),
        ({"strong_convexity": 0.0}, "strong_convexity"),
        ({"constant": math.nan}, "constant"),
    ],
)
def test_bad_values_of_input_noise(changed, message):
    good = {"epsilon": 1.0, "delta": 1e-5, "steps": 10, "size": 100, "lipschitz": 1.0}
    with pytest.raises(ValueError, match=message):
        input_noise(**(good | changed))


@pytest.mark.parametrize("changed", [{"sampling_rate": 0.0}, {"sampling_rate": 1.5}, {"constant": 0}])
def test_bad_values_of_data_noise(changed):
    good = {"epsilon": 1.0, "delta": 1e-5, "steps": 10, "sampling_rate": 0.1, "lipschitz": 1.0}
    with pytest.raises(ValueError, match=next(iter(changed))):
        data_noise(**(good | changed))


@pytest.mark.parametrize("changed", [{"scale": -1.0}, {"size": 0}])
def test_bad_values_of_record_noise(changed):
    good = {"epsilon": 1.0, "delta": 1e-5, "steps": 10, "size": 100, "lipschitz": 1.0, "scale": 1.0}
    with pytest.raises(ValueError, match=next(iter(changed))):
        record_noise(**(good | changed))
