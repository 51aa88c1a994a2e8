"""The privacy loss distribution of encoded releases: against closed forms, integrals and dp-accounting, from above."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import integrate

from tfdp.accounting import (
    Codebook,
    EncodedEvent,
    FullBatch,
    GaussianEvent,
    Ledger,
    Poisson,
    delta,
    epsilon,
    gdp_delta,
    gdp_epsilon,
    report,
    tradeoff,
)
from tfdp.accounting.codeword_loss import Encoded, codeword_loss, sampled_loss
from tfdp.accounting.coordinate_loss import coordinate_loss
from tfdp.accounting.loss_grids import Power, composed
from tfdp.accounting.noise_checks import check_noise
from tfdp.noise import Cauchy, Gaussian, HyperbolicSecant, Laplace, StudentT, VarianceGamma

FAMILIES = [
    Gaussian(1.0),
    StudentT(1, scale=1.0),
    StudentT(3, 1.0),
    StudentT(30, 1.0),
    Laplace(1.0),
    HyperbolicSecant(1.0),
    VarianceGamma(2.0, 1.0),
    VarianceGamma(0.55, 1.0),
]
BOOK = Codebook(2000, size=5)
RATE = 256 / 60000


def groups(weights: int, distinct: int) -> tuple[np.ndarray, np.ndarray]:
    """A codeword of norm 1 with so many distinct magnitudes."""
    magnitudes = np.sort(np.abs(np.random.default_rng(0).normal(size=distinct)))
    counts = np.full(distinct, weights // distinct)
    return magnitudes / math.sqrt(magnitudes**2 @ counts), counts


def hockey_stick(noise, shift: float, growth: float) -> float:
    """The integral of max(0, f(x - t) - e^epsilon f(x)), by scipy, where the integrand has its bends."""

    def integrand(x):
        return max(0.0, math.exp(noise.log_density(x - shift)) - growth * math.exp(noise.log_density(x)))

    cuts = np.unique(np.concatenate([np.linspace(-40, 40, 161), [0, shift], [-1e4, -1e3, -100, 100, 1e3, 1e4]]))
    return sum(integrate.quad(integrand, a, b, epsabs=1e-13)[0] for a, b in itertools.pairwise(cuts))


@pytest.mark.parametrize("noise", FAMILIES, ids=str)
@pytest.mark.parametrize("shift", [0.05, 1.0])
def test_a_coordinates_curve_is_the_integral_and_not_below(noise, shift):
    loss = coordinate_loss(noise, shift, shift / 200)
    for loud in (0.0, 0.3 * shift, shift, 1.3 * shift):
        exact = hockey_stick(noise, shift, math.exp(loud))
        found = loss.get_delta_for_epsilon(loud)
        assert exact - 1e-8 <= found <= 1.003 * exact + 1e-3 * shift + 1e-8


@pytest.mark.parametrize("noise", FAMILIES, ids=str)
def test_the_whole_curve_of_a_larger_shift_lies_above(noise):
    """The theorem in `check_noise`, at 12 shifts and 40 epsilons of either sign."""
    growths = np.exp(np.linspace(-2, 2, 40))
    x = np.sinh(np.linspace(-12, 12, 400_001))
    width = np.gradient(x)
    base = np.exp(noise.log_density(x))
    curves = []
    for shift in np.geomspace(0.01, 6, 12):
        moved = np.exp(noise.log_density(x - shift))
        curves.append([(np.maximum(moved - growth * base, 0) * width).sum() for growth in growths])
    assert (np.diff(curves, axis=0) > -2e-4).all()


@pytest.mark.parametrize(("weights", "distinct"), [(1, 1), (10, 10), (26000, 100), (26000, 1000)])
@pytest.mark.parametrize("stddev", [0.5, 1.1])
def test_gaussian_noise_under_a_codeword_loses_what_the_gaussian_loses(weights, distinct, stddev):
    loss = codeword_loss(Gaussian(stddev), *groups(weights, distinct))
    for tail in (1e-2, 1e-5, 1e-8):
        exact = gdp_epsilon(1 / stddev, tail)
        assert exact <= loss.get_epsilon_for_delta(tail) <= 1.01 * exact
    for loud in (0.0, 1.0, 3.0):
        assert gdp_delta(1 / stddev, loud) <= loss.get_delta_for_epsilon(loud)


@pytest.mark.parametrize("stddev", [0.03, 0.1, 50.0])
def test_very_little_and_very_much_noise(stddev):
    """So little that all losses that count are far above 0, so much that none is."""
    loss = codeword_loss(Gaussian(stddev), *groups(2000, 100))
    exact = gdp_epsilon(1 / stddev, 1e-5)
    assert exact <= loss.get_epsilon_for_delta(1e-5) <= 1.01 * exact


def test_a_thousand_distinct_shifts_cost_what_dp_accounting_says_of_the_sampled_gaussian():
    event = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(1.1))
    expected = PLDAccountant().compose(event, 2000).get_epsilon(1e-5)
    loss = sampled_loss(codeword_loss(Gaussian(1.1), *groups(26000, 1000)), RATE, 1e-4)
    found = [composed([Power(one, 2000)]).get_epsilon_for_delta(1e-5) for one in loss]
    assert 0.9999 * expected <= max(found) <= 1.01 * expected


@pytest.mark.parametrize("shift", [0.1, 1.0])
def test_laplace_noise_on_one_coordinate_loses_what_dp_accounting_says(shift):
    from dp_accounting.pld import privacy_loss_distribution

    exact = privacy_loss_distribution.from_laplace_mechanism(1 / shift, value_discretization_interval=1e-5)
    loss = codeword_loss(Laplace(math.sqrt(2)), np.array([shift]), np.ones(1))
    for loud in (0.0, 0.5 * shift, 0.9 * shift):
        expected = exact.get_delta_for_epsilon(loud)
        assert expected * (1 - 1e-4) <= loss.get_delta_for_epsilon(loud) <= expected * 1.01


@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_no_estimated_delta_of_encoded_neighbours_exceeds_the_bound(rate):
    """Heavy tails, a random vector under a permuted codeword, both directions, by Monte Carlo."""
    random = np.random.default_rng(3)
    magnitudes, counts = groups(30, 30)
    bound = sampled_loss(codeword_loss(Cauchy(0.5), magnitudes, counts), rate, 1e-3)
    noise = Cauchy(0.5)
    for scale in (1.0, 0.7):
        vector = random.permutation(magnitudes) * scale * random.choice([-1, 1], 30)
        z = random.standard_cauchy((200_000, 30)) * 0.5
        # log P / Q under Q and under P; then of the mixture.
        under_q = (noise.log_density(z - vector) - noise.log_density(z)).sum(axis=1)
        under_p = (noise.log_density(z) - noise.log_density(z + vector)).sum(axis=1)
        lots = random.random(len(z)) < rate
        removed = np.log1p(rate * np.expm1(np.where(lots, under_p, under_q)))
        added = -np.log1p(rate * np.expm1(under_q))
        for losses, one in zip((removed, added), bound, strict=True):
            for loud in (0.0, 0.02, 0.5):
                samples = np.maximum(0, -np.expm1(loud - losses))
                error = samples.std() / math.sqrt(len(samples))
                assert samples.mean() - 4 * error <= one.get_delta_for_epsilon(loud)


def test_several_codewords_cost_at_least_each_and_little_more():
    rows = np.array([groups(30, 30)[0], np.append(np.zeros(29), 0.9), np.full(30, 0.9 / math.sqrt(30))])
    every = codeword_loss(Laplace(1.0), rows, np.ones(30))
    for loud in (0.0, 0.5, 1.5, 3.0):
        each = max(codeword_loss(Laplace(1.0), row, np.ones(30)).get_delta_for_epsilon(loud) for row in rows)
        assert each * (1 - 1e-3) <= every.get_delta_for_epsilon(loud) <= 1.02 * each + 1e-9


def test_a_smaller_vector_never_costs_more():
    magnitudes, counts = groups(300, 300)
    large = codeword_loss(StudentT(3, 1.0), magnitudes, counts)
    small = codeword_loss(StudentT(3, 1.0), magnitudes * np.random.default_rng(0).random(300), counts)
    for loud in np.linspace(0, 4, 9):
        assert small.get_delta_for_epsilon(loud) <= large.get_delta_for_epsilon(loud)


def test_a_ledger_of_encoded_releases_is_priced_tighter_than_by_renyi():
    ledger = Ledger().record(EncodedEvent(StudentT(9, 1.1), BOOK), Poisson(RATE, 60000), 4688)
    tight, renyi = report(ledger, delta=1e-5), epsilon(ledger, delta=1e-5, accountant="rdp")
    assert tight.interval and 0.85 * renyi <= tight.epsilon <= renyi
    assert delta(ledger, epsilon=tight.epsilon) == pytest.approx(1e-5, rel=0.01)
    assert 0 < tradeoff(ledger).advantage < 0.3


@pytest.mark.parametrize("sampling", [Poisson(RATE), FullBatch(1000)], ids=["poisson", "full"])
def test_a_ledger_of_gaussian_encoded_releases_costs_what_the_gaussian_costs_and_not_less(sampling):
    steps = 2000 if isinstance(sampling, Poisson) else 1
    encoded = Ledger().record(EncodedEvent(Gaussian(1.1), BOOK), sampling, steps)
    exact = epsilon(Ledger().record(GaussianEvent(1.1), sampling, steps), delta=1e-5)
    assert exact * 0.9999 <= epsilon(encoded, delta=1e-5) <= 1.015 * exact


def test_encoded_and_gaussian_lines_are_composed_together():
    gaussian, encoded = (
        Ledger().record(event, Poisson(RATE, 60000), 1000)
        for event in (GaussianEvent(1.1), EncodedEvent(Gaussian(1.1), BOOK))
    )
    both = epsilon(Ledger.combined(gaussian, encoded), delta=1e-5)
    plain = epsilon(Ledger().record(GaussianEvent(1.1), Poisson(RATE, 60000), 2000), delta=1e-5)
    assert 0.9999 * plain <= both <= 1.015 * plain


def test_the_total_variation_of_a_step_bounds_its_delta():
    release = Encoded(Laplace(1.0), BOOK, RATE, 1)
    assert release.total_variation() >= release.one_step(1e-4).remove.get_delta_for_epsilon(0.0) * (1 - 1e-3)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_noise_beyond_what_densities_are_computed_for_is_refused(size):
    with pytest.raises(ValueError, match="cannot be priced: it is beyond"):
        check_noise(Laplace(size))
