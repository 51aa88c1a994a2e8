"""The ledger's JSON: exact, strict, and nothing is skipped when it is read."""

import json

import pytest

from tfdp.accounting import FixedSize, FullBatch, GaussianEvent, Ledger, NotPrivateEvent, Poisson, Shuffled

LEDGER = (
    Ledger.poisson(sampling_rate=256 / 60000, noise_multiplier=0.1 + 0.2, steps=14062)
    .record(GaussianEvent(1e-300), Poisson(1e-7, 10**7, public_size=True), 10**12)
    .record(GaussianEvent(1.1), FullBatch(60000), 1)
    .record(GaussianEvent(1.1), Shuffled(1000, 10, 100), 150, passes=4)
    .record(GaussianEvent(1.1), FixedSize(1000, 10), 7)
    .record(NotPrivateEvent('a "plain" fit'), FullBatch(), 3)
)


def test_the_round_trip_is_exact():
    text = LEDGER.to_json()
    assert Ledger.from_json(text) == LEDGER
    assert Ledger.from_json(text).to_json() == text
    assert Ledger.from_json(Ledger().to_json()) == Ledger()


def test_the_text_is_strict_json():
    def refuse(token):
        raise AssertionError(token)

    read = json.loads(LEDGER.to_json(), parse_constant=refuse)
    assert Ledger.from_json(json.dumps(read, allow_nan=False)) == LEDGER


def changed(change):
    data = json.loads(LEDGER.to_json())
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not the JSON"),
        ("[]", "not the JSON of a ledger"),
        ("{}", "not the JSON of a ledger"),
        (changed(lambda d: d.update(version=2)), "version 2"),
        (changed(lambda d: d.update(version=True)), "version True"),
        (changed(lambda d: d.update(extra=1)), "unknown fields.*extra"),
        (changed(lambda d: d.pop("lines")), "lacks the fields.*lines"),
        (changed(lambda d: d.update(lines={})), "must be a list"),
        (changed(lambda d: d["lines"][0].update(note="x")), "line 0 has unknown fields.*note"),
        (changed(lambda d: d["lines"][0].pop("steps")), "line 0 lacks"),
        (changed(lambda d: d["lines"][0].update(steps=1.5)), "line 0: steps must be a whole number"),
        (changed(lambda d: d["lines"][0].update(steps=-1)), "line 0: steps"),
        (changed(lambda d: d["lines"][1]["event"].update(type="LaplaceEvent")), "unknown type 'LaplaceEvent'"),
        (changed(lambda d: d["lines"][1]["event"].update(scale=1)), "line 1: event has unknown fields"),
        (changed(lambda d: d["lines"][1]["event"].update(noise_multiplier=-1)), "line 1: event: noise_multi"),
        (changed(lambda d: d["lines"][1]["event"].pop("noise_multiplier")), "lacks the fields"),
        (changed(lambda d: d["lines"][1]["sampling"].update(sampling_rate=2)), "line 1: sampling"),
        (LEDGER.to_json().replace("14062", "NaN"), "finite numbers only, not NaN"),
        (LEDGER.to_json().replace("1e-300", "Infinity"), "finite numbers only, not Infinity"),
        (LEDGER.to_json().replace("1e-300", "1e999"), "finite number"),
        (LEDGER.to_json().replace('"steps": 14062', '"steps": 14062, "steps": 1'), "twice"),
        (None, "read from a JSON string"),
    ],
)
def test_what_is_not_understood_is_an_error(text, message):
    with pytest.raises(ValueError, match=message):
        Ledger.from_json(text)


def test_a_field_with_a_default_may_be_missing_in_an_older_ledger():
    text = changed(lambda d: d["lines"][1]["sampling"].pop("public_size"))
    assert Ledger.from_json(text).lines[1].sampling == Poisson(1e-7, 10**7)
