"""zip() and concatenate(): what may bring a record twice a pass is refused, what keeps records together is accepted."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.data import declare_sampling
from tfdp.data.pipeline_graph import ONE_OUT_OF_ONE

Dataset = tf.data.Dataset
SIZE, BATCH = 96, 32
X = np.random.default_rng(0).random((SIZE, 4), "f4")
Y = np.arange(SIZE, dtype="i4")
ROWS = tf.constant(X)
TOGETHER = "zip() joins parts of one and the same record."


def features():
    return Dataset.from_tensor_slices(X)


def labels():
    return Dataset.from_tensor_slices(Y)


def records():
    return Dataset.from_tensor_slices((X, Y))


def row(number):
    return ROWS[tf.cast(number, tf.int32)]


def mixed(one, other):
    return (one[0] + other[0]) / 2, one[1]


def shuffled(seed):
    return records().shuffle(SIZE, seed=seed)


def declare(dataset):
    return declare_sampling(dataset, "shuffled", size=SIZE, batch_size=BATCH)


MOVED = {
    "mixup below batch": (lambda: Dataset.zip((shuffled(1), shuffled(2))).map(mixed), "shuffle"),
    "one side": (lambda: Dataset.zip((features().shuffle(SIZE), labels())), "shuffle"),
    "a map and a cache above": (lambda: Dataset.zip((shuffled(1).map(lambda x, y: x).cache(), labels())), "shuffle"),
    "in a dict": (lambda: Dataset.zip({"a": features().shuffle(SIZE), "b": features()}), "shuffle"),
    "nested": (lambda: Dataset.zip(((shuffled(1), Dataset.range(SIZE)), labels())), "shuffle"),
    "zip of a zip": (lambda: Dataset.zip((Dataset.zip((features(), labels())).shuffle(9), labels())), "shuffle"),
    "sliding window": (lambda: Dataset.zip((features(), features().skip(1).repeat().take(SIZE))), "take"),
    "shards": (lambda: Dataset.zip((features().concatenate(features()).shard(2, 0), labels())), "shard"),
    "turned": (lambda: Dataset.zip((features(), features().skip(1).concatenate(features().take(1)))), "concatenate"),
    "a repeated tensor": (lambda: Dataset.zip((Dataset.from_tensors(X).repeat(SIZE), records())), "repeat"),
    "shuffled numbers": (lambda: Dataset.zip((records(), Dataset.range(SIZE).shuffle(SIZE))), "shuffle"),
    "numbers made records": (lambda: Dataset.zip((records().shuffle(SIZE), Dataset.range(SIZE).map(row))), "shuffle"),
    "two of numbers": (
        lambda: Dataset.zip((Dataset.range(SIZE).shuffle(9), Dataset.range(SIZE).shuffle(9))),
        "shuffle",
    ),
    "interleaved": (
        lambda: Dataset.zip((Dataset.range(SIZE).interleave(Dataset.from_tensors), labels())),
        "interleave",
    ),
    "below enumerate": (lambda: Dataset.zip((features().shuffle(SIZE).enumerate(), labels())), "shuffle"),
    "in any order": (
        lambda: Dataset.zip((features().map(lambda x: x, num_parallel_calls=2, deterministic=False), labels())),
        "deterministic=False",
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_data_sets_that_were_moved_before_zip_are_refused_with_the_cure(name):
    dataset, by = MOVED[name]
    with pytest.raises(ValueError, match=rf"moved by .*{by}.*Zip the sources as they are"):
        declare(dataset().batch(BATCH))


@pytest.mark.parametrize("end", [lambda d: d, lambda d: d.map(mixed), lambda d: d.repeat()])
def test_data_sets_in_batches_that_were_shuffled_before_zip_are_refused(end):
    batched = [shuffled(seed).batch(BATCH) for seed in (1, 2)]
    with pytest.raises(ValueError, match=r"moved by shuffle\(\)"):
        declare(end(Dataset.zip(tuple(batched))))


def test_maps_in_any_order_are_refused_below_zip_when_the_options_say_so():
    options = tf.data.Options()
    options.deterministic = False
    joined = Dataset.zip((features().map(lambda x: x, num_parallel_calls=2), labels())).batch(BATCH)
    assert declare(joined).steps_per_pass == 3
    with pytest.raises(ValueError, match="deterministic=False"):
        declare(joined.with_options(options))


def test_windows_of_a_series_are_refused():
    windows = keras.utils.timeseries_dataset_from_array(np.zeros((SIZE + 9, 1), "f4"), None, 10, batch_size=BATCH)
    with pytest.raises(ValueError, match=r"moved by repeat\(\)"):
        declare(windows)


def seeds():
    return Dataset.counter().map(lambda number: tf.stack([number, number]))


TOGETHER_ALL_ALONG = {
    "images and labels": (lambda: Dataset.zip((features().map(tf.sqrt), labels())).shuffle(SIZE).batch(BATCH), True),
    "batches": (lambda: Dataset.zip((features().batch(BATCH), labels().batch(BATCH))).shuffle(3).repeat(), True),
    "a dict": (lambda: Dataset.zip(({"a": features(), "b": features()}, labels())).batch(BATCH), True),
    "a repeat() of one": (lambda: Dataset.zip((features().repeat(1), labels())).batch(BATCH), True),
    "enumerated and labels": (lambda: Dataset.zip((features().enumerate(), labels())).batch(BATCH), True),
    "counter": (lambda: Dataset.zip((records().shuffle(SIZE), Dataset.counter())).batch(BATCH), False),
    "two counters": (lambda: Dataset.zip((shuffled(1), (Dataset.counter(), Dataset.counter(5)))).batch(BATCH), False),
    "seeds": (lambda: Dataset.zip((shuffled(1), seeds())).batch(BATCH), False),
    "counter of batches": (lambda: Dataset.zip((shuffled(1).batch(BATCH), Dataset.counter())), False),
    "range": (lambda: Dataset.zip((shuffled(1), Dataset.range(SIZE))).batch(BATCH).repeat(), False),
    "part of a range": (
        lambda: Dataset.zip((shuffled(1), Dataset.range(2 * SIZE).skip(9).take(SIZE))).batch(BATCH),
        False,
    ),
    "one data set, moved": (lambda: Dataset.zip((shuffled(1).take(SIZE),)).batch(BATCH), False),
}


@pytest.mark.parametrize("name", TOGETHER_ALL_ALONG)
def test_data_sets_that_keep_their_order_and_numbers_may_be_zipped(name):
    dataset, joined = TOGETHER_ALL_ALONG[name]
    elements = dataset()
    if name == "counter of batches":  # a number is no row of a batch
        elements = elements.map(lambda record, number: record)
    declared = declare(elements.map(lambda *element: tf.nest.flatten(element)[0]))
    assert declared.steps_per_pass == 3
    assert (TOGETHER in declared.unchecked) == joined
    assert ONE_OUT_OF_ONE in declared.unchecked


def test_scan_that_does_more_than_to_count_is_no_counter():
    drawn = Dataset.from_tensors(0).repeat().scan(0, lambda state, _: (state, tf.random.uniform([], 0, 9, tf.int32)))
    with pytest.raises(ValueError, match=r"scan\(\)"):
        declare(Dataset.zip((records(), drawn)).batch(BATCH))


HALF = SIZE // 2


def of_one(join):
    return lambda: join(Dataset.from_tensor_slices(X[:HALF]))


CONCATENATED = {
    "with itself": (of_one(lambda ds: ds.concatenate(ds)), "with itself"),
    "with itself, shuffled": (of_one(lambda ds: ds.shuffle(9).concatenate(ds.map(tf.sqrt))), "with itself"),
    "parts after a shuffle": (
        lambda: (lambda ds: ds.take(HALF).concatenate(ds.skip(HALF)))(features().shuffle(9)),
        "anew",
    ),
    "a shuffle in one part": (
        lambda: (lambda ds: ds.shuffle(9).take(HALF).concatenate(ds.skip(HALF)))(features()),
        "anew",
    ),
}


@pytest.mark.parametrize("name", CONCATENATED)
def test_parts_that_may_have_records_in_common_are_refused(name):
    dataset, message = CONCATENATED[name]
    with pytest.raises(ValueError, match=f"concatenate.*{message}"):
        declare(dataset().batch(BATCH))


@pytest.mark.parametrize("shuffled", [False, True])
def test_disjoint_parts_are_accepted_on_the_users_word(shuffled):
    whole = features()
    parts = whole.take(HALF).concatenate(whole.skip(HALF))
    declared = declare((parts.shuffle(SIZE) if shuffled else parts).batch(BATCH))
    assert declared.unchecked == ("What concatenate() joins holds every record at most once a pass.",)


def test_images_from_a_directory_are_accepted(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(SIZE // 2):
            keras.utils.save_img(tmp_path / name / f"{number}.png", np.zeros((4, 4, 3)))
    made = keras.utils.image_dataset_from_directory(tmp_path, image_size=(4, 4), batch_size=BATCH, verbose=False)
    augmented = made.map(lambda x, y: (tf.image.random_flip_left_right(x), y), num_parallel_calls=2).cache().prefetch(1)
    declared = declare(augmented)
    assert declared.steps_per_pass == 3 and ONE_OUT_OF_ONE in declared.unchecked
