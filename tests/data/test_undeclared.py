"""Datasets as Keras's users write them: lots of all records that they hold, at the rate that is accounted for, or a refusal."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfdp.accounting import FullBatch, Poisson, Shuffled
from tfdp.data import DeclaredDataset, PoissonBatches, understood
from tfdp.data.pipeline_graph import ONE_OUT_OF_ONE, OWN_ELEMENT

Dataset, AUTOTUNE = tf.data.Dataset, tf.data.AUTOTUNE
SIZE, BATCH = 20, 3


def records():
    """Number i is (i, 10 i)."""
    return Dataset.from_tensor_slices((np.arange(SIZE), 10 * np.arange(SIZE)))


def more(number, value):
    return number, value + 1


def to_rows(number, value):
    return number, tf.stack([value, value], -1)


ALL = range(SIZE)
# name: the dataset, its records' numbers, what becomes of the value 10 i, batches an epoch.
ORDERS = {
    "plain": (lambda: records().batch(BATCH), ALL, lambda v: v, 7),
    "shuffled": (lambda: records().shuffle(9).batch(BATCH, drop_remainder=True).prefetch(1), ALL, lambda v: v, 6),
    "as the guide has it": (
        lambda: records().map(more, AUTOTUNE).cache().shuffle(SIZE).batch(BATCH).prefetch(AUTOTUNE),
        ALL,
        lambda v: v + 1,
        7,
    ),
    "shuffle first": (lambda: records().shuffle(SIZE).map(more).batch(BATCH), ALL, lambda v: v + 1, 7),
    "map after batch": (
        lambda: records().batch(BATCH, drop_remainder=True).map(more, AUTOTUNE).cache().shuffle(2).map(more),
        ALL,
        lambda v: v + 2,
        6,
    ),
    "maps before and after": (
        lambda: records().map(to_rows).batch(BATCH).map(more).prefetch(1),
        ALL,
        lambda v: [v + 1, v + 1],
        7,
    ),
    "repeat first": (lambda: records().repeat().shuffle(SIZE).batch(BATCH), ALL, lambda v: v, None),
    "repeat twice": (lambda: records().cache().repeat(2).batch(BATCH), ALL, lambda v: v, 14),
    "repeat last, some steps": (lambda: records().batch(BATCH).repeat().take(9), ALL, lambda v: v, 9),
    "take and skip": (lambda: records().take(15).skip(2).shard(2, 1).batch(BATCH), range(3, 15, 2), lambda v: v, 2),
    "cache, then take": (
        lambda: records().map(more).cache().skip(8).map(more).batch(BATCH),
        range(8, SIZE),
        lambda v: v + 2,
        4,
    ),
    "batches taken": (lambda: records().batch(BATCH).skip(1).take(4), range(3, 15), lambda v: v, 4),
    "numbers": (lambda: Dataset.range(3, 9).map(lambda i: (i, 10 * i)).batch(BATCH), range(3, 9), lambda v: v, 2),
    "zip": (
        lambda: Dataset.zip((Dataset.range(SIZE), Dataset.range(0, 10 * SIZE, 10).map(lambda v: v + 1))).batch(BATCH),
        ALL,
        lambda v: v + 1,
        7,
    ),
    "zip of batches": (
        lambda: Dataset.zip((Dataset.range(6).batch(BATCH), Dataset.range(0, 60, 10).batch(BATCH))),
        range(6),
        lambda v: v,
        2,
    ),
    "padded": (
        lambda: records().map(to_rows).padded_batch(BATCH, padded_shapes=([], [3]), padding_values=np.int64(-1)),
        ALL,
        lambda v: [v, v, -1],
        7,
    ),
    "read once": (
        lambda: records().flat_map(lambda i, v: Dataset.from_tensors((i, v))).cache().shuffle(4).batch(BATCH),
        ALL,
        lambda v: v,
        7,
    ),
    "larger than all": (lambda: records().batch(2 * SIZE), ALL, lambda v: v, 1),
}


@pytest.mark.parametrize("order", ORDERS)
def test_every_record_joins_lots_at_the_accounted_rate_as_what_python_makes_of_it(order):
    make, numbers, value, steps = ORDERS[order]
    found = understood(make())
    rate = min(found.lots.batch_size / len(numbers), 1.0)
    accounted = Poisson(rate, len(numbers)) if rate < 1 else FullBatch(len(numbers))
    assert found.lots.sampling == accounted and found.steps_per_epoch == steps

    lots, seen = 200, np.zeros(SIZE)
    seeded = PoissonBatches(make(), batch_size=found.lots.batch_size, sampling_seed=3)
    for (drawn, values), present in seeded.dataset().take(lots):
        assert present.numpy().all() and len(np.unique(drawn)) == len(drawn)
        seen[drawn.numpy()] += 1
        for number, got in zip(drawn.numpy(), values.numpy(), strict=True):
            np.testing.assert_array_equal(got, value(10 * number))
    assert not seen[np.setdiff1d(ALL, numbers)].any()
    if rate < 1:
        spread = np.sum((seen[list(numbers)] - lots * rate) ** 2) / (lots * rate * (1 - rate))
        assert 1e-4 < stats.chi2.cdf(spread, len(numbers)) < 1 - 1e-4
    else:
        assert (seen == lots).all()


@pytest.mark.parametrize("choose", [lambda ds: ds.take(12), lambda ds: ds.skip(12)])
def test_a_split_of_a_shuffle_that_stays_is_the_users_own(choose):
    """Or training records would be among those of the validation split."""
    split = choose(records().shuffle(7, seed=5, reshuffle_each_iteration=False))
    head = PoissonBatches(split.batch(BATCH), batch_size=BATCH).head(SIZE)[0]
    np.testing.assert_array_equal(head, [number for number, _ in split.as_numpy_iterator()])


def counted():
    """As TensorFlow's guide to augmentation has it."""
    seeds = Dataset.zip((Dataset.counter(), Dataset.counter()))
    numbered = Dataset.zip((records().take(10), seeds)).shuffle(SIZE)
    return numbered.map(lambda record, seed: (record[0], tf.random.stateless_normal([], seed))).batch(BATCH)


@pytest.mark.parametrize("make", [lambda: records().shuffle(SIZE).take(10).batch(BATCH), counted])
def test_where_chance_decides_who_is_in_a_pass_or_places_are_counted_passes_are_accounted(make):
    found = understood(make())
    assert isinstance(found.lots, DeclaredDataset) and found.lots.sampling == Shuffled(10, BATCH, 4)
    assert found.steps_per_epoch == 4
    assert "without amplification" in found.said
    for _ in range(3):
        numbers = np.concatenate([x for (x, _), _ in found.lots.dataset().take(4)])
        assert len(np.unique(numbers)) == len(numbers) == 10


def centred(number, value):
    return number, value - tf.reduce_mean(value)


def of_words(dataset):
    return dataset.map(lambda i, v: tf.strings.reduce_join(tf.repeat("a ", i % 3 + 1)))


TABLE = np.arange(SIZE)
STATE = tf.Variable(np.int64(0))

REFUSED = {
    "filter": (lambda: records().filter(lambda i, v: i > 3).batch(BATCH), r"filter\(\)"),
    "filter, cached": (lambda: records().filter(lambda i, v: i > 3).cache().batch(BATCH), r"filter\(\)"),
    "generator": (
        lambda: Dataset.from_generator(lambda: iter(range(9)), output_signature=tf.TensorSpec([], tf.int64)).batch(3),
        r"cache\(\)",
    ),
    "unknown files": (lambda: Dataset.range(3).interleave(lambda i: records()).batch(BATCH), "declare_sampling"),
    "lengths of neighbours": (
        lambda: Dataset.range(9).map(lambda i: tf.ones([i % 3 + 1])).padded_batch(3),
        "longest neighbour",
    ),
    "no batch": (records, r"dataset\.batch\(batch_size\)"),
    "batches of batches": (lambda: records().batch(2).batch(BATCH), "twice"),
    "no batch is full": (lambda: records().batch(2 * SIZE, drop_remainder=True), "too few records"),
    "batches apart": (lambda: records().batch(BATCH).map(centred).unbatch().cache().batch(BATCH), "batches apart"),
    "means of a batch": (lambda: records().batch(BATCH).map(centred), "neighbours"),
    "means of a batch, cached": (lambda: records().batch(BATCH).map(centred).cache(), "neighbours"),
    "the same means twice": (lambda: Dataset.zip((records().batch(BATCH).map(centred),) * 2), "what map"),
    "means of a batch, rest dropped": (lambda: records().batch(BATCH, drop_remainder=True).map(centred), "neighbours"),
    "mixup": (
        lambda: Dataset.from_tensor_slices(np.ones((SIZE, 4, 4, 3), "f4")).batch(BATCH).map(keras.layers.MixUp(seed=1)),
        "neighbours",
    ),
    "order of a batch": (lambda: records().batch(BATCH).map(lambda i, v: (i, tf.reverse(v, [0]))), "neighbours"),
    "the longest of a batch": (
        lambda: of_words(records()).batch(BATCH).map(lambda text: tf.strings.split(text).to_tensor()),
        "several shapes",
    ),
    "one length of batches": (
        lambda: records().batch(4, drop_remainder=True).map(lambda i, v: (tf.reshape(i, (4, 1)), v)),
        "one row for each",
    ),
    "a sum for a batch": (lambda: records().batch(BATCH).map(lambda i, v: tf.reduce_sum(v)), "one row for each"),
    "zip of shuffled": (
        lambda: Dataset.zip((records().shuffle(9), records().shuffle(9))).batch(BATCH),
        "moved by shuffle",
    ),
    "pairs": (lambda: Dataset.zip((records(), records().skip(1))).batch(BATCH), "moved by skip"),
    "a table at random": (
        lambda: (
            Dataset.zip((Dataset.from_tensors(np.arange(100)).repeat(), Dataset.range(SIZE)))
            .map(lambda table, i: tf.gather(table, tf.random.uniform([], 0, 100, tf.int64)))
            .batch(BATCH)
        ),
        "at a random place",
    ),
    "one element, a row at random": (lambda: table().repeat(SIZE).map(a_row).batch(BATCH), "at a random place"),
    "running sum": (lambda: records().map(lambda i, v: (i, STATE.assign_add(v))).batch(BATCH), "into a variable"),
    "one record for every number": (
        lambda: Dataset.zip((records().take(1).repeat(SIZE), Dataset.range(SIZE))).batch(BATCH),
        "shuffled or repeated",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_seen_or_lets_records_meet_is_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        understood(make())


def a_row(numbers, values):
    place = tf.random.uniform([], 0, SIZE, tf.int32)
    return numbers[place], values[place]


def table():
    return Dataset.from_tensors((np.arange(SIZE), np.arange(SIZE)))


def always(value):
    return Dataset.from_tensors(value).repeat(SIZE)


@pytest.mark.parametrize(
    "again",
    [
        lambda: records().take(1).repeat(SIZE),
        lambda: records().take(1).cache().repeat(),
        lambda: table().cache().repeat(SIZE).map(a_row),
        lambda: Dataset.zip((always(1), always(2))),
    ],
)
def test_one_record_that_is_repeated_is_one_record(again):
    lots = understood(again().batch(BATCH)).lots
    assert lots.sampling == FullBatch(1) and lots.head(SIZE)[0].shape == (1,)


def mixed_rows(numbers, values):
    return numbers + tf.reduce_sum(numbers), values


def beside_a_table():
    return Dataset.zip((records(), Dataset.from_tensors(TABLE).repeat()))


# Elements (anything, a table).
BETWEEN = {
    "prefetch": lambda: beside_a_table().prefetch(2),
    "shuffle": lambda: beside_a_table().shuffle(SIZE).cache(),
    "map": lambda: beside_a_table().map(lambda record, rows: (record[0], rows)).map(lambda i, rows: (i, rows)),
    "a map's own table": lambda: records().map(lambda i, v: (i, TABLE)),
    "zip": lambda: Dataset.zip((Dataset.range(SIZE), beside_a_table())).map(lambda i, both: (i, both[1])),
    "read once": lambda: beside_a_table().flat_map(lambda _, rows: Dataset.from_tensors((rows, rows))).cache(),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_a_table_is_followed_to_the_map_that_reads_it_at_random(between):
    with pytest.raises(ValueError, match="at a random place"):
        understood(BETWEEN[between]().map(lambda _, rows: a_row(rows, rows)).batch(BATCH))


def test_random_numbers_are_followed_to_the_map_that_reads_there():
    drawn = records().map(lambda i, v: tf.random.uniform([], 0, SIZE, tf.int32))
    with pytest.raises(ValueError, match="at a random place"):
        understood(drawn.map(lambda place: tf.gather(TABLE, place)).batch(BATCH))


def test_a_map_may_change_what_is_beside_a_table_at_random():
    flipped = beside_a_table().map(lambda record, rows: (tf.random.shuffle(tf.stack(record)), tf.reduce_mean(rows)))
    assert understood(flipped.batch(BATCH)).lots.size == SIZE


SAID = {
    "read once": lambda: table().map(mixed_rows).unbatch().cache().batch(BATCH),
    "a pass after the other": lambda: table().map(mixed_rows).unbatch().batch(BATCH),
    "rows by number": lambda: Dataset.range(9 * SIZE).map(lambda i: tf.gather(TABLE, i % SIZE)).batch(BATCH),
    "a product with one row": lambda: (
        records().map(lambda i, v: tf.tensordot(tf.one_hot(i, SIZE, dtype=tf.int64), TABLE, 1)).batch(BATCH)
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_functions_make_of_elements_is_said_to_stand_on_the_users_word(case):
    found = understood(SAID[case]())
    assert {ONE_OUT_OF_ONE, f"{OWN_ELEMENT}."} <= set(found.lots.unchecked)
    assert "One record is one element" in found.said


def test_numbers_joined_to_a_constant_are_said_to_be_the_records():
    found = understood(Dataset.zip((always(1), Dataset.range(SIZE))).batch(BATCH))
    assert f"{OWN_ELEMENT}." in found.lots.unchecked and "One record is one element" in found.said


def test_random_maps_draw_anew_for_every_reading_and_what_is_cached_stays():
    tf.random.set_seed(1)

    def noisy(number, value):
        return number, tf.random.normal([])

    for make, differ in (
        (lambda ds: ds.map(noisy).batch(BATCH), True),
        (lambda ds: ds.batch(BATCH).map(centred_noise), True),
    ):
        lots = understood(make(records())).lots
        first, second = (lots.head(SIZE)[1] for _ in range(2))
        assert np.all(first != second) is np.bool_(differ) and len(np.unique(first)) == SIZE
    assert any("seeds" in sentence for sentence in lots.unchecked)  # one was set
    kept = understood(records().map(noisy).cache().batch(BATCH)).lots
    np.testing.assert_array_equal(kept.head(SIZE)[1], kept.head(SIZE)[1])


def centred_noise(number, value):
    return number, tf.random.normal(tf.shape(value))


def test_what_is_cached_is_computed_once():
    calls = []

    def slow(number):
        calls.append(int(number))
        return number

    dataset = (
        Dataset.range(SIZE).map(lambda i: tf.ensure_shape(tf.py_function(slow, [i], tf.int64), [])).cache().batch(5)
    )
    lots = understood(dataset).lots
    for _ in lots.dataset().take(40):
        pass
    assert sorted(calls) == sorted(set(calls)) and len(calls) > 15


def test_a_public_size_keeps_the_number_of_records_out_of_what_is_said():
    found = understood(records().batch(BATCH), public_size=25)
    assert found.lots.sampling == Poisson(BATCH / 25, 25, public_size=True) and found.steps_per_epoch == 9
    assert str(SIZE) not in found.said


def rows_of(lots_or_dataset):
    """All that is in the elements, sorted: of one pass, or of one lot of all."""
    rows = [zip(*map(list, tf.nest.flatten(element)), strict=True) for element in lots_or_dataset]
    return sorted(repr([np.asarray(leaf).tolist() for leaf in row]) for part in rows for row in part)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(1)
    for name in ("cat", "dog"):
        for kind in ("images", "texts"):
            (root / kind / name).mkdir(parents=True)
        for number in range(6):
            image = tf.io.encode_png(rng.integers(0, 255, (9, 12, 3), dtype=np.uint8))
            (root / "images" / name / f"{number}.png").write_bytes(image.numpy())
            (root / "texts" / name / f"{number}.txt").write_text(f"{name} " * (number + 1))
    (root / "table.csv").write_text("a,b,label\n" + "\n".join(f"{i},{i / 2},{i % 2}" for i in range(10)))
    return root


def vectorised(dataset):
    layer = keras.layers.TextVectorization(output_sequence_length=4, vocabulary=["cat", "dog"])
    return dataset.map(lambda x, y: (layer(x), y)).prefetch(1)


SERIES = np.arange(30.0)
KERAS = {
    "images": lambda root: keras.utils.image_dataset_from_directory(
        root / "images", image_size=(8, 8), batch_size=5, seed=1, verbose=False
    ),
    "images, half": lambda root: (
        keras.utils.image_dataset_from_directory(
            root / "images", image_size=(8, 8), validation_split=0.5, subset="training", seed=1, verbose=False
        )
        .cache()
        .shuffle(9)
        .prefetch(1)
    ),
    "texts": lambda root: keras.utils.text_dataset_from_directory(root / "texts", batch_size=5, seed=1, verbose=False),
    "texts, vectorised": lambda root: vectorised(
        keras.utils.text_dataset_from_directory(root / "texts", batch_size=5, seed=1, verbose=False)
    ),
    "a series": lambda root: keras.utils.timeseries_dataset_from_array(
        SERIES[:-5], SERIES[5:], sequence_length=5, batch_size=4, shuffle=True, seed=1
    ),
    "csv": lambda root: tf.data.experimental.make_csv_dataset(
        str(root / "table.csv"), 4, label_name="label", num_epochs=1
    ).cache(),
}


@pytest.mark.parametrize("kind", KERAS)
def test_what_keras_makes_of_files_and_series_is_drawn_from_and_a_lot_of_all_is_one_pass(kind, folder):
    dataset = KERAS[kind](folder)
    lots = understood(dataset).lots
    assert rows_of([lots.head(100)]) == rows_of(dataset)
    assert isinstance(lots.sampling, Poisson if lots.batch_size < lots.size else FullBatch)
    assert f"{OWN_ELEMENT}." in lots.unchecked


def generated():
    return Dataset.from_generator(lambda: iter(range(9)), output_signature=tf.TensorSpec([], tf.int64))


NAMED = {
    "from_generator() have no numbers": lambda: generated().batch(3),
    "interleave() have no numbers": lambda: records().interleave(lambda i, v: Dataset.range(i)).batch(3),
    r"flat_map\(\) have no numbers": lambda: records().flat_map(lambda i, v: Dataset.range(i)).batch(3),
    r"Put skip\(\) before shuffle\(\)": lambda: records().shuffle(9).skip(2).batch(3).map(lambda i, v: (i, v)),
}


@pytest.mark.parametrize("words", NAMED)
def test_a_refusal_names_what_was_written_and_shows_no_second_error(words):
    with pytest.raises(ValueError, match=words.replace("()", r"\(\)")) as refused:
        understood(NAMED[words]())
    assert refused.value.__suppress_context__ and refused.value.__cause__ is None


def test_reading_records_anew_in_each_fit_makes_tensorflow_warn_of_nothing(caplog):
    for _ in range(7):
        found = understood(records().map(more).shuffle(SIZE).batch(BATCH))
        for rows in (1, 5, 3):
            _, values = found.lots._records.read(np.arange(rows))
            np.testing.assert_array_equal(values, 10 * np.arange(rows) + 1)
    assert "retracing" not in caplog.text
