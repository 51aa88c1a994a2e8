"""Data sets by name."""

import keras
import numpy as np
import pytest
import sklearn.datasets

import models.bu_2019
import models.kang_2020
import models.xiang_2021
import tfdp
from tfdp.data.datasets import KNOWN

STORED = {
    "mnist": np.uint8,
    "fashion_mnist": np.uint8,
    "svhn": np.uint8,
    "cifar10": np.uint8,
    "imdb": np.int32,
    "movielens1m": np.int32,
}
NETWORKS = {
    "mnist": (models.xiang_2021.lenet5, models.bu_2019.mnist_cnn),
    "svhn": (models.xiang_2021.alexnet,),
    "adult": (models.bu_2019.adult_mlp,),
    "imdb": (models.bu_2019.imdb_text,),
    "movielens1m": (models.bu_2019.movielens_ncf,),
    "iris": (lambda: models.kang_2020.one_hidden_layer(4, 3), lambda: models.kang_2020.logistic_regression(4, 3)),
}


def arrays_of(name, records=10):
    """Of the kind that an .npz file of this name holds."""
    known, random = KNOWN[name], np.random.default_rng(0)
    width = {"adult": 123}.get(name, 7)
    shape = tuple(width if size is None else size for size in known.x_shape)
    labels = known.first_class + np.arange(records) % known.classes
    found = {}
    for part in ("train", "test"):
        found[f"x_{part}"] = random.integers(0, 200, (records, *shape)).astype(STORED.get(name, np.float32))
        found[f"y_{part}"] = labels.astype(np.int64)
    return found


@pytest.mark.parametrize(
    ("name", "column", "number", "said"),
    [("imdb", 5, 10_000, "10000"), ("movielens1m", 1, 3706, "6040 and 3706"), ("movielens1m", 0, -1, "6040 and 3706")],
)
def test_numbers_that_no_table_of_embeddings_has_are_refused(name, column, number, said, tmp_path):
    stored = arrays_of(name)
    stored["x_test"][3, column] = number
    np.savez(tmp_path / f"{name}.npz", **stored)
    with pytest.raises(ValueError, match=f"test: numbers in x must count from 0 and stay below {said}."):
        tfdp.data.load(name, tmp_path)


def test_digits_are_those_of_scikit_learn():
    (x_train, y_train), (x_test, y_test) = tfdp.data.load("digits")
    assert (len(x_train), len(x_test)) == (1437, 360) and x_train.shape[1:] == (8, 8, 1)
    digits = sklearn.datasets.load_digits()
    expected = sorted((label, *pixels) for label, pixels in zip(digits.target, digits.data, strict=True))
    x, y = np.concatenate([x_train, x_test]), np.concatenate([y_train, y_test])
    found = sorted((label, *pixels) for label, pixels in zip(y, 16 * x.reshape(len(x), -1), strict=True))
    np.testing.assert_array_equal(np.array(found), np.array(expected))


@pytest.mark.parametrize("name", [name for name in KNOWN if name != "digits"])
def test_a_file_becomes_what_networks_take(name, tmp_path):
    stored = arrays_of(name)
    np.savez(tmp_path / f"{name}.npz", **stored)
    train, (x, y) = tfdp.data.load(name, tmp_path)
    assert y.dtype == np.int32 and y.min() == 0 and y.max() == KNOWN[name].classes - 1
    np.testing.assert_array_equal(y, stored["y_test"] - stored["y_test"].min())
    np.testing.assert_array_equal(train[1], y)
    if name == "movielens1m":
        np.testing.assert_array_equal(np.stack([x["user"], x["movie"]], 1), stored["x_test"])
    elif name in ("mnist", "fashion_mnist", "svhn", "cifar10"):
        assert x.dtype == np.float32 and x.ndim == 4
        np.testing.assert_allclose(255 * np.squeeze(x), np.squeeze(stored["x_test"]), rtol=1e-6)
    else:
        np.testing.assert_array_equal(x, stored["x_test"])
    for network in NETWORKS.get(name, ()):
        assert network().predict(x, verbose=0).shape == (10, KNOWN[name].classes)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda a: a.pop("y_test"), "has no y_test"),
        (
            lambda a: a.update(x_train=a["x_train"][..., :27]),
            r"must have the shape \[records, 28, 28\], not \[10, 28, 27\]",
        ),
        (lambda a: a.update(y_train=a["y_train"][:9]), r"one label for each of 10 records"),
        (lambda a: a.update(y_test=a["y_test"] + 1), "whole numbers from 0 to 9"),
        (lambda a: a.update(y_test=a["y_test"] + 0.5), "whole numbers from 0 to 9"),
        (lambda a: a.update(x_test=np.full((10, 28, 28), np.nan)), "not finite"),
        (lambda a: a.update(x_test=a["x_test"][:0], y_test=a["y_test"][:0]), "there are no records"),
        (lambda a: a.update(x_train=a["x_train"] / 255.0), "pixels must be numbers from 0 to 255, not from 0 to 1"),
        (lambda a: a.update(x_train=a["x_train"] * 1j), "x must hold real numbers, not complex128"),
        (lambda a: a.update(y_train=a["y_train"].astype(str)), "y must hold real numbers, not <U"),
        (lambda a: a.update(x_test=np.array([{}] * 10)), "can't be read"),
    ],
)
def test_files_that_hold_something_else_are_refused(change, message, tmp_path):
    stored = arrays_of("mnist")
    change(stored)
    np.savez(tmp_path / "mnist.npz", **stored)
    with pytest.raises(ValueError, match=message):
        tfdp.data.load("mnist", tmp_path)


def test_numbers_of_words_are_whole(tmp_path):
    stored = arrays_of("imdb")
    np.savez(tmp_path / "imdb.npz", **{**stored, "x_train": stored["x_train"] + 0.5})
    with pytest.raises(ValueError, match="x must hold whole numbers"):
        tfdp.data.load("imdb", tmp_path)


def test_parts_of_different_widths_are_refused(tmp_path):
    stored = arrays_of("bank")
    np.savez(tmp_path / "bank.npz", **{**stored, "x_test": stored["x_test"][:, 1:]})
    with pytest.raises(ValueError, match="different shapes"):
        tfdp.data.load("bank", tmp_path)


def test_a_name_that_does_not_exist():
    with pytest.raises(ValueError, match="There are digits, mnist, fashion_mnist"):
        tfdp.data.load("minst")


def test_what_is_nowhere_is_asked_for(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"Give data_dir=, a folder that holds adult.npz with the arrays x_train \[records, n\]"
    ):
        tfdp.data.load("adult")
    with pytest.raises(FileNotFoundError, match=r"There must be .*adult.npz"):
        tfdp.data.load("adult", tmp_path)


@pytest.mark.parametrize("content", [b"PK\x03\x04 and nothing more", b""])
def test_a_broken_file_is_said_to_be_one(content, tmp_path):
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(ValueError, match="can't be read"):
        tfdp.data.load("mnist", tmp_path)


def test_the_and_perceptron_has_the_nine_weights_of_the_paper():
    assert models.xiang_2021.and_perceptron().count_params() == 9
    assert isinstance(models.xiang_2021.resnet18(), keras.Model)
