"""Any arguments of the data transforms are taken or refused by name, before a record is drawn."""

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tfdp
from tests.fuzz.cases import ANYTHING, cases, only_errors_that_name, with_one_replaced

X, Y = np.ones((6, 2), np.float32), np.zeros((6, 1), np.float32)
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


@cases(40, 400)
@given(
    with_one_replaced(
        {"dataset": tf.data.Dataset.from_tensor_slices((X, Y)).batch(2), "how": "shuffled", "size": 6, "batch_size": 2}
    )
)
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
@given(
    with_one_replaced(
        {
            "stddev": 1.0,
            "clip_norm": 1.0,
            "key": bytes(32),
            "name": "a",
            "split": "b",
            "memory_limit": 100,
            "batch_size": 2,
        }
    )
)
def test_a_perturbation_of_any_setting_is_made_or_refused(case):
    name, arguments = case
    with only_errors_that_name(name):
        tfdp.data.InputPerturbation(**arguments)


@cases(40, 400)
@given(with_one_replaced({"epsilon": 5.0, "delta": 1e-5, "clip_norm": 1.0, "randomized_response": 0.5, "classes": 3}))
def test_a_proven_perturbation_of_any_setting_is_made_or_refused(case):
    name, arguments = case
    with only_errors_that_name(name):
        made = tfdp.data.InputPerturbation.proven(**arguments)
        assert made.statement().epsilon is not None
