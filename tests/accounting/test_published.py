"""The noise that Xiang et al. 2021 find for a target, and what it is worth."""

import math

import numpy as np
import pytest
import scipy.optimize

from tfdp.accounting import (
    GaussianEvent,
    Ledger,
    Line,
    NotPrivateEvent,
    Poisson,
    PublishedEvent,
    epsilon,
    noise_multiplier,
)
from tfdp.accounting.published import claim_is_the_papers, published_noise_multiplier, published_tau

MNIST = {"size": 55000, "lot": 512, "epochs": 60, "target": 1.0}
SVHN = {"size": 73257, "lot": 256, "epochs": 30, "target": 5.0}
DELTA = 1e-5


def run(size, lot, epochs, target):
    return target, lot / size, epochs * size // lot


@pytest.mark.parametrize("paper, multiplier, proven, needed", [(MNIST, 8.00, 0.319, 2.90), (SVHN, 2.45, 0.487, 0.66)])
def test_what_the_papers_settings_give(paper, multiplier, proven, needed):
    target, rate, steps = run(**paper)
    found = published_noise_multiplier(target, DELTA, rate, steps)
    assert found == pytest.approx(multiplier, abs=0.006)
    ledger = Ledger.poisson(sampling_rate=rate, noise_multiplier=found, steps=steps)
    assert epsilon(ledger, delta=DELTA) == pytest.approx(proven, abs=0.001)
    enough = noise_multiplier(target_epsilon=target, delta=DELTA, sampling_rate=rate, steps=steps)
    assert enough == pytest.approx(needed, abs=0.006)


def test_tau_of_mnist():
    target, rate, steps = run(**MNIST)
    assert published_tau(target / rate, DELTA / rate, steps) == pytest.approx(0.01561, abs=5e-6)


@pytest.mark.parametrize("target", [1e-3, 0.1, 1.0, 50.0, 1e4])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.5, 1.0, 3.0])
def test_beta_is_the_best_positive_integer(target, delta):
    betas = np.unique(np.round(10.0 ** np.linspace(0, 6, 200_000)))
    best = np.max(2 * (target + math.log(delta) / betas) / (7 * (1 + betas)))
    assert published_tau(target, delta, 7) == pytest.approx(best, rel=1e-6)
    assert published_tau(target, delta, 7) > 0


@pytest.mark.parametrize("target, delta", [(107.0, 1e-3), (0.5, 1e-5)])
def test_tau_meets_the_papers_tail_bound_with_equality(target, delta):
    """Equation 7: the bound exp(k (b + b^2) tau / 2 - b epsilon) is delta at the best b, and no integer b has it below."""
    tau, steps = published_tau(target, delta, 100), 100

    def bound(beta):
        return steps * (beta + beta**2) * tau / 2 - beta * target - math.log(delta)

    around = scipy.optimize.minimize_scalar(bound, bounds=(0.5, 1e4), method="bounded").x
    betas = list(range(max(1, int(around) - 3), int(around) + 4))
    assert min(bound(beta) for beta in betas) == pytest.approx(0, abs=1e-9 * steps)


def test_it_is_priced_as_what_was_known_before_the_step():
    sampling = Poisson(0.01, 1000)
    event = PublishedEvent(1.0, DELTA, "a reason", noise_multiplier=2.0)
    both = [Ledger().record(one, sampling, 50) for one in (event, GaussianEvent(2.0))]
    for accountant in ("pld", "rdp", "gdp"):
        found = [epsilon(ledger, delta=DELTA, accountant=accountant) for ledger in both]
        assert found[0] == found[1]
    assert event.at_worst == GaussianEvent(2.0)


def test_without_a_bound_it_costs_infinity():
    event = PublishedEvent(1.0, DELTA, "a reason")
    assert epsilon(Ledger().record(event, Poisson(0.01, 1000), 1), delta=DELTA) == math.inf
    assert event.at_worst == NotPrivateEvent("a reason")


@pytest.mark.parametrize("bound", [None, 2.0])
def test_it_goes_through_json(bound):
    ledger = Ledger().record(PublishedEvent(1.0, DELTA, "a reason", bound), Poisson(0.01, 1000), 3)
    assert Ledger.from_json(ledger.to_json()) == ledger


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0.0, DELTA, "a"), "target_epsilon"),
        ((1.0, 0.0, "a"), "delta"),
        ((1.0, DELTA, ""), "reason"),
        ((1.0, DELTA, "a", -1.0), "noise_multiplier"),
    ],
)
def test_bad_events(arguments, message):
    with pytest.raises(ValueError, match=message):
        PublishedEvent(*arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [((-1.0, DELTA, 0.1, 5), "epsilon"), ((1.0, DELTA, 0.0, 5), "sampling_rate"), ((1.0, DELTA, 0.1, 0), "steps")],
)
def test_bad_runs(arguments, message):
    with pytest.raises(ValueError, match=message):
        published_noise_multiplier(*arguments)


@pytest.mark.parametrize(
    ("rate", "steps", "target", "share", "claims"),
    [
        (0.01, 100, 1.0, 1.0, True),
        (0.01, 60, 1.0, 1.0, True),  # ended early
        (0.01, 101, 1.0, 1.0, False),  # two plans on one line
        (0.02, 100, 1.0, 1.0, False),  # lots of another rate
        (0.01, 100, 0.9, 1.0, False),  # noise found for another target
        (0.01, 100, 1.0, 0.9, False),
    ],
)
def test_the_claim_is_the_papers_only_if_its_formula_was_kept_to(rate, steps, target, share, claims):
    noise = published_noise_multiplier(1.0, DELTA, 0.01, 100)
    event = PublishedEvent(target, DELTA, "a reason", 2.0, noise, share)
    assert claim_is_the_papers(Line(event, Poisson(rate, 1000), steps)) is claims
