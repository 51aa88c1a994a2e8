"""Trade-off curves: closed forms, the paper's numbers, and that proven curves stay below the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from tfdp.accounting import (
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    Status,
    delta,
    epsilon_delta_tradeoff,
    gdp_tradeoff,
    pld,
    tradeoff,
)
from tfdp.accounting.tradeoff_curves import _PairsTradeoff

RATES = np.linspace(0, 1, 501)
MNIST = Ledger.poisson(sampling_rate=256 / 60000, noise_multiplier=1.1, steps=14062)


def test_the_gaussian_curve_is_its_closed_form():
    expected = stats.norm.cdf(stats.norm.isf(RATES) - 0.8)
    np.testing.assert_allclose(gdp_tradeoff(0.8)(RATES), expected, atol=1e-12)
    assert gdp_tradeoff(0.8).minimum_error_sum == pytest.approx(2 * stats.norm.cdf(-0.4), rel=1e-9)


def test_the_error_sums_of_the_papers_second_row():
    """Bu et al. 2019, section 4.1: at least 77.6 % by the central limit theorem, merely 9.4 % by the
    moments."""
    assert gdp_tradeoff(0.57).minimum_error_sum == pytest.approx(0.776, abs=5e-4)
    assert epsilon_delta_tradeoff([(3.01, 1e-5)]).minimum_error_sum == pytest.approx(0.094, abs=5e-4)


def test_a_single_pair_is_equation_1():
    level, at = 0.7, 0.01
    expected = np.maximum(0, np.maximum(1 - at - math.exp(level) * RATES, math.exp(-level) * (1 - at - RATES)))
    np.testing.assert_allclose(epsilon_delta_tradeoff([(level, at)])(RATES), expected, atol=1e-15)


def test_the_curve_of_a_grid_lies_just_below_the_true_one():
    loss = pld.composed_loss([pld.Gaussian(20.0, 1.0, 400)])
    levels = np.linspace(0, 8, 1001)
    found = _PairsTradeoff(levels, loss.delta(levels), Status.PROVEN)(RATES)
    exact = gdp_tradeoff(1.0)(RATES)
    assert np.all(found <= exact + 1e-12)
    assert np.max(exact - found) < 1e-4


def test_the_curve_of_a_run_is_symmetric_convex_and_agrees_with_its_delta():
    curve = tradeoff(MNIST)
    values = curve(RATES)
    assert curve.status == Status.PROVEN
    assert np.all(np.diff(values) <= 0) and np.all(np.diff(values, 2) >= -1e-12)
    np.testing.assert_allclose(curve(values[:400]), RATES[:400], atol=1e-3)
    assert curve.advantage == pytest.approx(delta(MNIST, epsilon=0.0), rel=1e-6)
    assert values[0] == pytest.approx(1, abs=1e-8)


def test_what_an_attacker_can_achieve():
    curve = tradeoff(MNIST)
    for rate in (0.001, 0.01):
        assert curve.true_positive_rate(rate) == pytest.approx(1 - curve(rate))
        # No attack is better against the run than against a Gaussian release of mu 0.6, a little more than
        # the limit.
        assert rate < curve.true_positive_rate(rate) < stats.norm.sf(stats.norm.isf(rate) - 0.6)


def test_the_accountants_curves_are_ordered_as_their_proofs_are_tight():
    tight, renyi, moments, limit = (
        tradeoff(MNIST, accountant=name)(RATES) for name in ("pld", "rdp", "moments", "gdp")
    )
    assert np.all(moments <= renyi + 1e-9) and np.all(renyi <= tight + 1e-6)
    assert np.max(tight - limit) < 0.02
    assert tradeoff(MNIST, accountant="gdp").status == Status.APPROXIMATE


def test_the_ends_of_the_scale():
    nothing = tradeoff(Ledger())
    np.testing.assert_allclose(nothing(RATES), 1 - RATES, atol=1e-15)
    assert nothing.advantage == pytest.approx(0, abs=1e-15)
    for accountant in ("pld", "rdp", "moments", "gdp"):
        bare = tradeoff(Ledger.poisson(sampling_rate=0.1, noise_multiplier=0.0, steps=1), accountant=accountant)
        assert bare(0.0) <= 1 and bare(0.001) == 0 and bare.advantage == pytest.approx(1)
    huge = tradeoff(Ledger.poisson(sampling_rate=0.5, noise_multiplier=1e-4, steps=10))
    assert huge.advantage == pytest.approx(1)
    assert epsilon_delta_tradeoff([(1e6, 1e-5), (1.0, 1.0)])(0.3) == 0


def test_without_sampling_the_curve_is_exactly_gaussian():
    curve = tradeoff(Ledger().record(GaussianEvent(4.0), FullBatch(100), 4))
    np.testing.assert_allclose(curve(RATES), gdp_tradeoff(0.5)(RATES), atol=1e-12)


def test_fixed_size_lots_have_a_renyi_curve_only():
    ledger = Ledger().record(GaussianEvent(4.0), FixedSize(1000, 10), 20)
    assert 0 < tradeoff(ledger, accountant="rdp").advantage < 1
    with pytest.raises(ValueError, match="rdp"):
        tradeoff(ledger)


def test_bad_arguments_say_what_to_write():
    with pytest.raises(ValueError, match="between 0 and 1"):
        gdp_tradeoff(1.0)(1.5)
    with pytest.raises(ValueError, match="mu must"):
        gdp_tradeoff(-1.0)
    with pytest.raises(ValueError, match="at least one"):
        epsilon_delta_tradeoff([])
    with pytest.raises(ValueError, match="write pairs"):
        epsilon_delta_tradeoff([(1.0, 2.0)])
