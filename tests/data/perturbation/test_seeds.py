"""A seed for every record and leaf, and for nobody without the key."""

import copy
import hashlib
import os
import pickle

import numpy as np
import pytest

from tfdp.data.perturbation.seeds import RecordSeeds

KEY = bytes(range(32))


def test_seeds_are_blake2b_of_everything_that_names_a_record():
    message = b"".join(len(part).to_bytes(8, "little") + part for part in (b"cifar", b"train", b"x"))
    for number in (5, 6):
        whole = hashlib.blake2b(message + number.to_bytes(8, "little"), key=KEY, digest_size=24, person=b"tfdp.records")
        found = RecordSeeds(KEY, ("cifar", "train")).of("x", 5, 2)[number - 5]
        assert found.astype("<u8").tobytes() == whole.digest()


@pytest.mark.parametrize(
    ("key", "released", "leaf", "first"),
    [
        (KEY[::-1], ("cifar", "train"), "x", 0),
        (KEY, ("mnist", "train"), "x", 0),
        (KEY, ("cifar", "test"), "x", 0),
        (KEY, ("cifart", "rain"), "x", 0),
        (KEY, ("cifar", "train"), "y", 0),
        (KEY, ("cifar", "train"), "x", 100),
        (None, ("cifar", "train"), "x", 0),
    ],
)
def test_whatever_differs_makes_other_seeds(key, released, leaf, first):
    usual = RecordSeeds(KEY, ("cifar", "train")).of("x", 0, 100)
    other = RecordSeeds(key, released).of(leaf, first, 100)
    assert len(np.unique(np.concatenate([usual, other]))) == 600


def test_drawn_keys_differ():
    assert not np.array_equal(RecordSeeds(None, ()).of("x", 0, 1), RecordSeeds(None, ()).of("x", 0, 1))


@pytest.mark.parametrize("key", ["password" * 4, bytes(15), bytes(65), 7, bytearray(32)])
def test_bad_keys(key):
    with pytest.raises(ValueError, match="key must"):
        RecordSeeds(key, ())


@pytest.mark.parametrize("save", [pickle.dumps, copy.copy, copy.deepcopy])
def test_the_key_is_not_saved(save):
    with pytest.raises(TypeError, match="not saved"):
        save(RecordSeeds(KEY, ()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.parametrize(("key", "code"), [(None, 7), (KEY, 0)])
def test_a_drawn_key_is_of_one_process(key, code):
    """A fork has it in memory, and would give the same noise to whatever it has."""
    seeds = RecordSeeds(key, ("data", "train"))
    seeds.of("x", 0, 1)
    child = os.fork()
    if child == 0:
        try:
            seeds.of("x", 0, 1)
        except ValueError as error:
            os._exit(7 if "in another process" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
