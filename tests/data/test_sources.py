"""What records can be drawn from, without copying it."""

import collections.abc
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from tfdp.data import PoissonBatches

SIZE = 500
NUMBERS = np.arange(SIZE)
IMAGES = NUMBERS[:, None, None] * np.ones((4, 3), np.float32)


class Source:
    """A random-access source; `item` turns a record number into what the source gives."""

    def __init__(self, item):
        self._item = item

    def __len__(self):
        return SIZE

    def __getitem__(self, number):
        assert isinstance(number, int)
        return self._item(number)


class BulkSource(Source):
    def __getitem__(self, number):
        if number:
            raise AssertionError("one at a time, although __getitems__ is there")
        return self._item(number)

    def __getitems__(self, numbers):
        return [self._item(number) for number in numbers]


def check_images(batches, lots=20):
    """Every lot holds whole records: the image of a number is filled with it. Returns how many came."""
    rows = 0
    for (images, numbers), _ in batches.dataset().take(lots):
        rows += len(numbers)
        assert images.dtype == tf.float32 and images.shape[1:] == (4, 3)
        assert np.array_equal(images, numbers.numpy()[:, None, None] * np.ones((4, 3)))
        assert len(np.unique(numbers)) == len(numbers)
    return rows


@pytest.mark.parametrize("batch_size", [3, 120, 490, SIZE])
@pytest.mark.parametrize("chunks", [None, (7, 4, 3)])
def test_h5py_datasets(tmp_path, batch_size, chunks):
    with h5py.File(tmp_path / "records.h5", "w") as file:
        file.create_dataset("x", data=IMAGES, chunks=chunks)
        file.create_dataset("y", data=NUMBERS)
    with h5py.File(tmp_path / "records.h5", "r") as file:
        rows = check_images(PoissonBatches(file["x"], file["y"], batch_size=batch_size))
        assert abs(rows - 20 * batch_size) <= 6 * (20 * batch_size) ** 0.5


def test_memory_maps(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    images = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert check_images(PoissonBatches(images, NUMBERS, batch_size=50)) > 500


@pytest.mark.parametrize("kind", [Source, BulkSource])
@pytest.mark.parametrize(
    "item",
    [
        lambda number: (IMAGES[number], number),
        lambda number: {"x": IMAGES[number], "y": number},
        lambda number: (tf.constant(IMAGES[number]), np.int64(number)),
    ],
    ids=["tuples", "dicts", "tensors"],
)
def test_sources_of_whole_records(kind, item):
    assert check_images(PoissonBatches(kind(item), batch_size=50)) > 500


def test_a_source_with_targets_of_its_own():
    assert check_images(PoissonBatches(Source(lambda number: IMAGES[number]), NUMBERS, batch_size=50)) > 500


def test_a_tfds_source_says_which_fields_are_supervised():
    class TfdsSource(Source, collections.abc.MappingView, collections.abc.Sequence):
        """Of the same types as `tfds.data_source`, which tf.nest would take for structures."""

    source = TfdsSource(lambda number: {"image": IMAGES[number], "label": number, "file": "name"})
    batches = PoissonBatches(source, batch_size=50)
    assert set(batches.record_spec[0]) == {"image", "label", "file"}
    source.dataset_info = type("Info", (), {"supervised_keys": ("image", "label")})()
    assert check_images(PoissonBatches(source, batch_size=50)) > 500


def test_an_empty_lot_of_a_source():
    source = Source(lambda number: (IMAGES[number], {"name": str(number)}))
    batches = PoissonBatches(source, batch_size=1, public_size=10**7)
    (x, y), present = next(iter(batches.dataset()))
    assert x.shape == (0, 4, 3) and y["name"].shape == (0,) and y["name"].dtype == tf.string
    assert present.shape == (0,)


def test_pandas_frames_as_in_keras():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": NUMBERS * 1.0, "b": NUMBERS * 2.0})
    batches = PoissonBatches(frame, pandas.Series(NUMBERS), batch_size=50)
    for (x, y), _ in batches.dataset().take(5):
        assert y.shape[1:] == (1,) and x.dtype == tf.float32
        assert np.array_equal(x, np.concatenate([y, 2 * y], axis=1))


@pytest.mark.parametrize(
    "x, y, weight",
    [
        (np.zeros((8, 3)), np.zeros(8), None),
        (np.zeros((8, 3), np.float16), np.zeros((8, 1), np.int64), np.zeros(8)),
        (np.zeros((8, 3), np.uint8), None, None),
        (
            {"a": np.zeros((8, 2)), "b": tf.zeros((8,), tf.float64)},
            {"c": np.zeros(8), "d": np.zeros(8, bool)},
            None,
        ),
        ([np.zeros((8, 2)), tf.constant(list("abcdefgh"))], (np.zeros(8), np.zeros((8, 2))), np.ones(8)),
        (tf.constant(list("abcdefgh")), tf.zeros((8,), tf.bfloat16), None),
    ],
    ids=["float64", "float16", "bytes", "dicts", "lists", "strings"],
)
def test_lots_look_like_the_batches_of_keras(x, y, weight):
    """Structure, types and shapes of an ordinary `fit` on the same arrays."""
    theirs = next(iter(ArrayDataAdapter(x, y, weight, batch_size=8).get_tf_dataset()))
    theirs = theirs if isinstance(theirs, tuple) else (theirs,)
    batches = PoissonBatches(x, y, weight, batch_size=8)
    ours, _ = next(iter(batches.dataset()))
    tf.nest.assert_same_structure(theirs, ours)
    assert [(leaf.dtype, leaf.shape) for leaf in tf.nest.flatten(theirs)] == [
        (leaf.dtype, leaf.shape) for leaf in tf.nest.flatten(ours)
    ]
    assert all(spec.shape[0] is None for spec in tf.nest.flatten(batches.record_spec))


@pytest.mark.parametrize("x", [IMAGES, Source(lambda number: IMAGES[number])], ids=["array", "source"])
def test_the_first_records(x):
    batches = PoissonBatches(x, NUMBERS, batch_size=50)
    images, numbers = batches.head(5)
    assert np.array_equal(numbers, range(5)) and np.array_equal(images, IMAGES[:5])
    assert np.array_equal(batches.shard(1, 200).head(5)[1], [1, 201, 401])


def test_views_and_foreign_byte_orders_are_read_rightly():
    for x in (IMAGES[::-1][::2], np.asfortranarray(IMAGES), IMAGES.astype(">f4")):
        for (rows, whole), _ in PoissonBatches(x, x[:, 0, 0] + 0.0, batch_size=20).dataset().take(3):
            assert np.array_equal(rows, whole.numpy()[:, None, None] * np.ones((4, 3)))


def test_an_output_without_targets():
    batches = PoissonBatches(IMAGES, {"a": NUMBERS, "b": None}, batch_size=50)
    (_, y), _ = next(iter(batches.dataset()))
    assert y["b"] is None and y["a"].dtype == tf.int64


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, number):
        return np.zeros((4, 2)), np.zeros(4)


@pytest.mark.parametrize(
    "x, y, message",
    [
        (np.zeros((8, 2)), np.zeros(7), "x has 8, y has 7"),
        ({"a": np.zeros(8), "b": np.zeros(9)}, None, "x has 8 and 9"),
        (Source(lambda number: number), np.zeros(7), "x has 500, y has 7"),
        (np.float32(1), None, "x is a single number"),
        ([np.zeros(8), 3.0], None, r"x\[1\] is a float"),
        (list(range(8)), None, r"np\.asarray"),
        (np.zeros((0, 2)), None, "x holds no records"),
        (None, None, "x is None"),
        ([], None, "no arrays"),
        ({"a": np.array([[1], [2, 3]], dtype=object)}, None, r"x\['a'\] is an array of Python objects"),
        (np.zeros(8), np.array([1, None] * 4), "y is an array of Python objects"),
        (np.zeros(8, "datetime64[s]"), None, "unknown to TensorFlow"),
        (tf.ragged.constant([[1], [2, 3]]), None, "RaggedTensor"),
        (tf.sparse.from_dense(np.eye(3)), None, "SparseTensor"),
        (scipy.sparse.csr_matrix(np.eye(3)), None, "toarray"),
        (tf.data.Dataset.range(3).flat_map(tf.data.Dataset.from_tensors), None, "declare_sampling"),
        ({"a": tf.data.Dataset.range(3)}, None, "declare_sampling"),
        (Batches(), None, "record number i"),
        ((number for number in range(3)), None, "generator"),
        ("abc", None, "str"),
        (Source(lambda number: (0, 1, 2, 3)), None, "tuples of 4"),
    ],
)
def test_what_has_no_rows_is_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        PoissonBatches(x, y, batch_size=1)


def test_weights_need_targets_of_the_same_structure():
    with pytest.raises(ValueError, match="without y"):
        PoissonBatches(np.zeros(8), sample_weight=np.ones(8), batch_size=1)
    with pytest.raises(ValueError, match="same structure"):
        PoissonBatches(np.zeros(8), {"a": np.ones(8)}, {"b": np.ones(8)}, batch_size=1)


def test_records_of_different_shapes_are_refused():
    source = Source(lambda number: np.zeros(3 if number < 250 else 4))
    with pytest.raises(tf.errors.OpError, match="different shapes"):
        list(PoissonBatches(source, batch_size=400).dataset().take(1))


MEMORY = """
import resource, sys
import numpy as np, tensorflow as tf
from tfdp.data import PoissonBatches

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def draw(x):
    batches = PoissonBatches({"x": x}, x[:, 0], batch_size=100)
    for bucketed in (False, True):
        assert len(list(batches.shard(0, 2).dataset(bucketed).take(5))) == 5
        assert len(list(batches.dataset(bucketed).take(5))) == 5

small = np.ones((1000, 250))
draw(small), draw(tf.constant(small))
large = np.ones((120_000, 250))  # 240 MB
tensor = tf.fill((120_000, 250), 1.0)  # 120 MB
before = peak()
draw(large), draw(tensor)
print(peak() - before)
"""


def test_nothing_is_copied():
    """In a process of its own, because the peak of memory never goes down."""
    printed = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    assert float(printed) < 60  # MB: a few blocks of at most 16 MB each, while a copy would take 120 or 240


EXIT = """
import numpy as np
from tfdp.data import PoissonBatches

dataset = PoissonBatches(np.ones((6000, 784), np.float32), batch_size=256).dataset()
iterators = [iter(dataset) for _ in range(10)]
for iterator in iterators:
    for _ in range(20):
        next(iterator)
"""


def test_the_process_ends_with_iterators_alive():
    assert subprocess.run([sys.executable, "-c", EXIT], capture_output=True, timeout=60).returncode == 0
