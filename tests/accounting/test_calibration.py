"""Noise and steps for a budget: never above the target, and not far below."""

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from tests.accounting.random_settings import random_settings
from tfdp.accounting import (
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    NotPrivateEvent,
    Poisson,
    Shuffled,
    epsilon,
    gdp_noise_multiplier,
    max_more_steps,
    max_steps,
    noise_multiplier,
)
from tfdp.accounting.largest_fitting import largest_fitting

# The slow accountants search for a few of the settings, the quick ones for the others.
ACCOUNTANTS = ("pld", "gdp", "gdp", "moments", "gdp", "gdp", "gdp", "gdp", "rdp", "gdp", "gdp", "moments", "gdp")


def targets():
    """(setting, accountant, target): a target between what half and twice the steps cost."""
    for number, setting in enumerate(random_settings()):
        accountant = ACCOUNTANTS[number % len(ACCOUNTANTS)]
        factor = 0.5 + 1.5 * (number % 7) / 6
        steps = max(1, round(setting.steps * factor))
        target = epsilon(setting.with_steps(steps), delta=setting.delta, accountant=accountant)
        yield setting, accountant, max(target, 0.02) * 1.0001


def test_max_steps_is_exact_on_200_settings():
    for setting, accountant, target in targets():
        steps = max_steps(
            target_epsilon=target,
            delta=setting.delta,
            sampling_rate=setting.sampling_rate,
            noise_multiplier=setting.noise_multiplier,
            accountant=accountant,
        )
        assert epsilon(setting.with_steps(steps), delta=setting.delta, accountant=accountant) <= target
        assert epsilon(setting.with_steps(steps + 1), delta=setting.delta, accountant=accountant) > target


def test_noise_reaches_the_target_from_below_within_half_a_percent_on_200_settings():
    jumps = 0
    for setting, accountant, target in targets():
        target = max(target, 0.25) if accountant == "moments" else target
        rate, steps = setting.sampling_rate, setting.steps
        noise = noise_multiplier(
            target_epsilon=target, delta=setting.delta, sampling_rate=rate, steps=steps, accountant=accountant
        )

        def spent(noise, setting=setting, accountant=accountant):
            ledger = setting._replace(noise_multiplier=noise).ledger
            return epsilon(ledger, delta=setting.delta, accountant=accountant)

        assert spent(noise) <= target
        if spent(noise) >= 0.995 * target:
            continue
        if accountant == "rdp":
            # The Renyi conversion jumps from 0 up: there is no noise in between, and a hair less is too
            # little.
            assert spent(noise * (1 - 1e-6)) > target
            jumps += 1
        else:
            # A record is seen at all with probability at most rate * steps: below delta, any noise will do.
            assert noise == pytest.approx(1e-3) and rate * steps <= setting.delta
    assert jumps < 10


def test_the_noise_is_that_of_dp_accountings_own_calibration():
    rate, steps = 0.05, 500

    def event(noise):
        single = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        return dp_accounting.SelfComposedDpEvent(single, steps)

    expected = dp_accounting.calibrate_dp_mechanism(
        PLDAccountant, event, 1.0, 1e-5, dp_accounting.LowerEndpointAndGuess(0.5, 1.0), tol=1e-3
    )
    found = noise_multiplier(target_epsilon=1.0, delta=1e-5, sampling_rate=rate, steps=steps)
    assert found == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize(
    ("sampling", "accountant"),
    [
        (FullBatch(1000), "pld"),
        (Shuffled(1000, 10, 100), "pld"),
        (Shuffled(1000, 10, 100), "rdp"),
        (FixedSize(1000, 10), "rdp"),
        (Poisson(0.01, 1000, public_size=True), "gdp"),
    ],
)
def test_every_sampling_can_be_calibrated(sampling, accountant):
    noise = noise_multiplier(target_epsilon=2.0, delta=1e-5, steps=150, sampling=sampling, accountant=accountant)
    ledger = Ledger().record(GaussianEvent(noise), sampling, 150)
    assert 1.99 <= epsilon(ledger, delta=1e-5, accountant=accountant) <= 2.0
    more = max_more_steps(
        Ledger(), GaussianEvent(noise), sampling, target_epsilon=2.0, delta=1e-5, accountant=accountant
    )
    assert more >= 150


def test_what_is_already_spent_counts():
    spent = Ledger.poisson(sampling_rate=0.02, noise_multiplier=2.0, steps=1000)
    event, sampling = GaussianEvent(3.0), Poisson(0.03)
    steps = max_more_steps(spent, event, sampling, target_epsilon=2.0, delta=1e-5)
    assert epsilon(spent.record(event, sampling, steps), delta=1e-5) <= 2.0
    assert epsilon(spent.record(event, sampling, steps + 1), delta=1e-5) > 2.0
    noise = noise_multiplier(target_epsilon=2.0, delta=1e-5, sampling_rate=0.03, steps=500, spent=spent)
    total = spent.record(GaussianEvent(noise), Poisson(0.03), 500)
    assert 1.99 <= epsilon(total, delta=1e-5) <= 2.0


def test_a_budget_already_overspent_allows_no_step_and_no_noise():
    spent = Ledger.poisson(sampling_rate=0.02, noise_multiplier=1.0, steps=1000)
    assert max_more_steps(spent, GaussianEvent(5.0), Poisson(0.01), target_epsilon=1.0, delta=1e-5) == 0
    with pytest.raises(ValueError, match="already spent"):
        noise_multiplier(target_epsilon=1.0, delta=1e-5, sampling_rate=0.01, steps=1, spent=spent)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "moments", "gdp"])
def test_a_release_without_noise_never_fits(accountant):
    arguments = {"target_epsilon": 9.0, "delta": 1e-5, "accountant": accountant}
    assert max_steps(sampling_rate=0.01, noise_multiplier=0.0, **arguments) == 0
    assert max_more_steps(Ledger(), NotPrivateEvent("fit"), FullBatch(10), **arguments) == 0


def test_what_no_noise_can_reach_is_an_error_that_says_so():
    with pytest.raises(ValueError, match=r"'moments'.*accountant='pld'"):
        noise_multiplier(target_epsilon=0.1, delta=1e-5, sampling_rate=0.01, steps=10, accountant="moments")
    with pytest.raises(ValueError, match="does not bind"):
        max_steps(target_epsilon=9.0, delta=1e-5, sampling_rate=1e-7, noise_multiplier=50.0, accountant="gdp")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_epsilon": 0.0}, "target_epsilon must be positive"),
        ({"target_epsilon": float("nan")}, "target_epsilon must be a finite"),
        ({"delta": 1.0}, "strictly between 0 and 1"),
        ({"delta": 0.0}, "strictly between 0 and 1"),
        ({"steps": 0}, "at least 1"),
        ({"steps": 2.5}, "whole number"),
        ({"sampling_rate": None}, "exactly one of sampling_rate and sampling"),
        ({"sampling": FullBatch(10)}, "exactly one of sampling_rate and sampling"),
        ({"accountant": "exact"}, "accountant must be one of 'pld', 'rdp'"),
    ],
)
def test_a_bad_argument_is_an_error_that_says_what_to_write(change, message):
    arguments = {"target_epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.01, "steps": 10, **change}
    with pytest.raises(ValueError, match=message):
        noise_multiplier(**arguments)


def test_equations_7_and_8_need_noise():
    with pytest.raises(ValueError, match="noise_multiplier must be above 0"):
        gdp_noise_multiplier(noise_multiplier=0.0, sampling_rate=0.01, steps=10, delta=1e-5)


@pytest.mark.parametrize("guess", [1, 37, 10**6])
@pytest.mark.parametrize(("cost", "expected"), [(lambda x: x**0.5, 100), (lambda x: x // 50, 549), (lambda x: 11, 0)])
def test_the_search_finds_the_last_amount_that_fits(cost, expected, guess):
    assert largest_fitting(cost, 10, guess, least=1, most=10**9, whole=True) == expected


def test_the_search_for_a_cost_beyond_the_squares_of_floats():
    assert largest_fitting(lambda x: 1e-300 * x, 1.0, 1.0, least=1, most=10**9) == 10**9
