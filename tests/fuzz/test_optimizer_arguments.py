"""Any argument of a private optimizer is taken or refused by its name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfdp
from tests.fuzz.cases import ANYTHING, NO_SETTINGS, cases, only_errors_that_name, with_one_replaced

PRIVACY = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0}
TARGET = {"l2_norm_clip": 1.0, "target_epsilon": 3.0, "delta": 1e-5}
COMMON = {
    "learning_rate": 0.1,
    "accountant": "pld",
    "max_physical_batch": None,
    "noise_seed": None,
    "private_logs": False,
    "denoise": None,
}
OWN = {
    tfdp.NoisySGD: {"momentum": 0.5},
    tfdp.NoisyAdam: {"epsilon": 1e-7},
    tfdp.NoisyAdagrad: {"epsilon": 1e-7},
    tfdp.DirectionalDPSGD: {
        "direction": "noisy_gradient",
        "pruning_ratio": 0.0,
        "as_published": False,
        "pruning": None,
    },
    tfdp.DirectionalDPAdam: {"direction": "full_gradient", "direction_budget": 0.125},
    tfdp.AdaClipDPSGD: {"variance_min": 1e-12, "variance_max": 10.0, "mean_decay": 0.99, "variance_decay": 0.9},
    tfdp.EncodedDPSGD: {
        "codebook_size": 10,
        "microbatch_size": 1,
        "as_published": False,
        "noise": tfdp.noise.Gaussian(1.0),
    },
}


def arguments_of(optimizer) -> st.SearchStrategy:
    valid = {key: value for key, value in OWN[optimizer].items() if value is not None}
    of_run = [PRIVACY, TARGET] if optimizer is not tfdp.DirectionalDPAdam else [TARGET]
    return st.sampled_from(of_run).flatmap(lambda privacy: with_one_replaced({**COMMON, **valid, **privacy}))


@cases(60, 1000)
@given(st.sampled_from(list(OWN)).flatmap(lambda one: st.tuples(st.just(one), arguments_of(one))))
def test_what_is_no_argument_is_refused_by_its_name(case):
    optimizer, (name, arguments) = case
    with only_errors_that_name(name):
        made = optimizer(**arguments)
        assert made.ledger.steps == 0
        mechanism = made.mechanism
        assert np.isfinite(mechanism.l2_norm_clip) and mechanism.l2_norm_clip > 0
        assert mechanism.noise_multiplier is None or 0 <= mechanism.noise_multiplier < np.inf
        assert made.noise_seed is None or made.event_of(mechanism, {}).__class__.__name__ == "NotPrivateEvent"


@pytest.mark.parametrize("optimizer", OWN)
def test_arrays_and_huge_integers_are_refused_by_name(optimizer):
    run = TARGET if optimizer is tfdp.DirectionalDPAdam else PRIVACY
    arguments = {**COMMON, **OWN[optimizer], **run}
    for name in arguments.keys() - {
        "learning_rate",
        "momentum",
        "direction",
    }:  # Keras's own; and arrays are a direction
        for value in NO_SETTINGS:
            if name != "max_physical_batch" or not isinstance(value, int):
                with only_errors_that_name(name):
                    optimizer(**{**arguments, name: value})
                    pytest.fail(f"{name}={value!r} was taken")


@cases(10, 100)
@given(st.text(st.characters(categories=["Ll"]), min_size=1, max_size=12), ANYTHING)
def test_an_argument_that_there_is_not_is_refused_by_its_name(name, value):
    with only_errors_that_name(name):
        tfdp.NoisySGD(**PRIVACY, **{f"no_{name}": value})
        raise AssertionError(f"no_{name} was taken")
