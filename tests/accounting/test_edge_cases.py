"""The ends of every scale: a right number, never NaN, never negative, and never a number that is too
small."""

import math

import pytest

from tfdp.accounting import (
    Event,
    FullBatch,
    GaussianEvent,
    Ledger,
    NotPrivateEvent,
    Poisson,
    Sampling,
    delta,
    epsilon,
    gdp_epsilon,
    report,
)

ACCOUNTANTS = ("pld", "rdp", "moments", "gdp")


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_nothing_costs_nothing(accountant):
    for ledger in (
        Ledger(),
        Ledger.poisson(sampling_rate=0.1, noise_multiplier=1.0, steps=0),
        Ledger.poisson(sampling_rate=0.1, noise_multiplier=0.0, steps=0),
        Ledger().record(NotPrivateEvent("planned"), FullBatch(), 0),
    ):
        assert epsilon(ledger, delta=1e-5, accountant=accountant) == 0
        assert delta(ledger, epsilon=0.0, accountant=accountant) == 0


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_release_without_noise_costs_infinity(accountant):
    private = Ledger.poisson(sampling_rate=0.1, noise_multiplier=5.0, steps=3)
    for ledger in (
        Ledger.poisson(sampling_rate=0.1, noise_multiplier=0.0, steps=1),
        Ledger.poisson(sampling_rate=0.1, noise_multiplier=1e-200, steps=1),
        private.record(GaussianEvent(0.0), FullBatch(100), 1),
        private.record(NotPrivateEvent("an ordinary fit"), Poisson(0.1), 1),
    ):
        assert epsilon(ledger, delta=1e-5, accountant=accountant) == math.inf
        assert delta(ledger, epsilon=1000.0, accountant=accountant) == 1


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "at"),
    [
        (1.0, 1.0, 10**6, 1e-5),
        (1.0, 0.2, 1, 1e-12),
        (1e-7, 1.0, 10**6, 1e-5),
        (1e-7, 1.0, 10**6, 1e-12),
        (1e-9, 1.0, 10**6, 1e-12),
        (1e-300, 1.0, 10, 1e-5),
        (0.004, 0.2, 1000, 1e-5),
        (0.004, 0.2, 10**6, 1e-12),
        (0.004, 1.0, 10**6, 1e-12),
        (0.004, 1.0, 1000, 1e-12),
        (0.004, 1e-3, 10, 1e-5),
        (0.004, 1e-90, 10, 1e-5),
        (0.9, 1e5, 10**5, 1e-5),
        (0.5, 1e90, 10**9, 1e-5),
        (0.01, 1e200, 10, 1e-5),
        (1 - 1e-16, 1.0, 10, 1e-5),
        (0.01, 1.0, 100, 0.999),
        (0.01, 1.0, 100, 1e-300),
    ],
)
def test_extreme_runs_have_a_number(rate, noise, steps, at):
    ledger = Ledger.poisson(sampling_rate=rate, noise_multiplier=noise, steps=steps)
    spent = {name: epsilon(ledger, delta=at, accountant=name) for name in ACCOUNTANTS}
    assert all(value >= 0 for value in spent.values()), spent
    # "pld" is the tight one; a record in every lot, the costliest sampling, bounds it from above.
    assert spent["pld"] <= min(spent["rdp"], spent["moments"]) * (1 + 1e-6)
    most = gdp_epsilon(math.sqrt(steps) / max(noise, 1e-150), at)
    assert spent["pld"] <= most * (1 + 1e-6) or report(ledger, delta=at).interval is None
    for name in ACCOUNTANTS:
        assert 0 <= delta(ledger, epsilon=1.0, accountant=name) <= 1


@pytest.mark.parametrize(("rate", "steps", "noise"), [(1e-7, 10**6, 1.0), (1e-5, 10**5, 1.0), (1e-4, 10**6, 2.0)])
def test_small_rates_are_near_their_limit_and_never_below_it(rate, steps, noise):
    """So many small steps are Gaussian to many digits. dp-accounting's own grids give up to 50 times too much
    here."""
    ledger = Ledger.poisson(sampling_rate=rate, noise_multiplier=noise, steps=steps)
    limit = epsilon(ledger, delta=1e-5, accountant="gdp")
    assert limit * (1 - 1e-9) <= epsilon(ledger, delta=1e-5) <= limit * 1.015


def test_extreme_deltas_fall_back_to_a_proven_bound_and_say_so():
    ledger = Ledger.poisson(sampling_rate=0.004, noise_multiplier=1.0, steps=10**6)
    found = report(ledger, delta=1e-12)
    assert found.epsilon == epsilon(ledger, delta=1e-12, accountant="rdp")
    assert "Renyi" in str(found) and found.interval is None


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda ledger: epsilon(ledger, delta=0.0), "delta must lie strictly between 0 and 1"),
        (lambda ledger: epsilon(ledger, delta=1), "delta must lie strictly between 0 and 1"),
        (lambda ledger: epsilon(ledger, delta=math.nan), "delta must be a finite number"),
        (lambda ledger: epsilon(ledger, delta="1e-5"), "delta must be a finite number"),
        (lambda ledger: epsilon(ledger, delta=1e-5, accountant="PLD"), "accountant must be one of 'pld'"),
        (lambda ledger: epsilon([ledger], delta=1e-5), "Ledger.poisson"),
        (lambda ledger: delta(ledger, epsilon=-1.0), "epsilon must not be negative"),
        (lambda ledger: delta(ledger, epsilon=math.nan), "epsilon must be a finite number"),
    ],
)
def test_a_bad_argument_is_an_error_that_says_what_to_write(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(Ledger.poisson(sampling_rate=0.1, noise_multiplier=1.0, steps=1))


def test_delta_at_an_infinite_epsilon_is_zero():
    assert delta(Ledger.poisson(sampling_rate=0.1, noise_multiplier=1.0, steps=1), epsilon=math.inf) == 0


@pytest.fixture
def forget_new_kinds():
    """Events and samplings defined in a test must not stay known."""
    events, samplings = dict(Event.kinds), dict(Sampling.kinds)
    yield
    for kinds, before in ((Event.kinds, events), (Sampling.kinds, samplings)):
        kinds.clear()
        kinds.update(before)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_an_event_nobody_can_price_is_refused_and_still_can_be_stored(accountant, forget_new_kinds):
    class UnheardOfEvent(Event):
        pass

    ledger = Ledger().record(UnheardOfEvent(), FullBatch(10), 1)
    assert Ledger.from_json(ledger.to_json()) == ledger
    with pytest.raises(ValueError, match="no accountant prices UnheardOfEvent under FullBatch"):
        epsilon(ledger, delta=1e-5, accountant=accountant)
