"""Losses on a grid against sums written out, repeated convolution and dp-accounting's own classes."""

import functools
import math

import numpy as np
import pytest
from dp_accounting.pld.pld_pmf import DensePLDPmf

from tfdp.accounting.loss_grids import GridLoss, Power, composed, window
from tfdp.accounting.one_step_loss import one_step_loss


def random_loss(seed, interval=0.05, points=40):
    random = np.random.default_rng(seed)
    masses = random.dirichlet(np.ones(points)) * (1 - 1e-7)
    return GridLoss(interval, int(random.integers(-points, 5)), masses, 1e-7)


def reference(loss):
    """The same as dp-accounting's class, which rounds losses up."""
    return DensePLDPmf(loss.interval, loss.first, loss.masses.copy(), loss.infinity, True)


def convolved(*losses):
    """(first, masses) of the sum of the losses, by plain convolution."""
    masses = functools.reduce(np.convolve, [loss.masses for loss in losses])
    return sum(loss.first for loss in losses), masses


@pytest.mark.parametrize("seed", range(8))
def test_delta_is_the_mean_of_the_excess_written_out(seed):
    loss = random_loss(seed)
    levels = [0.0, 0.05, 0.051, 0.7, 2.0, 50.0]
    for level in levels:
        terms = [p * -math.expm1(level - (loss.first + i) * 0.05) for i, p in enumerate(loss.masses)]
        expected = 1e-7 + sum(term for term in terms if term > 0)
        assert loss.get_delta_for_epsilon(level) == pytest.approx(expected, rel=1e-12)
    together = loss.get_delta_for_epsilon(np.array(levels))
    np.testing.assert_allclose(together, [loss.get_delta_for_epsilon(level) for level in levels], rtol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_epsilon_is_that_of_dp_accounting(seed):
    loss = random_loss(seed)
    for delta in (1e-9, 1e-7, 1.1e-7, 1e-5, 1e-3, 0.02, 0.3, 0.9):
        assert loss.get_epsilon_for_delta(delta) == pytest.approx(
            reference(loss).get_epsilon_for_delta(delta), rel=1e-9
        )


def test_epsilon_and_delta_are_inverse_where_the_largest_loss_is_beyond_all_exponents():
    loss = GridLoss(0.25, -2000, np.full(8001, (1 - 1e-9) / 8001), 1e-9)
    for delta in (1e-8, 1e-4, 0.1, 0.7):
        epsilon = loss.get_epsilon_for_delta(delta)
        assert loss.get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-9)


def test_a_large_delta_needs_no_epsilon_and_one_below_the_infinite_mass_has_none():
    loss = random_loss(0)
    assert loss.get_epsilon_for_delta(loss.get_delta_for_epsilon(0.0) + 1e-12) == 0.0
    assert loss.get_epsilon_for_delta(0.99e-7) == math.inf


@pytest.mark.parametrize("counts", [(1,), (2,), (37,), (1, 1), (3, 1, 5)])
def test_composition_is_convolution_and_never_below_it(counts):
    powers = [Power(random_loss(seed), count) for seed, count in enumerate(counts)]
    found = composed(powers)
    first, masses = convolved(*(power.loss for power in powers for _ in range(power.count)))
    exact = GridLoss(found.interval, first, masses, -math.expm1(sum(counts) * math.log1p(-1e-7)))
    for level in (0.0, 0.3, 2.0, 10.0):
        expected, rounding = exact.get_delta_for_epsilon(level), 1e-15 * sum(counts)
        assert expected - rounding <= found.get_delta_for_epsilon(level) <= expected + 4e-15 * len(counts) + rounding


@pytest.mark.parametrize("counts", [(1,), (12,), (60,), (3, 1, 5)])
def test_outside_the_window_is_at_most_the_tail_mass(counts):
    powers = [Power(random_loss(seed, points=25), count) for seed, count in enumerate(counts)]
    start, masses = convolved(*(power.loss for power in powers for _ in range(power.count)))
    first, last = window(powers)
    assert start <= first <= last < start + len(masses)
    assert masses[: first - start].sum() + masses[last - start + 1 :].sum() <= 1e-15


@pytest.mark.parametrize(("rate", "noise", "count"), [(256 / 60000, 1.1, 14062), (0.356, 5.0, 30), (1.0, 20.0, 400)])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_window_is_hardly_wider_than_that_of_dp_accounting(rate, noise, count, direction):
    loss = getattr(one_step_loss(noise, rate, 1e-4), direction)
    first, last = window([Power(loss, count)])
    assert last - first <= 1.1 * reference(loss).self_compose(count, 1e-15).size
