"""Ledgers of encoded releases: small, exact in JSON, priced by Renyi divergences."""

import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian

from tfdp.accounting import (
    Budget,
    Codebook,
    EncodedEvent,
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    Poisson,
    Shuffled,
    epsilon,
    noise_multiplier,
    rdp,
    report,
    sampled_noise_rdp,
)
from tfdp.noise import Gaussian, Laplace, StudentT

BOOK = Codebook(500, size=5)
EVENT = EncodedEvent(StudentT(9, 1.1), BOOK)
SAMPLING = Poisson(256 / 60000, 60000)
LEDGER = Ledger().record(EVENT, SAMPLING, 4688).record(GaussianEvent(1.1), SAMPLING, 10)


def test_the_json_round_trip_is_exact_and_short():
    text = LEDGER.to_json()
    assert Ledger.from_json(text) == LEDGER and len(text) < 1000
    assert Ledger.from_json(text).lines[0].event.codebook.distribution == Gaussian(1.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"StudentT"', '"Uniform"', "noise has the unknown type 'Uniform'"),
        ('"df": 9.0', '"df": 9.0, "skew": 1', "noise has unknown fields"),
        ('"df": 9.0', '"df": -9.0', "line 0: event: noise: df"),
        ('"weights": 500', '"weights": 0', "codebook: weights"),
        ('"seed": 0', '"seed": 0, "file": "x"', "codebook has unknown fields"),
        ('"noise_multiplier": 1.1', '"noise_multiplier": {"type": "Gaussian", "stddev": 1}', "noise_multiplier"),
    ],
)
def test_what_is_not_understood_is_an_error(old, new, message):
    text = LEDGER.to_json()
    assert old in text
    with pytest.raises(ValueError, match=message):
        Ledger.from_json(text.replace(old, new))


def test_gaussian_noise_under_codewords_costs_what_the_gaussian_costs():
    """All codewords have norm 1, so encoding buys nothing here."""
    encoded = Ledger().record(EncodedEvent(Gaussian(1.1), BOOK), SAMPLING, 4688)
    plain = Ledger().record(GaussianEvent(1.1), SAMPLING, 4688)
    for accountant, tolerance in (("rdp", 1e-5), ("moments", 0.02)):
        ours, theirs = (epsilon(ledger, delta=1e-5, accountant=accountant) for ledger in (encoded, plain))
        assert theirs * (1 - 1e-6) <= ours <= theirs * (1 + tolerance)


def test_fractional_orders_lie_between_whole_ones_and_above_the_truth():
    orders = np.array([1.1, 1.5, 2.0, 2.5, 10.9, 63.5, 128.0, 129.0])
    encoded = rdp.curve(Ledger().record(EncodedEvent(Gaussian(1.1), BOOK), SAMPLING, 1), orders)
    plain = rdp.curve(Ledger().record(GaussianEvent(1.1), SAMPLING, 1), orders)
    assert (encoded >= plain * (1 - 1e-6)).all() and math.isinf(encoded[-1])
    np.testing.assert_allclose(encoded[[2, 6]], plain[[2, 6]], rtol=1e-5)


def test_without_sampling_a_pass_costs_one_release():
    def divergence(sampling, steps):
        return rdp.curve(Ledger().record(EVENT, sampling, steps), (2.0, 8.0))

    one = sampled_noise_rdp(EVENT.noise, BOOK, 1.0, [2, 8])
    np.testing.assert_allclose(divergence(FullBatch(1000), 3), 3 * one, rtol=1e-9)
    np.testing.assert_allclose(divergence(Shuffled(1000, 10, 100), 150), 2 * one, rtol=1e-9)


def test_different_lines_add_up():
    lines = [Ledger([line]) for line in LEDGER]
    orders = (2.0, 4.5, 32.0)
    np.testing.assert_allclose(rdp.curve(LEDGER, orders), sum(rdp.curve(line, orders) for line in lines), rtol=1e-12)


@pytest.mark.parametrize("accountant", ["gdp"])
def test_accountants_without_an_argument_refuse(accountant):
    with pytest.raises(ValueError, match="use accountant='rdp'"):
        report(LEDGER, delta=1e-5, accountant=accountant)


def test_fixed_size_lots_are_refused():
    ledger = Ledger().record(EVENT, FixedSize(1000, 10), 1)
    with pytest.raises(ValueError, match="lies under no codeword; draw Poisson lots"):
        epsilon(ledger, delta=1e-5, accountant="rdp")


def test_noise_is_found_for_a_target():
    def event(size):
        return EncodedEvent(StudentT(9, size), BOOK)

    settings = {"target_epsilon": 3.0, "delta": 1e-5, "sampling_rate": 256 / 60000, "steps": 4688}
    found = noise_multiplier(**settings, accountant="rdp", event=event)
    ledger = Ledger().record(event(found), SAMPLING, 4688)
    assert 0.998 * 3.0 <= epsilon(ledger, delta=1e-5, accountant="rdp") <= 3.0
    assert Budget(3.0, 1e-5, "rdp").steps_that_fit(Ledger(), ledger.lines[0].event, SAMPLING, 10**6) >= 4688


@pytest.mark.parametrize("arguments", [(1.0, BOOK), (Gaussian(1.0), "book")])
def test_an_event_holds_a_noise_and_a_codebook(arguments):
    with pytest.raises(ValueError, match="must be a"):
        EncodedEvent(*arguments)


@pytest.mark.parametrize("df", [1e9, 1e20])
def test_student_t_with_many_degrees_of_freedom_costs_what_a_gaussian_does(df):
    student, gaussian = (
        epsilon(Ledger().record(EncodedEvent(noise, BOOK), FullBatch(), 1), delta=1e-5)
        for noise in (StudentT(df, 2.0), Gaussian(2.0))
    )
    assert student == pytest.approx(gaussian, rel=1e-6)


@pytest.mark.parametrize("sampling", [FullBatch(), Poisson(0.1)], ids=["all records", "Poisson lots"])
@pytest.mark.parametrize("noise", [Gaussian(1.0), Laplace(1.0), StudentT(5, 1.0)], ids=str)
def test_next_to_no_noise_costs_ever_more_and_then_all(noise, sampling):
    """Orders times shifts that are too many to integrate over are left out, and what tells a record has an infinite loss."""
    one_weight = Codebook(1, size=1)
    spent = {
        accountant: [
            epsilon(
                Ledger().record(EncodedEvent(noise.scaled(size), one_weight), sampling, 3),
                delta=1e-5,
                accountant=accountant,
            )
            for size in (1e-2, 1e-3, 1e-96)
        ]
        for accountant in ("rdp", "pld")
    }
    assert spent["rdp"][-1] == spent["pld"][-1] == math.inf
    for tight, renyi in zip(spent["pld"], spent["rdp"], strict=True):
        assert 10 < tight <= renyi
    assert spent["pld"] == sorted(spent["pld"])


@pytest.mark.parametrize("size", [0.03, 0.3, 3.0])
def test_one_weight_of_gaussian_noise_is_the_gaussian_mechanism(size):
    ledger = Ledger().record(EncodedEvent(Gaussian(size), Codebook(1, size=1)), FullBatch(), 1)
    found = epsilon(ledger, delta=1e-5)
    exact = get_epsilon_gaussian(size, 1e-5)
    assert exact * (1 - 1e-6) <= found <= exact * 1.03
