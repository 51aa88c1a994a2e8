"""Any arguments of the data transforms are taken or refused by name, before a record is drawn."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

import tfdp
from tests.fuzz.cases import ANYTHING, NO_SETTINGS, cases, only_errors_that_name, with_one_replaced

X, Y = np.ones((6, 2), np.float32), np.zeros((6, 1), np.float32)
DECLARED = {
    "dataset": tf.data.Dataset.from_tensor_slices((X, Y)).batch(2),
    "how": "shuffled",
    "size": 6,
    "batch_size": 2,
}
PERTURBATION = {
    "stddev": 1.0,
    "clip_norm": 1.0,
    "key": bytes(32),
    "name": "a",
    "split": "b",
    "memory_limit": 100,
    "batch_size": 2,
}
PROVEN = {"epsilon": 5.0, "delta": 1e-5, "clip_norm": 1.0, "randomized_response": 0.5, "classes": 3}
SHAPES = st.lists(st.integers(0, 7), max_size=3).map(tuple)
TYPES = st.sampled_from(["f2", "f4", "f8", "i4", "u1", "?", "c8", "U3", "S2", "O", "M8[s]", "m8[s]", "V4"])
ARRAYS = st.builds(lambda shape, kind: np.zeros(shape, kind), SHAPES, TYPES)
STRUCTURES = st.one_of(
    ARRAYS,
    st.lists(ARRAYS, max_size=2),
    st.dictionaries(st.sampled_from("ab"), ARRAYS, max_size=2),
    st.tuples(ARRAYS, st.none()),
)


@cases(60, 800)
@given(with_one_replaced({"x": X, "y": Y, "sample_weight": np.ones(6, np.float32)}, STRUCTURES | ANYTHING))
def test_records_of_any_kind_are_drawn_whole_or_refused(case):
    name, arguments = case
    with only_errors_that_name(name, "record"):
        batches = tfdp.data.PoissonBatches(**arguments, batch_size=3)
        assert batches.size == 6
        record = batches.head(6)
        assert all(len(leaf) == 6 for leaf in tf.nest.flatten(record) if leaf is not None)


@cases(50, 500)
@given(with_one_replaced({"batch_size": 3, "public_size": 8, "sampling_seed": 1}))
def test_lots_of_any_setting_are_drawn_or_refused(case):
    name, arguments = case
    with only_errors_that_name(name):
        batches = tfdp.data.PoissonBatches(X, Y, **arguments)
        assert 0 < batches.sampling_rate <= 1
        if batches.steps_per_epoch < 10:
            list(batches.dataset().take(1))


def lots_of(**arguments):
    return tfdp.data.PoissonBatches(X, Y, **arguments)


CALLS = [
    (lots_of, {"batch_size": 3, "public_size": 8, "sampling_seed": 1}),
    (tfdp.data.load, {"name": "digits"}),
    (tfdp.data.InputPerturbation, PERTURBATION),
    (tfdp.data.InputPerturbation.proven, PROVEN),
]


@pytest.mark.parametrize(("call", "arguments"), CALLS)
def test_arrays_and_huge_integers_are_refused_by_name(call, arguments):
    for name in arguments:
        for value in NO_SETTINGS:
            if name != "classes" or np.ndim(value) == 0 or value.dtype == object:
                with only_errors_that_name(name):
                    call(**{**arguments, name: value})
                    pytest.fail(f"{name}={value!r} was taken")


def test_the_largest_public_size_has_a_rate_and_whole_steps():
    batches = lots_of(batch_size=3, public_size=10**308)
    assert batches.sampling_rate == 3e-308
    assert batches.steps_per_epoch == (10**308 + 2) // 3


@cases(40, 400)
@example(("how", {**DECLARED, "how": np.zeros(0)}))
@given(with_one_replaced(DECLARED))
def test_what_is_no_declaration_is_refused(case):
    name, arguments = case
    with only_errors_that_name(name, "declared", "dataset", "batches", "records"):
        declared = tfdp.data.declare_sampling(**arguments)
        assert (declared.size, declared.batch_size) == (6, 2) and declared.steps_per_pass == 3


@cases(10, 150)
@given(st.integers(1, 40), st.integers(1, 12), st.booleans(), st.integers(1, 3))
def test_a_declared_pass_is_never_longer_than_the_data(size, batch_size, drop, repeats):
    ds = tf.data.Dataset.range(size).batch(batch_size, drop_remainder=drop)
    try:
        declared = tfdp.data.declare_sampling(ds.repeat(repeats), "shuffled", size=size, batch_size=batch_size)
    except ValueError as error:
        assert "batch" in str(error)
        return
    in_a_pass = [int(number) for batch in declared.dataset().take(declared.steps_per_pass) for number in batch[0][0]]
    assert len(set(in_a_pass)) == len(in_a_pass)


@cases(50, 500)
@given(with_one_replaced(PERTURBATION))
def test_a_perturbation_of_any_setting_is_made_or_refused(case):
    name, arguments = case
    with only_errors_that_name(name):
        tfdp.data.InputPerturbation(**arguments)


@cases(40, 400)
@example(("clip_norm", {**PROVEN, "clip_norm": 8e-126}))
@example(("clip_norm", {**PROVEN, "clip_norm": 7.8e307}))
@example(("clip_norm", {"epsilon": 5.0, "delta": 1e-5, "clip_norm": 1.7e308}))
@example(("epsilon", {**PROVEN, "epsilon": 1e120}))
@example(("classes", {**PROVEN, "classes": 148}))
@example(("randomized_response", {**PROVEN, "randomized_response": 1e-3}))
@given(with_one_replaced(PROVEN))
def test_a_proven_perturbation_of_any_setting_is_made_or_refused(case):
    name, arguments = case
    with only_errors_that_name(name):
        made = tfdp.data.InputPerturbation.proven(**arguments)
        assert made.statement().epsilon is not None
