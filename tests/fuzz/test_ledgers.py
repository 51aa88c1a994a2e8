"""Any ledger survives its JSON; any other text is a ValueError, or the ledger it says."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.cases import ANYTHING, cases
from tfdp.accounting import (
    Codebook,
    EncodedEvent,
    FixedSize,
    FullBatch,
    GaussianEvent,
    Ledger,
    Line,
    MicrobatchedEvent,
    NotPrivateEvent,
    Poisson,
    PublishedEvent,
    Shuffled,
)
from tfdp.noise import Cauchy, Gaussian, Laplace, StudentT

COUNTS = st.integers(1, 10**12)
SCALES = st.floats(1e-300, 1e300)
NOISES = st.one_of(
    st.builds(Gaussian, SCALES), st.builds(Laplace, SCALES), st.builds(Cauchy, SCALES), st.builds(StudentT, st.floats(2.01, 1e300), SCALES)
)  # fmt: skip
CODEBOOKS = st.builds(Codebook, COUNTS, st.integers(1, 10**6), NOISES, st.integers(0, 2**32 - 1))
REASONS = st.text(min_size=1)
EVENTS = st.one_of(
    st.builds(GaussianEvent, st.floats(0, 1e300)),
    st.builds(NotPrivateEvent, REASONS),
    st.builds(EncodedEvent, NOISES, CODEBOOKS),
    st.builds(MicrobatchedEvent, NOISES, CODEBOOKS, st.integers(2, 10**6)),
    st.builds(PublishedEvent, SCALES, st.floats(1e-300, 0.99), REASONS, st.none() | SCALES),
)
PAIRS = st.tuples(COUNTS, COUNTS).map(sorted)
SAMPLINGS = st.one_of(
    st.builds(Poisson, st.floats(1e-300, 1), st.none() | COUNTS, st.booleans()),
    st.builds(FullBatch, st.none() | COUNTS, st.booleans()),
    PAIRS.map(lambda pair: FixedSize(pair[1], pair[0])),
    PAIRS.map(lambda pair: Shuffled(pair[1], pair[0], -(-pair[1] // pair[0]))),
)
LEDGERS = st.lists(st.builds(Line, EVENTS, SAMPLINGS, st.integers(0, 10**15)), max_size=4).map(Ledger)


@cases(100, 1000)
@given(LEDGERS)
def test_any_ledger_survives_its_json(ledger):
    text = ledger.to_json()
    assert Ledger.from_json(text) == ledger
    assert Ledger.from_json(text).to_json() == text


@st.composite
def edited(draw) -> str:
    """A ledger's JSON with one value, anywhere in it, replaced or left out."""
    data = json.loads(draw(LEDGERS.filter(len)).to_json())
    place, key = data, "lines"
    while isinstance(place[key], dict | list) and place[key] and draw(st.integers(0, 4)):
        place = place[key]
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    if draw(st.booleans()):
        place[key] = draw(st.recursive(PLAIN, lambda parts: st.lists(parts, max_size=2)))
    else:
        del place[key]
    return json.dumps(data)


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just({}), st.just(10**400)
)


@cases(150, 1500)
@given(edited())
def test_an_edited_ledger_is_refused_or_is_what_it_says(text):
    try:
        ledger = Ledger.from_json(text)
    except ValueError as error:
        assert str(error)
        return
    said = [line["steps"] for line in json.loads(text)["lines"]]
    assert [line.steps for line in ledger] == said
    assert Ledger.from_json(ledger.to_json()) == ledger


@cases(60, 500)
@given(ANYTHING | st.text() | st.recursive(PLAIN, lambda parts: st.lists(parts)).map(json.dumps))
def test_what_is_no_ledger_is_refused(text):
    try:
        Ledger.from_json(text)
    except ValueError as error:
        assert "ledger" in str(error)
    else:
        raise AssertionError(f"{text!r} was read as a ledger")


def test_json_that_is_nested_without_end_is_refused():
    for text in ("[" * 100_000, '{"format":' * 100_000):
        try:
            Ledger.from_json(text)
        except ValueError as error:
            assert "ledger" in str(error)
