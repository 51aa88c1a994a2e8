"""The tables of Bu et al. 2019, and the proven epsilon beside each row."""

import math

import pytest

from tfdp.accounting import Ledger, epsilon, gdp_mu, gdp_noise_multiplier

# sigma, lot size, records, epochs, delta: mu, central-limit epsilon and moments epsilon of the paper; then
# epsilon of the "pld" accountant at round(epochs * n / lot) steps, and at epochs of ceil(n / lot) whole lots.
ROWS = {
    "mnist 1.3": (1.3, 256, 60000, 15, 1e-5, 0.23, 0.83, 1.19, 0.865, 0.866),
    "mnist 1.1": (1.1, 256, 60000, 60, 1e-5, 0.57, 2.32, 3.01, 2.382, 2.385),
    "mnist 0.7": (0.7, 256, 60000, 45, 1e-5, 1.13, 5.07, 7.10, 5.640, 5.647),
    "mnist 0.6": (0.6, 256, 60000, 62, 1e-5, 2.00, 9.98, 13.27, 10.950, 10.965),
    "mnist 0.55": (0.55, 256, 60000, 68, 1e-5, 2.76, 14.98, 18.72, 15.716, 15.738),
    "mnist 0.5": (0.5, 256, 60000, 100, 1e-5, 4.78, 31.12, 32.40, 28.046, 28.089),
    "adult": (0.55, 256, 29305, 18, 1e-5, 2.03, 10.20, 14.70, 11.807, 11.830),
    "imdb": (0.56, 512, 25000, 9, 1e-5, 2.07, 10.43, 15.24, 12.141, 12.164),
    "movielens": (0.6, 1, 80, 20, 1e-6, 1.94, 10.61, 15.39, 12.749, None),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_central_limit_and_moments_columns_are_the_papers(row):
    sigma, lot, size, epochs, delta, mu, limit, moments, *_ = row
    steps = round(epochs * size / lot)
    assert gdp_mu(sampling_rate=lot / size, noise_multiplier=sigma, steps=steps) == pytest.approx(mu, abs=0.01)
    ledger = Ledger.poisson(sampling_rate=lot / size, noise_multiplier=sigma, steps=steps)
    assert epsilon(ledger, delta=delta, accountant="gdp") == pytest.approx(limit, abs=0.01)
    rounding = 0.03 if sigma == 0.5 else 0.01  # the paper rounds steps and orders
    assert epsilon(ledger, delta=delta, accountant="moments") == pytest.approx(moments, rel=rounding)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_proven_epsilon_of_each_row(row):
    sigma, lot, size, epochs, delta, *_, proven, whole_lots = row
    exact = Ledger.poisson(sampling_rate=lot / size, noise_multiplier=sigma, steps=round(epochs * size / lot))
    assert epsilon(exact, delta=delta) == pytest.approx(proven, abs=6e-4)
    if whole_lots is not None:
        steps = epochs * math.ceil(size / lot)
        ledger = Ledger.poisson(sampling_rate=lot / size, noise_multiplier=sigma, steps=steps)
        assert epsilon(ledger, delta=delta) == pytest.approx(whole_lots, abs=6e-4)


@pytest.mark.parametrize(
    ("sigma", "epochs", "less_noise", "digits", "published", "truth"),
    [(1.3, 20, 1.06, 2, 1.34, 1.41), (0.7, 70, 0.638, 3, 8.68, 9.48)],
)
def test_the_smaller_noise_of_equations_7_and_8(sigma, epochs, less_noise, digits, published, truth):
    rate, steps, delta = 256 / 60000, round(epochs * 60000 / 256), 1e-5
    found = gdp_noise_multiplier(noise_multiplier=sigma, sampling_rate=rate, steps=steps, delta=delta)
    assert round(found, digits) == less_noise
    both = {
        accountant: epsilon(
            Ledger.poisson(sampling_rate=rate, noise_multiplier=noise, steps=steps),
            delta=delta,
            accountant=accountant,
        )
        for noise, accountant in ((sigma, "moments"), (found, "gdp"), (less_noise, "pld"))
    }
    assert both["moments"] == pytest.approx(published, abs=0.011)
    assert both["gdp"] == pytest.approx(both["moments"], rel=1e-9)
    assert both["pld"] == pytest.approx(truth, abs=0.006)
    assert both["pld"] > published
