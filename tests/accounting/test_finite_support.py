"""What noise without the last of its tails adds to delta."""

import math

import numpy as np
import pytest
import scipy.stats

from tfdp.accounting import finite_support_delta
from tfdp.accounting.finite_support import cut_pairs_delta

LARGEST = math.sqrt(150 * math.log(2))


def random_shifts(pairs: int, norm: float, rng: np.random.Generator) -> np.ndarray:
    """Of given joint norm, spread over all pairs or over few."""
    shifts = rng.exponential(size=pairs) ** rng.choice([0.5, 1, 4, 16])
    return norm * shifts / np.linalg.norm(shifts)


@pytest.mark.parametrize("radius", [3.0, 5.0, LARGEST])
@pytest.mark.parametrize("pairs", [1, 2, 40, 10_000])
def test_pairs_pass_the_largest_radius_of_a_shifted_centre_no_more_often_than_priced(pairs, radius):
    """The exact probability: |z + s|^2 is chi-square with two degrees of freedom, non-central."""
    rng = np.random.default_rng(7)
    beyond_its_own = pairs * math.exp(-(radius**2) / 2)
    for norm in np.linspace(0.01, radius - math.sqrt(3), 7):
        for _ in range(5):
            shifts = random_shifts(pairs, norm, rng)
            beyond = scipy.stats.ncx2.sf(radius**2, 2, shifts**2).sum()
            assert beyond + beyond_its_own <= cut_pairs_delta(pairs, norm, radius)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 6.0])
@pytest.mark.parametrize(
    ("radius", "shift", "rate"), [(3.0, 1.0, 1.0), (3.0, 1.2, 0.3), (4.0, 2.0, 0.5), (4.0, 0.5, 1.0)]
)
def test_cutting_the_radius_adds_no_more_delta_than_stated(radius, shift, rate, epsilon):
    """One pair, with the radius cut where it shows, integrated over the plane: both directions, sampled or not."""
    x, y = np.meshgrid(np.linspace(-9, 9, 1201), np.linspace(-9, 9, 1201))
    cell = (18 / 1200) ** 2

    def density(centre, cut):
        squared = (x - centre) ** 2 + y**2
        inside = np.where(squared <= radius**2, 1 / (1 - math.exp(-(radius**2) / 2)), 0) if cut else 1.0
        return np.exp(-squared / 2) / (2 * math.pi) * inside

    def deltas(cut):
        without = density(0.0, cut)
        member = (1 - rate) * without + rate * density(shift, cut)
        return [
            np.maximum(p - math.exp(epsilon) * q, 0).sum() * cell for p, q in ((member, without), (without, member))
        ]

    for true, cut in zip(deltas(False), deltas(True), strict=True):
        assert cut <= true + cut_pairs_delta(1, shift, radius)


def test_the_integration_over_the_plane_sees_that_a_cut_radius_costs_delta():
    """With no sampling and epsilon large, what is left is the mass outside the other's support."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((10**6, 2))
    z = z[np.linalg.norm(z, axis=1) <= 3.0]
    outside = np.mean(np.linalg.norm(z + np.array([1.0, 0.0]), axis=1) > 3.0)
    assert 0 < outside <= cut_pairs_delta(1, 1.0, 3.0) <= 10 * outside


def test_a_run_pays_for_each_pair_of_each_step():
    tail = scipy.stats.rayleigh.sf(LARGEST)
    assert tail == pytest.approx(2.0**-75, rel=1e-12)
    for weights, steps in ((1, 1), (2, 3), (7, 10), (10**6, 10**4)):
        price = finite_support_delta(weights, steps, 1e9)
        assert price == pytest.approx(steps * tail * (2 * math.ceil(weights / 2) + 1), rel=1e-6)


def test_what_it_adds_to_delta_is_far_below_delta_at_realistic_sizes_and_capped_at_one():
    assert finite_support_delta(10**6, 10_000, 1.0) < 1e-12
    assert finite_support_delta(10**9, 10**6, 0.5) < 1e-7
    assert finite_support_delta(10**6, 10_000, 0.3) < 1e-6
    assert finite_support_delta(1, 1, 0.1) == finite_support_delta(1, 1, 0.0) == 1
    assert finite_support_delta(10**40, 1, 1.0) == 1
    assert finite_support_delta(10**6, 0, 0.0) == finite_support_delta(0, 10, 1.0) == 0


@pytest.mark.parametrize(("weights", "steps", "noise"), [(-1, 1, 1.0), (1, -1, 1.0), (1, 1, -1.0), (1, 1, math.nan)])
def test_a_negative_count_or_noise_is_refused(weights, steps, noise):
    with pytest.raises(ValueError, match="0 or more"):
        finite_support_delta(weights, steps, noise)
