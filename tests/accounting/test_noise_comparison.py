"""Noises at equal privacy: against closed forms."""

import math

import pytest

from tfdp.accounting import Codebook, compare_noises, noise_multiplier, sampled_noise_rdp
from tfdp.noise import Cauchy, Gaussian, HyperbolicSecant, Laplace, StudentT

BOOK = Codebook(1000, size=3)


def test_the_gaussian_is_scaled_to_the_divergence_by_its_closed_form():
    (found,) = compare_noises([Gaussian(7.0)], BOOK, renyi_divergence=0.5)
    # The divergence of order 2 is 1 / stddev^2.
    assert found.noise.stddev == pytest.approx(math.sqrt(2), rel=2e-3)
    assert found.l1 == pytest.approx(1000 * math.sqrt(2) * math.sqrt(2 / math.pi), rel=2e-3)
    assert found.l2 == pytest.approx(math.sqrt(1000 * 2), rel=2e-3)
    assert 0.998 * 0.5 <= found.renyi_divergence <= 0.5


def test_all_noises_cost_the_same_and_the_least_distortion_comes_first():
    noises = [StudentT(9, 1.0), Laplace(1.0), Cauchy(1.0), HyperbolicSecant(1.0), Gaussian(1.0)]
    found = compare_noises(noises, BOOK, sampling_rate=0.01, renyi_divergence=1e-4)
    for each in found:
        assert 0.998e-4 <= each.renyi_divergence <= 1e-4
        assert each.renyi_divergence == pytest.approx(sampled_noise_rdp(each.noise, BOOK, 0.01, [2])[0], rel=1e-9)
    assert [each.l1 for each in found] == sorted(each.l1 for each in found)
    assert math.isinf(found[-1].l1) and isinstance(found[-1].noise, Cauchy)


def test_at_equal_epsilon_the_gaussian_has_the_noise_of_calibration():
    settings = {"target_epsilon": 2.0, "delta": 1e-5, "steps": 1000}
    (found,) = compare_noises([Gaussian(1.0)], BOOK, sampling_rate=0.01, **settings)
    expected = noise_multiplier(**settings, sampling_rate=0.01, accountant="rdp")
    assert found.noise.stddev == pytest.approx(expected, rel=4e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of"),
        ({"renyi_divergence": 1.0, "target_epsilon": 1.0}, "exactly one of"),
        ({"target_epsilon": 1.0}, "goes with delta and steps"),
        ({"renyi_divergence": 0.0}, "renyi_divergence must be positive"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare_noises([Gaussian(1.0)], BOOK, **arguments)
