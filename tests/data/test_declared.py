"""declare_sampling: good pipelines pass, what may let a record in twice is refused, the rest is said."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tfdp.accounting import Shuffled
from tfdp.data import PoissonBatches, declare_sampling
from tfdp.data.pipeline_graph import ONE_OUT_OF_ONE

SIZE = 1000


def records():
    return tf.data.Dataset.from_tensor_slices((tf.reshape(tf.range(2.0 * SIZE), (SIZE, 2)), tf.range(SIZE)))


def declare(dataset, size=SIZE, batch_size=32):
    return declare_sampling(dataset, "shuffled", size=size, batch_size=batch_size)


GOOD = {
    "plain": lambda: (records().batch(32), 32, 32),
    "remainder dropped": lambda: (records().batch(32, drop_remainder=True), 31, 31),
    "shuffled and repeated": lambda: (records().shuffle(100).batch(32).repeat(), 32, None),
    "repeated three times": lambda: (records().batch(32, drop_remainder=True).repeat(3), 31, 93),
    "batches shuffled": lambda: (records().batch(32).shuffle(5).repeat().prefetch(2), 32, None),
    "parallel": lambda: (
        records().cache().map(lambda x, y: (x, y), num_parallel_calls=2).batch(32, num_parallel_calls=2),
        32,
        32,
    ),
    "zipped": lambda: (tf.data.Dataset.zip(records(), tf.data.Dataset.range(SIZE)).batch(32), 32, 32),
    "options": lambda: (records().batch(32).with_options(tf.data.Options()).repeat(), 32, None),
    "rebuilt": lambda: (records().batch(50, drop_remainder=True).unbatch().batch(32).repeat(), 32, None),
}


@pytest.mark.parametrize("name", [name for name in GOOD if name != "rebuilt"])
def test_good_pipelines_leave_nothing_unchecked(name):
    dataset, steps_per_pass, steps_per_epoch = GOOD[name]()
    declared = declare(dataset)
    assert declared.steps_per_pass == steps_per_pass and declared.steps_per_epoch == steps_per_epoch
    assert declared.sampling == Shuffled(SIZE, 32, steps_per_pass)
    assert declared.unchecked == ((ONE_OUT_OF_ONE,) if name == "parallel" else ()) and not declared.seeded


def test_unbatched_and_batched_again():
    dataset, steps_per_pass, _ = GOOD["rebuilt"]()
    assert declare(dataset).steps_per_pass == steps_per_pass


@pytest.mark.parametrize("name", ["plain", "remainder dropped", "shuffled and repeated", "repeated three times"])
def test_a_record_enters_at_most_once_a_pass(name):
    declared = declare(GOOD[name]()[0])
    numbers = [(x[:, 0] / 2, y, present) for (x, y), present in declared.dataset().take(3 * declared.steps_per_pass)]
    for number in range(3):
        of_pass = numbers[number * declared.steps_per_pass : (number + 1) * declared.steps_per_pass]
        seen = np.concatenate([y for _, y, _ in of_pass])
        assert len(np.unique(seen)) == len(seen) == min(SIZE, 32 * declared.steps_per_pass)
    assert all(np.array_equal(x, y) and present.numpy().all() for x, y, present in numbers)


def test_elements_are_those_of_poisson_batches():
    ours = PoissonBatches(np.zeros((SIZE, 2), np.float32), np.zeros(SIZE, np.int32), batch_size=32)
    declared = declare(records().batch(32))
    assert declared.dataset().element_spec == ours.dataset().element_spec
    assert declared.record_spec == ours.record_spec
    assert int(declared.dataset().cardinality()) == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize("parts", [1, 2, 3, "dict"])
def test_elements_of_every_form(parts):
    column = tf.zeros((SIZE, 2))
    values = {"a": column, "b": column} if parts == "dict" else (column,) * parts
    (record, present) = next(iter(declare(tf.data.Dataset.from_tensor_slices(values).batch(32)).dataset()))
    assert len(record) == (1 if parts == "dict" else parts)
    assert present.shape == (32,)


def padded(shapes):
    lengths = tf.data.Dataset.range(SIZE).map(lambda number: tf.ones([number % 5 + 1]))
    return lengths.padded_batch(32, padded_shapes=shapes)


def from_generator(batch):
    def numbers():
        yield from range(SIZE)

    dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.int64))
    return dataset.batch(32).apply(tf.data.experimental.assert_cardinality(batch))


@pytest.mark.parametrize(
    "dataset, said",
    [
        (lambda: records().batch(32).map(lambda x, y: (x, y)), "every record of a batch by itself"),
        (lambda: records().batch(32).map(lambda x, y: (x, y)), "one record out of one record"),
        (lambda: records().map(lambda x, y: (x, y)).batch(32), "one record out of one record"),
        (lambda: records().map(lambda x, y: (x, y), num_parallel_calls=2).cache().batch(32), "one record out of one"),
        (lambda: tf.data.Dataset.zip(records(), records()).batch(32), "parts of one and the same record"),
        (lambda: records().snapshot("unused").batch(32), r"What snapshot\(\) brings"),
        (lambda: from_generator(32), "flat_map"),
        (lambda: from_generator(32), "holds 1000 records"),
        (lambda: records().take(500).concatenate(records().skip(500)).batch(32), "concatenate"),
        (lambda: padded([None]), "longest neighbour"),
        (lambda: records().enumerate().map(lambda _, record: record).batch(32), "Variant"),
    ],
)
def test_what_cannot_be_checked_is_said(dataset, said):
    assert any(re.search(said, sentence) for sentence in declare(dataset()).unchecked)


def test_padding_to_fixed_shapes_is_no_doubt():
    assert declare(padded([5])).unchecked == (ONE_OUT_OF_ONE,)


def test_an_endless_dataset_that_shows_no_pass_is_counted_by_the_smaller_number():
    def batches():
        while True:
            yield np.zeros((32, 2), np.float32)

    dataset = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec((None, 2), tf.float32))
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    declared = declare(dataset)
    assert declared.steps_per_pass == 31 and declared.steps_per_epoch is None
    assert any("no record comes twice" in sentence for sentence in declared.unchecked)


def buckets():
    dataset = records().map(lambda x, y: x)
    return dataset.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3], [32, 32])


def windows():
    return records().map(lambda x, y: x).window(3, 1).flat_map(lambda window: window.batch(3)).batch(32)


@pytest.mark.parametrize(
    "dataset, message",
    [
        (lambda: records(), "not batches"),
        (lambda: records().map(lambda x, y: x), "Correct size= or batch_size="),
        (lambda: records().batch(64, drop_remainder=True), "not batches of at most 32"),
        (lambda: records().batch(64), "16 batches"),
        (lambda: records().repeat(2).batch(32), r"repeat\(\) before batch"),
        (lambda: records().repeat().batch(32), r"repeat\(\) before batch"),
        (lambda: records().batch(32).repeat().shuffle(9), r"shuffle\(\) after repeat"),
        (lambda: records().batch(32).shuffle(9).repeat(2).shuffle(9), r"shuffle\(\) after repeat"),
        (lambda: records().batch(4).batch(8), "applied twice"),
        (lambda: tf.data.Dataset.random().take(SIZE).batch(32), r"Dataset\.counter\(\)"),
        (lambda: records().filter(lambda x, y: y > 3).batch(32), r"filter\(\)"),
        (lambda: records().take_while(lambda x, y: y > 3).batch(32), r"take_while\(\)"),
        (lambda: records().map(lambda x, y: y).unique().batch(32), r"unique\(\)"),
        (buckets, "bucket_by_sequence_length"),
        (
            lambda: tf.data.Dataset.sample_from_datasets([records(), records()]).batch(32),
            "sample_from_datasets",
        ),
        (lambda: tf.data.Dataset.sample_from_datasets([records().batch(32)] * 2), "sample_from_datasets"),
        (windows, r"window\(\)"),
        (lambda: records().scan(0, lambda state, record: (state, record)).batch(32), r"scan\(\)"),
        (lambda: records().map(lambda x, y: x[: y % 2]).ragged_batch(32), "RaggedTensorSpec"),
        (lambda: records().batch(32).flat_map(lambda x, y: tf.data.Dataset.from_tensors(x)), "apart"),
        (lambda: records().take(900).batch(32), "900 records go into batch"),
        (lambda: records().batch(32).take(10), "10 batches"),
        (lambda: records().batch(32).repeat().take(40), "ends inside a pass"),
        (lambda: from_generator(32).ignore_errors(), r"assert_cardinality\(32\)"),
        (lambda: from_generator(tf.data.UNKNOWN_CARDINALITY).repeat(), r"assert_cardinality\(32\)"),
        (lambda: from_generator(33), "33 batches"),
        (lambda: records().batch(32).map(lambda x, y: (x, x, x, y)), "tuples of 4"),
    ],
)
def test_bad_pipelines_are_refused(dataset, message):
    with pytest.raises(ValueError, match=message):
        declare(dataset())


@pytest.mark.parametrize("how", ["poisson", "Poisson"])
def test_poisson_lots_are_drawn_not_declared(how):
    with pytest.raises(ValueError, match="PoissonBatches"):
        declare_sampling(records().batch(32), how, size=SIZE, batch_size=32)


def test_other_names_list_what_is_allowed():
    with pytest.raises(ValueError, match='Allowed is "shuffled"'):
        declare_sampling(records().batch(32), "balls and bins", size=SIZE, batch_size=32)


@pytest.mark.parametrize("size, batch_size", [(0, 1), (10, 11), (10.5, 2), (10, 0)])
def test_wrong_numbers_are_refused(size, batch_size):
    with pytest.raises(ValueError):
        declare(records().batch(32), size, batch_size)


def test_only_datasets_are_declared():
    with pytest.raises(ValueError, match=r"tf\.data\.Dataset is declared"):
        declare(np.zeros((10, 2)))


def generator_of(rows):
    def batches():
        yield np.zeros((rows, 2), np.float32), np.zeros(rows, np.float32)
        yield np.zeros((18, 2), np.float32), np.zeros(17, np.float32)

    spec = (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None,), tf.float32))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    return dataset.apply(tf.data.experimental.assert_cardinality(2))


def test_a_batch_that_is_too_large_stops_the_run():
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than the declared batch_size=32"):
        next(iter(declare(generator_of(33), size=50).dataset()))


def test_a_batch_whose_parts_differ_stops_the_run():
    iterator = iter(declare(generator_of(32), size=50).dataset())
    next(iterator)
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in length"):
        next(iterator)


@pytest.mark.parametrize("form", ["x", "(x,)", "(x, y)", "dict"])
def test_the_first_records_look_like_those_of_the_dataset(form):
    x, y = tf.reshape(tf.range(2.0 * SIZE), (SIZE, 2)), tf.range(SIZE)
    values = {"x": x, "(x,)": (x,), "(x, y)": (x, y), "dict": {"a": x, "b": y}}[form]
    declared = declare(tf.data.Dataset.from_tensor_slices(values).batch(32).repeat())
    first, (record, _) = declared.head(3), next(iter(declared.dataset()))
    tf.nest.map_structure(lambda few, many: np.testing.assert_array_equal(few, many[:3]), first, record)
