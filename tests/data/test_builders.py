"""What tensorflow-datasets has. It is not needed here: a stand-in gives what its builders give."""

import sys
import types
import zlib

import numpy as np
import pytest

import tfdp


class Source:
    """As much of a builder as is asked for."""

    def __init__(self, parts, features):
        self.parts, self.info = parts, types.SimpleNamespace(features=features)

    def download_and_prepare(self):
        if self.parts is None:
            raise ConnectionError("no route to host")

    def as_dataset(self, split, batch_size, decoders):
        assert batch_size == -1
        return {name: x for name, x in self.parts[split].items() if decoders is None or name in decoders}


class Category:
    """A ClassLabel."""

    def __init__(self, *names):
        self.num_classes, self.str2int = len(names), names.index


def stand_in(monkeypatch, builder, parts, features=None):
    sources = {builder: Source(parts, features)}
    module = types.ModuleType("tensorflow_datasets")
    module.builder = lambda name, data_dir: sources[name]
    module.as_numpy = lambda dataset: dataset
    module.decode = types.SimpleNamespace(PartialDecoding=lambda features: features)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)


def objects(*values):
    return np.array(values, object)


@pytest.mark.parametrize(
    ("name", "builder", "stored", "shape"),
    [
        ("mnist", "mnist", (28, 28, 1), (28, 28, 1)),
        ("fashion_mnist", "fashion_mnist", (28, 28, 1), (28, 28, 1)),
        ("cifar10", "cifar10", (32, 32, 3), (32, 32, 3)),
        ("svhn", "svhn_cropped", (32, 32, 3), (32, 32, 3)),
    ],
)
def test_image_sets_come_from_tensorflow_datasets(name, builder, stored, shape, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (3, *stored), np.uint8)
    part = {"image": images, "label": np.array([0, 4, 9]), "id": objects(b"a", b"b", b"c")}
    stand_in(monkeypatch, builder, {"train": part, "test": part})
    (x, y), _ = tfdp.data.load(name)
    assert x.shape == (3, *shape)
    np.testing.assert_allclose(255 * x, images, rtol=1e-6)
    assert y.tolist() == [0, 4, 9]


def test_a_set_of_one_part_is_cut(monkeypatch):
    train, test = ({"features": np.ones((n, 4)), "label": np.arange(n) % 3} for n in (8, 2))
    stand_in(monkeypatch, "iris", {"train[:80%]": train, "train[80%:]": test})
    (x, _), (x_test, _) = tfdp.data.load("iris")
    assert x.shape == (8, 4) and x_test.shape == (2, 4)


def reviews(monkeypatch, *texts, labels=None):
    part = {"text": objects(*texts), "label": np.zeros(len(texts), np.int64) if labels is None else labels}
    stand_in(monkeypatch, "imdb_reviews/plain_text", {"train": part, "test": part})
    return tfdp.data.load("imdb").train


def test_a_review_becomes_a_start_its_words_numbers_and_padding(monkeypatch):
    x, y = reviews(monkeypatch, b"It's <br /><br />GOOD; 'good'!", "", labels=np.array([1, 0]))
    its, good = (3 + zlib.crc32(word) % 9997 for word in (b"it's", b"good"))
    assert x.shape == (2, 256) and x.dtype == np.int32 and y.tolist() == [1, 0]
    assert x[0].tolist() == [1, its, good, good] + 252 * [0]
    assert x[1].tolist() == [1] + 255 * [0]


def test_numbers_of_words_are_those_of_every_computer_and_stay_in_the_table(monkeypatch):
    # CRC-32 of "123456789" is 0xCBF43926: the check value of its definition.
    x, _ = reviews(monkeypatch, b"123456789", " ".join(str(i) for i in range(400)).encode())
    assert x[0, 1] == 3 + 0xCBF43926 % 9997
    assert x[1].min() == 1 and x[1, 1:].min() >= 3 and x.max() < 10_000


def test_a_record_is_coded_the_same_whatever_the_others_are(monkeypatch):
    alone, _ = reviews(monkeypatch, b"a good film")
    among, _ = reviews(monkeypatch, b"bad bad", b"a good film", b"film of films")
    np.testing.assert_array_equal(alone[0], among[1])


def test_letters_beyond_ascii_and_broken_bytes_are_read(monkeypatch):
    x, _ = reviews(monkeypatch, "Amélie".encode(), b"caf\xe9 noir")
    assert x[0, 1] == 3 + zlib.crc32("amélie".encode()) % 9997
    assert x[1, 2] == 3 + zlib.crc32(b"noir") % 9997


def ratings(monkeypatch, users, movies, stars):
    part = {"user_id": users, "movie_id": movies, "user_rating": np.array(stars, np.float32), "movie_genres": None}
    stand_in(monkeypatch, "movielens/1m-ratings", {"train[:80%]": part, "train[80%:]": part})
    return tfdp.data.load("movielens1m").train


@pytest.mark.parametrize("kind", [lambda i: str(i).encode(), str, int])
def test_users_and_movies_count_from_0_and_the_last_movies_share(kind, monkeypatch):
    users, movies = objects(*map(kind, (1, 6040, 7, 8))), objects(*map(kind, (1, 3706, 3707, 3952)))
    x, y = ratings(monkeypatch, users, movies, [1, 5, 3, 2])
    assert x["user"].tolist() == [0, 6039, 6, 7] and x["movie"].tolist() == [0, 3705, 0, 245]
    assert y.tolist() == [0, 4, 2, 1] and y.dtype == x["movie"].dtype == np.int32


@pytest.mark.parametrize(
    ("user", "movie", "stars", "said"),
    [
        (b"1", b"3953", 3, "numbers 1 to 3952"),
        (b"1", b"tt0114709", 3, "whole numbers for users and movies"),
        (b"1", b"0", 3, "numbers 1 to 3952"),
        (b"0", b"1", 3, "movielens/1m-ratings, train: numbers in x must count from 0"),
        (b"6041", b"1", 3, "movielens/1m-ratings, train: numbers in x must count from 0"),
        (b"1", b"1", 3.5, "whole numbers from 1 to 5"),
        (b"1", b"1", 0, "whole numbers from 1 to 5"),
    ],
)
def test_ratings_of_another_movielens_are_refused(user, movie, stars, said, monkeypatch):
    with pytest.raises(ValueError, match=said):
        ratings(monkeypatch, objects(b"1", user), objects(b"2", movie), [4, stars])


FEATURES = {
    "label": Category("back", "normal", "smurf"),
    "flag": Category("OTH", "SF"),
    "count": None,
    "rate": None,
    "land": None,
}
CONNECTIONS = {
    "rate": np.array([0.25, 1, 0], np.float32),
    "count": np.array([0, 9, 999], np.int32),
    "flag": np.array([1, 0, 1]),
    "land": np.array([False, True, False]),
    "label": np.array([1, 0, 2]),
}


def connections(monkeypatch, **changed):
    part = {"train[:56000]": CONNECTIONS | changed, "train[56000:70000]": CONNECTIONS}
    stand_in(monkeypatch, "kddcup99", part, FEATURES)
    return tfdp.data.load("kddcup99").train


def test_connections_become_numbers_without_a_look_at_the_others(monkeypatch):
    x, y = connections(monkeypatch)
    np.testing.assert_allclose(x, [[0, 0, 1, 0, 0.25], [1 / 3, 1, 0, 1, 1], [1, 0, 1, 0, 0]], rtol=1e-6)
    assert y.tolist() == [0, 1, 1] and x.dtype == np.float32 and y.dtype == np.int32


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("label", [1, -1, 0], "label must be one of 3 categories"),
        ("flag", [1, 0, 2], "flag must be one of 2 categories"),
        ("count", [0, -1, 2], "count must not be negative"),
        ("rate", [0.5, np.nan, 0], "not finite"),
    ],
)
def test_connections_that_hold_something_else_are_refused(name, values, said, monkeypatch):
    with pytest.raises(ValueError, match=said):
        connections(monkeypatch, **{name: np.array(values)})


@pytest.mark.parametrize(
    "load",
    [
        lambda m: reviews(m),
        lambda m: ratings(m, objects(), objects(), []),
        lambda m: connections(m, **{name: values[:0] for name, values in CONNECTIONS.items()}),
    ],
)
def test_a_part_without_records_is_refused(load, monkeypatch):
    with pytest.raises(ValueError, match="there are no records"):
        load(monkeypatch)


@pytest.mark.parametrize("name, builder", [("mnist", "mnist"), ("imdb", "imdb_reviews/plain_text")])
def test_without_a_network_the_error_says_what_to_put_where(name, builder, monkeypatch):
    stand_in(monkeypatch, builder, None)
    with pytest.raises(FileNotFoundError, match=rf"{name}.npz with the arrays.*no route to host"):
        tfdp.data.load(name)


def test_without_tensorflow_datasets_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(FileNotFoundError, match=r"pip install 'tfdp\[datasets\]'"):
        tfdp.data.load("cifar10")
