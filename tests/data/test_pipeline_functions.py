"""Functions of map(), flat_map() and interleave(): what can be seen to read other records is refused, augmentation is not."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.data import declare_sampling

Dataset = tf.data.Dataset
SIZE, BATCH = 96, 32
X = np.random.default_rng(0).random((SIZE, 4), "f4")
IMAGES = np.random.default_rng(1).random((SIZE, 8, 8, 3), "f4")
ROWS, MEAN = tf.constant(X), tf.constant(IMAGES.mean(0))


def declare(dataset):
    return declare_sampling(dataset, "shuffled", size=SIZE, batch_size=BATCH)


def somewhere(*shape):
    return tf.random.uniform(shape, 0, SIZE, tf.int32)


def in_a_function():
    @tf.function
    def drawn():
        return tf.gather(ROWS, somewhere())

    return lambda number: drawn()


def in_a_loop(number):
    (last,) = tf.while_loop(lambda place: place < 3, lambda place: (somewhere(),), [tf.constant(0)])
    return ROWS[last]


def from_a_table():
    values = tf.lookup.KeyValueTensorInitializer(tf.range(SIZE), ROWS[:, 0])
    table = tf.lookup.StaticHashTable(values, 0.0)
    return lambda number: table.lookup(somewhere())


def from_a_variable():
    rows = tf.Variable(X)
    return lambda number: tf.gather(rows, somewhere())


def by_a_generator():
    generator = tf.random.Generator.from_seed(1)
    return lambda number: tf.gather(ROWS, generator.uniform([], 0, SIZE, tf.int32))


def by_a_seed_generator():
    generator = keras.random.SeedGenerator(1)
    return lambda number: tf.gather(ROWS, keras.random.randint((), 0, SIZE, seed=generator))


def by_a_count_of_its_own():
    count = tf.Variable(0, dtype=tf.int64)
    return lambda number: tf.gather(ROWS, count.assign_add(1) % SIZE)


def by_a_count_that_goes_on_later():
    count = tf.Variable(0, dtype=tf.int64)

    def row(number):
        found = tf.gather(ROWS, (count + 0 * number) % SIZE)
        count.assign_add(1)
        return found

    return row


def in_branches(number):
    place = tf.cond(tf.random.uniform([]) < 0.5, lambda: 3, lambda: 5)
    return tf.gather(ROWS, place)


def by_python(number):
    place = tf.py_function(lambda: np.random.randint(SIZE), [], tf.int32)
    return tf.ensure_shape(tf.gather(ROWS, place), [4])


AT_RANDOM = {
    "bootstrap": lambda: lambda number: tf.gather(ROWS, somewhere()),
    "a pair": lambda: lambda number: (tf.gather(ROWS, number), tf.gather(ROWS, somewhere())),
    "slice": lambda: lambda number: ROWS[somewhere()],
    "constant": lambda: lambda number: tf.constant(X)[somewhere()],
    "gather_nd": lambda: lambda number: tf.gather_nd(ROWS, [somewhere()]),
    "near itself": lambda: lambda number: tf.gather(ROWS, (number + tf.cast(somewhere(), tf.int64)) % SIZE),
    "by a seed": lambda: lambda n: tf.gather(ROWS, tf.random.stateless_uniform([], [n, n], 0, SIZE, tf.int32)),
    "shuffled rows": lambda: lambda number: tf.random.shuffle(ROWS)[0],
    "shuffled rows by a seed": lambda: lambda n: tf.random.experimental.stateless_shuffle(ROWS, [n, n])[0],
    "shuffled places": lambda: lambda number: tf.gather(ROWS, tf.random.shuffle(tf.range(SIZE))[0]),
    "mask": lambda: lambda number: tf.boolean_mask(ROWS, tf.random.uniform([SIZE]) < 0.5)[0],
    "among itself": lambda: lambda n: tf.gather(tf.concat([ROWS[:1] + tf.cast(n, tf.float32), ROWS], 0), somewhere()),
    "function": in_a_function,
    "loop": lambda: in_a_loop,
    "branches": lambda: in_branches,
    "table": from_a_table,
    "variable": from_a_variable,
    "generator": by_a_generator,
    "seed generator": by_a_seed_generator,
    "count": by_a_count_of_its_own,
    "count, later": by_a_count_that_goes_on_later,
    "python": lambda: by_python,
}


@pytest.mark.parametrize("name", AT_RANDOM)
def test_a_map_that_reads_records_at_random_places_is_refused(name):
    with pytest.raises(ValueError, match=r"map\(\) reads a tensor .* at a random place"):
        declare(Dataset.range(SIZE).map(AT_RANDOM[name]()).batch(BATCH))


def test_a_map_of_batches_that_reads_records_at_random_places_is_refused():
    batched = Dataset.from_tensor_slices(X).batch(BATCH, drop_remainder=True)
    with pytest.raises(ValueError, match="at a random place"):
        declare(batched.map(lambda x: (x + tf.gather(ROWS, somewhere(BATCH))) / 2))


def test_a_map_inside_of_interleave_that_reads_records_at_random_places_is_refused():
    def brought(part):
        return Dataset.range(24 * part, 24 * part + 24).map(lambda number: ROWS[somewhere()])

    dataset = Dataset.range(4).interleave(brought).apply(tf.data.experimental.assert_cardinality(SIZE))
    with pytest.raises(ValueError, match="at a random place"):
        declare(dataset.batch(BATCH))


def test_a_count_that_another_map_keeps_is_a_random_place():
    count = tf.Variable(0, dtype=tf.int64)
    read = Dataset.range(SIZE).map(lambda number: tf.gather(ROWS, count % SIZE))
    with pytest.raises(ValueError, match="at a random place"):
        declare(read.map(lambda row: (row, count.assign_add(1))).batch(BATCH))


STATE = tf.Variable(tf.zeros([2, 4]))
QUEUE = tf.queue.FIFOQueue(SIZE, tf.float32)
WRITING = {
    "rows": lambda x: STATE.scatter_nd_update([[0]], x[None]),
    "a slice": lambda x: STATE[0].assign(x),
    "a sum": lambda x: STATE.scatter_nd_add([[0]], x[None]),
    "a count of some": lambda x: tf.cond(x[0] > 0.5, lambda: STATE.assign_add(tf.ones([2, 4])), lambda: STATE),
    "a queue": lambda x: QUEUE.enqueue(x),
}


@pytest.mark.parametrize("name", WRITING)
def test_a_map_that_keeps_something_of_a_record_for_the_next_is_refused(name):
    def kept(x):
        with tf.control_dependencies([WRITING[name](x)]):
            return tf.identity(x)

    with pytest.raises(ValueError, match="writes what it makes of a record"):
        declare(Dataset.from_tensor_slices(X).map(kept).batch(BATCH))


def from_an_iterator():
    others = iter(Dataset.from_tensor_slices(X).repeat())
    return lambda x: x + next(others)


OTHERS = {
    "iterator": from_an_iterator,
    "queue": lambda: lambda x: x + tf.ensure_shape(QUEUE.dequeue(), [4]),
    "single element": lambda: lambda x: x + Dataset.from_tensor_slices(X).skip(7).take(1).get_single_element(),
    "reduce": lambda: lambda x: x + Dataset.from_tensor_slices(X).reduce(tf.zeros(4), lambda total, row: total + row),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_map_that_reads_another_data_set_is_refused(name):
    with pytest.raises(ValueError, match="reads another data set"):
        declare(Dataset.from_tensor_slices(X).map(OTHERS[name]()).batch(BATCH))


def counted(dataset):
    return dataset.apply(tf.data.experimental.assert_cardinality(SIZE)).batch(BATCH)


BROUGHT = {
    "the same": (
        lambda: Dataset.range(4).interleave(lambda _: Dataset.from_tensor_slices(X[:24])),
        "the same data set",
    ),
    "a captured one": (
        lambda: (lambda inner: Dataset.range(4).flat_map(lambda _: inner))(Dataset.from_tensor_slices(X[:24])),
        "the same data set",
    ),
    "twice": (
        lambda: Dataset.from_tensor_slices(X[:48]).flat_map(lambda x: Dataset.from_tensors(x).repeat(2)),
        r"repeat\(\)",
    ),
    "joined": (
        lambda: Dataset.from_tensor_slices(X[:48]).flat_map(
            lambda x: Dataset.from_tensors(x).concatenate(Dataset.from_tensors(x))
        ),
        r"concatenate\(\)",
    ),
    "chosen": (
        lambda: Dataset.range(4).interleave(lambda part: Dataset.range(24 * part, SIZE).filter(lambda n: n > 3)),
        r"filter\(\)",
    ),
    "mixed": (
        lambda: Dataset.range(4).interleave(
            lambda part: Dataset.zip((Dataset.range(part, part + 24).shuffle(24), Dataset.range(part, part + 24)))
        ),
        r"zip\(\) and shuffle\(\)",
    ),
}


@pytest.mark.parametrize("name", BROUGHT)
def test_data_sets_that_can_be_seen_to_be_brought_twice_are_refused(name):
    dataset, message = BROUGHT[name]
    with pytest.raises(ValueError, match=message):
        declare(counted(dataset()))


def layers():
    keras.utils.set_random_seed(0)
    drawn = [keras.layers.RandomFlip(), keras.layers.RandomRotation(0.1), keras.layers.RandomCrop(4, 4)]
    return keras.Sequential([*drawn, keras.layers.RandomZoom(0.2), keras.layers.RandomContrast(0.1)])


def words():
    layer = keras.layers.TextVectorization(output_sequence_length=5)
    layer.adapt(["a b c", "b c d"])
    text = Dataset.from_tensor_slices(np.array(["a b c"] * SIZE))

    def some(line):
        kept = tf.boolean_mask(tf.strings.split(line), tf.random.uniform([3]) < 0.9)
        return layer(tf.strings.reduce_join(kept, separator=" "))

    return text.map(some).shuffle(SIZE).batch(BATCH)


def normalised():
    layer = keras.layers.Normalization()
    layer.adapt(IMAGES)
    return images().map(lambda x: cropped(layer(x[None])[0])).batch(BATCH)


def images():
    return Dataset.from_tensor_slices(IMAGES)


def cropped(image):
    return tf.image.random_crop(image, (4, 4, 3))


def augmented_by_layers():
    drawn = layers()
    return images().shuffle(SIZE).batch(BATCH).map(lambda x: drawn(x, training=True)).prefetch(1)


def with_seeds():
    pairs = Dataset.zip((images().shuffle(SIZE), Dataset.counter()))
    return pairs.map(lambda x, n: tf.image.stateless_random_crop(x, (4, 4, 3), (n, n))).batch(BATCH)


def with_a_generator():
    generator = tf.random.Generator.from_seed(3)
    seed = lambda: generator.make_seeds(1)[:, 0]  # noqa: E731
    return images().map(lambda x: tf.image.stateless_random_crop(x, (4, 4, 3), seed())).batch(BATCH)


ANGLES = tf.constant([0, 1, 2, 3])
ORDINARY = {
    "crop and flip": lambda: images().map(lambda x: cropped(tf.image.random_flip_left_right(x))).cache().batch(BATCH),
    "crop less a mean": lambda: images().map(lambda x: cropped(x - MEAN), num_parallel_calls=2).batch(BATCH),
    "normalised": normalised,
    "layers": augmented_by_layers,
    "seeds": with_seeds,
    "generator": with_a_generator,
    "enumerated": lambda: images().enumerate().map(lambda n, x: cropped(x)).shuffle(9).batch(BATCH),
    "a list to choose from": lambda: (
        images().map(lambda x: tf.image.rot90(x, ANGLES[tf.random.uniform([], 0, 4, tf.int32)])).batch(BATCH)
    ),
    "noise": lambda: images().map(lambda x: x + MEAN * tf.random.normal([8, 8, 3])).batch(BATCH),
    "parts cut out": lambda: (
        images().map(lambda x: x * tf.cast(tf.random.uniform([8, 8, 1]) < 0.5, tf.float32)).batch(BATCH)
    ),
    "each of a batch": lambda: images().batch(BATCH).map(lambda x: tf.map_fn(lambda one: cropped(one - MEAN), x)),
    "by its number": lambda: Dataset.range(SIZE).shuffle(SIZE).map(lambda n: tf.gather(ROWS, n)).batch(BATCH),
    "python": lambda: (
        images().map(lambda x: tf.ensure_shape(tf.py_function(abs, [x], tf.float32), [8, 8, 3])).batch(BATCH)
    ),
    "words": words,
    "files": lambda: counted(Dataset.from_tensor_slices(["a", "b"]).interleave(tf.data.TextLineDataset)),
    "parts": lambda: counted(Dataset.range(4).flat_map(lambda part: Dataset.range(24 * part, 24 * part + 24))),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_pipelines_are_accepted(name):
    assert declare(ORDINARY[name]()).steps_per_pass == 3
