"""Releases that the report was never told about: what an accountant can price is not proven for that alone."""

import dataclasses

import dp_accounting
import pytest

from tests.report import runs
from tfdp.accounting import (
    Codebook,
    EncodedEvent,
    Event,
    FullBatch,
    GaussianEvent,
    GaussianOnGridEvent,
    Ledger,
    Poisson,
    PublishedEvent,
    Sampling,
    Shuffled,
    Status,
    epsilon,
    translation,
)
from tfdp.noise import Laplace

BOOK = Codebook(runs.WEIGHTS, size=2)


@pytest.fixture(autouse=True)
def forget_new_kinds():
    """Events and samplings that are defined in a test must not stay known."""
    before = [(kinds, dict(kinds)) for kinds in (Event.kinds, Sampling.kinds)]
    yield
    for kinds, known in before:
        kinds.clear()
        kinds.update(known)


def laplace(line):
    """A row of the accountants' table for Laplace noise."""
    return translation.Term(dp_accounting.LaplaceDpEvent(line.event.noise_multiplier), line.steps)


def sampled_laplace(line):
    inner = dp_accounting.LaplaceDpEvent(line.event.noise_multiplier)
    return translation.Term(dp_accounting.PoissonSampledDpEvent(line.sampling.sampling_rate, inner), line.steps)


def derived(parent, *arguments):
    """An event of a class of its own that adds nothing to its parent."""
    return type("Own" + parent.__name__, (parent,), {})(*arguments)


def at_worst(worst):
    class AtWorst(Event):
        at_worst = property(lambda self: worst)

    return AtWorst()


def with_rows(monkeypatch, poisson=laplace):
    @dataclasses.dataclass(frozen=True)
    class Priced(Event):
        noise_multiplier: float = 20.0

    monkeypatch.setitem(translation._RULES, (Priced, Poisson), poisson)
    monkeypatch.setitem(translation._RULES, (Priced, FullBatch), laplace)
    return Priced()


def published():
    return PublishedEvent(1.0, 1e-5, "because", 1.1)


STRANGERS = {
    "derived of the Gaussian": lambda _: derived(GaussianEvent, 1.1),
    "derived of the grid": lambda _: derived(GaussianOnGridEvent, 1.1),
    "derived of the encoded": lambda _: derived(EncodedEvent, Laplace(2.0), BOOK),
    "derived of the published": lambda _: derived(PublishedEvent, 1.0, 1e-5, "because", 1.1),
    "says what it is at worst": lambda _: at_worst(GaussianEvent(1.1)),
    "is worst at an encoded one": lambda _: at_worst(EncodedEvent(Laplace(2.0), BOOK)),
    "has rows in the table": with_rows,
}


@pytest.mark.parametrize("sampling", [runs.LOTS, FullBatch(60000)], ids=["Poisson", "FullBatch"])
@pytest.mark.parametrize("name", STRANGERS)
def test_of_an_event_that_does_not_say_what_its_tails_cost_nothing_is_proven(name, sampling, monkeypatch):
    ledger = Ledger().record(STRANGERS[name](monkeypatch), sampling, 10)
    priced = epsilon(ledger, delta=1e-5, accountant="rdp")
    made = runs.statement(ledger, runs.fit(10), delta=1e-5)
    assert 0 < priced < 1e6
    assert made.epsilon is None
    assert not [claim for claim in made.claims if claim.status is Status.PROVEN]
    assert any("tails costs is not derived" in reason for reason in runs.main(made).reasons)
    assert "proven claim" in made.meaning


def test_one_line_of_a_stranger_takes_the_proof_from_the_whole_ledger():
    ledger = runs.SINGLE.record(derived(GaussianEvent, 50.0), runs.LOTS, 1)
    made = runs.statement(ledger, delta=1e-5, settings_fixed_beforehand=True)
    assert made.epsilon is None
    assert "OwnGaussianEvent" in runs.main(made).reasons[0]


def test_a_filter_is_not_proven_of_a_stranger_either():
    ledger = Ledger().record(derived(GaussianEvent, 5.0), runs.LOTS, 100)
    made = runs.statement(ledger, runs.fit(budgets=(runs.filter_budget(),)), delta=1e-5)
    (claim,) = [claim for claim in made.claims if claim.how.startswith("filter")]
    assert claim.status is Status.APPROXIMATE
    assert made.epsilon is None


def test_a_sampling_of_a_class_of_its_own_has_no_price_of_tails():
    own = type("OwnPoisson", (Poisson,), {})(256 / 60000, 60000)
    made = runs.statement(runs.ledger(1.1, sampling=own), delta=1e-5)
    assert made.epsilon is None
    assert "OwnPoisson" in runs.main(made).reasons[0]


@pytest.mark.parametrize("price", [float("nan"), -1e-6, 2.0, None])
def test_a_price_that_is_no_share_of_probability_is_none(price):
    class Odd(GaussianEvent):
        def missing_tails_delta(self, weights, steps):
            return price

    made = runs.statement(Ledger().record(Odd(1.1), runs.LOTS, 10), delta=1e-5)
    assert made.epsilon is None


def test_an_event_that_says_what_its_tails_cost_is_proven_at_that_price():
    class Own(GaussianEvent):
        def missing_tails_delta(self, weights, steps):
            return 1e-9 * weights * steps

    ledger = Ledger().record(Own(1.1), runs.LOTS, 10)
    made = runs.statement(ledger, runs.fit(10), delta=2e-5)
    assert made.epsilon == pytest.approx(epsilon(ledger, delta=1e-5), rel=1e-6)
    assert "1e-05 of delta pays" in runs.main(made).how


@pytest.mark.parametrize(
    "event", [GaussianEvent(1.1), GaussianOnGridEvent(1.1), EncodedEvent(Laplace(2.0), BOOK), published()]
)
@pytest.mark.parametrize("sampling", [runs.LOTS, FullBatch(60000), Shuffled(60000, 256, 235)])
def test_the_events_of_tfdp_say_what_their_tails_cost(event, sampling):
    price = Ledger().record(event, sampling, 10).lines[0].missing_tails_delta(runs.WEIGHTS)
    assert 0 < price < 1e-12


def test_the_last_bits_of_an_event_derived_of_the_grid_are_listed():
    ids = {limit.id for limit in runs.statement(Ledger().record(GaussianOnGridEvent(1.1), runs.LOTS, 1)).not_protected}
    own = Ledger().record(derived(GaussianOnGridEvent, 1.1), runs.LOTS, 1)
    assert "floating_point_noise" not in ids
    assert "floating_point_noise" in {limit.id for limit in runs.statement(own).not_protected}


@pytest.mark.parametrize("accountant", ["pld", "gdp"])
def test_other_noise_with_a_noise_multiplier_is_not_priced_as_gaussian(accountant, monkeypatch):
    ledger = Ledger().record(with_rows(monkeypatch, sampled_laplace), Poisson(0.5), 10)
    with pytest.raises(ValueError, match="cannot price"):
        epsilon(ledger, delta=1e-5, accountant=accountant)
