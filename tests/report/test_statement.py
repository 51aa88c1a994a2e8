"""Statement: delta, JSON, what is listed as not protected, what is refused."""

import dataclasses
import importlib.metadata
import json
import math
import subprocess
import sys

import keras
import pytest

import tfdp
from tests.report import runs
from tfdp.accounting import Ledger, Poisson, Status
from tfdp.report.statement import statement_of

# Delta


@pytest.mark.parametrize(
    ("size", "delta"), [(8, 0.1), (999, 1e-3), (1000, 1e-4), (1001, 1e-4), (60000, 1e-5), (1, 0.1)]
)
def test_delta_is_by_default_the_largest_power_of_ten_strictly_below_one_over_n(size, delta):
    made = runs.statement(runs.ledger(4.0, sampling=Poisson(0.01, size)))
    assert made.delta == delta < 1 / size <= 10 * delta


def test_delta_is_the_callers_then_the_optimizers_then_a_budgets():
    fit = runs.fit(budgets=(runs.filter_budget(delta=3e-6),))
    assert runs.statement(runs.ledger(1.1), fit, delta=1e-7).delta == 1e-7
    assert runs.statement(runs.ledger(1.1), fit).delta == 3e-6
    facts = runs.facts(runs.ledger(1.1), fit, delta=2e-6)
    assert statement_of(facts, None, False).delta == 2e-6


def test_without_the_number_of_records_delta_is_asked_for():
    unknown = runs.ledger(1.1, sampling=Poisson(0.01))
    with pytest.raises(ValueError, match="delta="):
        runs.statement(unknown)
    assert runs.statement(unknown, delta=1e-5).epsilon > 0


def test_where_nothing_depends_on_delta_none_is_needed():
    assert runs.statement(Ledger()).delta is None
    assert runs.statement(Ledger(), private_optimizer=False).delta is None
    assert runs.statement(Ledger().record(runs.not_private().lines[0].event, Poisson(1.0), 1)).delta is None


@pytest.mark.parametrize("delta", [0, 1, -1e-5, 2.0, "1e-5", True, math.nan])
def test_a_delta_outside_of_zero_and_one_is_refused(delta):
    with pytest.raises(ValueError, match="delta lies between 0 and 1"):
        runs.statement(runs.ledger(1.1), delta=delta)


# Epsilon


def test_epsilon_is_the_smallest_proven_one_for_a_whole_record_at_the_statements_delta_and_relation():
    made = runs.statement(runs.ledger(1.1), delta=1e-5)
    claim = made.claims[0]

    def with_claims(*claims):
        return dataclasses.replace(made, claims=claims).epsilon

    assert with_claims(claim, dataclasses.replace(claim, epsilon=0.01)) == 0.01
    for worse in (
        {"status": Status.APPROXIMATE},
        {"status": Status.AS_PUBLISHED},
        {"protects": "the features of a record"},
        {"delta": 1e-4},
        {"neighbours": tfdp.accounting.Relation.ADD_OR_REMOVE},
    ):
        better_but = dataclasses.replace(claim, epsilon=0.01, **worse)
        assert with_claims(claim, better_but) == claim.epsilon
        assert with_claims(better_but) is None


# JSON


def strict(text: str) -> dict:
    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_the_json_is_strict_and_holds_the_statement():
    fit = runs.fit(120, watchers=(runs.VAL_STOP,), planned=runs.ledger(1.1, steps=300), unchecked=("Said.",))
    made = runs.statement(runs.ledger(1.1, steps=120), fit, delta=1e-5)
    data = strict(made.to_json())
    assert (data["format"], data["version"]) == ("tfdp.privacy_statement", 1)
    assert (data["delta"], data["epsilon"]) == (1e-5, made.epsilon)
    assert [claim["status"] for claim in data["claims"]] == ["proven", "proven", "approximate", "as published"]
    assert data["claims"][0]["neighbours"] == "zero_out"
    assert data["released"][0]["event"] == {"type": "GaussianEvent", "noise_multiplier": 1.1}
    assert Ledger.from_json(json.dumps(data["ledger"])) == runs.ledger(1.1, steps=120)
    assert data["fits"][0]["planned"][0]["steps"] == 300
    assert data["fits"][0]["unchecked"] == ["Said."]
    assert {"callback", "training_metrics", "floating_point_noise"} <= {limit["id"] for limit in data["not_protected"]}
    assert data["versions"]["dp_accounting"] == importlib.metadata.version("dp-accounting")
    assert data["versions"]["tfdp"] == tfdp.__version__


def test_infinity_is_a_string_in_json():
    data = strict(runs.statement(runs.not_private()).to_json())
    assert data["claims"][0]["epsilon"] == "infinity"
    assert data["epsilon"] is None


# Not protected


def test_machine_readable_ids_say_what_is_not_covered():
    ids = [limit.id for limit in runs.statement(runs.ledger(1.1), runs.fit(), delta=1e-5).not_protected]
    assert len(ids) == len(set(ids)) == 9
    assert "non_finite_examples" not in ids
    counting = runs.statement(runs.ledger(1.1), runs.fit(), delta=1e-5, counts_not_finite=True)
    assert "non_finite_examples" in [limit.id for limit in counting.not_protected]


def test_calling_fit_again_is_listed_as_a_choice():
    once = runs.statement(runs.ledger(1.1), runs.fit(100), delta=1e-5).not_protected
    twice = runs.statement(runs.ledger(1.1), runs.fit(100, fits=2), delta=1e-5).not_protected
    assert [limit.id for limit in twice if limit not in once] == ["number_of_fits"]


@pytest.mark.parametrize("settings", [{"made": runs.not_private()}, {"made": Ledger(), "private_optimizer": False}])
def test_without_any_claim_everything_is_unprotected(settings):
    assert [limit.id for limit in runs.statement(**settings).not_protected] == ["everything"]


# What it is asked about


@pytest.mark.parametrize("thing", [None, "model", Ledger(), keras.optimizers.SGD(), keras.layers.Dense(1)])
def test_anything_but_a_model_or_a_private_optimizer_is_refused(thing):
    with pytest.raises(TypeError, match=r"keras\.Model"):
        tfdp.privacy_statement(thing)


def test_the_callers_word_is_true_or_false():
    with pytest.raises(ValueError, match="settings_fixed_beforehand"):
        tfdp.privacy_statement(keras.Sequential(), settings_fixed_beforehand="yes")


def test_it_can_be_the_first_thing_that_is_imported():
    code = "from tfdp import privacy_statement; print(privacy_statement.__name__)"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert process.stdout.split() == ["privacy_statement"]
