"""Microbatches that were encoded as published: what the paper takes them for, and that nothing is known of them."""

import math

import pytest

from tfdp.accounting import Codebook, EncodedEvent, Ledger, MicrobatchedEvent, Poisson, epsilon
from tfdp.noise import Laplace

EVENT = MicrobatchedEvent(Laplace(2.0), Codebook(50, size=3), 4)
LEDGER = Ledger().record(EVENT, Poisson(0.01, 1000), 10)


def test_no_accountant_gives_it_a_finite_price():
    assert math.isinf(epsilon(LEDGER, delta=1e-5)) and math.isinf(epsilon(LEDGER, delta=1e-5, accountant="rdp"))


def test_the_paper_takes_it_for_encoded_examples():
    assert EVENT.claimed == EncodedEvent(Laplace(2.0), Codebook(50, size=3))
    assert "4 examples at a time" in EVENT.reason


def test_a_ledger_with_it_round_trips():
    assert Ledger.from_json(LEDGER.to_json()) == LEDGER


@pytest.mark.parametrize("size", [1, 0, 2.5])
def test_a_microbatch_has_two_examples_at_least(size):
    with pytest.raises(ValueError, match="microbatch_size"):
        MicrobatchedEvent(Laplace(2.0), Codebook(50, size=3), size)


def test_it_holds_a_noise_and_a_codebook():
    with pytest.raises(ValueError, match="noise must be"):
        MicrobatchedEvent(1.0, Codebook(50, size=3), 4)
