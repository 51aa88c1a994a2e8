"""The generator's state is in no file and no config, and two continuations of one checkpoint share nothing."""

import json
import pickle
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdp
from tests.optimizers import tiny

WIDTH = 800


@pytest.fixture(scope="module")
def trained() -> tuple[keras.Model, list[int]]:
    """A model and the words of its generator's state, before and after training."""
    model = tiny.private(tiny.noisy())
    words = state_words(model)
    tiny.train(model)
    return model, words + state_words(model)


def state_words(model) -> list[int]:
    # Philox: a counter, whose small numbers are in many files by chance, and a key. Both begin as 64 random bits each.
    words = [int(word) for word in model.optimizer.generator._generator.state.numpy()]
    return [word for word in words if abs(word) > 2**32]


def saved_model(model, tmp_path):
    model.save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        return b"".join(archive.read(name) for name in archive.namelist())


def saved_weights(model, tmp_path):
    model.save_weights(tmp_path / "model.weights.h5")
    return (tmp_path / "model.weights.h5").read_bytes()


def checkpoint(model, tmp_path):
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(tmp_path / "checkpoint"))
    return b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))


def exported(model, tmp_path):
    tf.saved_model.save(model, str(tmp_path / "exported"))
    return b"".join(path.read_bytes() for path in sorted((tmp_path / "exported").rglob("*")) if path.is_file())


WRITTEN = {
    "model.keras": saved_model,
    "model.weights.h5": saved_weights,
    "pickled model": lambda model, tmp_path: pickle.dumps(model),
    "pickled generator": lambda model, tmp_path: pickle.dumps(model.optimizer.generator),
    "tf.train.Checkpoint": checkpoint,
    "SavedModel": exported,
    "config": lambda model, tmp_path: json.dumps(
        [model.optimizer.get_config(), model.get_compile_config(), keras.optimizers.serialize(model.optimizer)]
    ).encode(),
}


def spellings(word: int) -> list[bytes]:
    unsigned = word % 2**64
    return [
        unsigned.to_bytes(8, "little"),
        unsigned.to_bytes(8, "big"),
        str(word).encode(),
        str(unsigned).encode(),
        f"{unsigned:x}".encode(),
    ]


@pytest.mark.parametrize("what", WRITTEN)
def test_nothing_written_holds_the_generators_state(trained, tmp_path, what):
    model, words = trained
    assert len(words) >= 4
    written = WRITTEN[what](model, tmp_path)
    for word in words:
        for spelling in spellings(word):
            assert spelling not in written


@pytest.mark.parametrize("what", ["model.keras", "model.weights.h5", "tf.train.Checkpoint", "SavedModel"])
def test_the_search_finds_what_is_written(trained, tmp_path, what):
    model, _ = trained
    assert model.get_weights()[0].tobytes() in WRITTEN[what](model, tmp_path)


def test_no_tracked_variable_is_the_generators(trained):
    model, words = trained
    for variable in [*model.variables, *model.optimizer.variables]:
        assert not set(np.ravel(variable.numpy()).tolist()) & set(words)


@pytest.fixture(scope="module")
def continuations(tmp_path_factory) -> list[keras.Model]:
    """One checkpoint, loaded twice; the features are one-hot and the targets far away."""
    path = tmp_path_factory.mktemp("checkpoint") / "model.keras"
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(WIDTH, use_bias=False)])
    tiny.private(tiny.noisy(), model)
    tiny.train(model, np.eye(64, dtype="float32"), np.zeros((64, WIDTH), "float32"))
    model.save(path)
    return [keras.models.load_model(path) for _ in range(2)]


def changes(models, **arguments) -> list[np.ndarray]:
    found = []
    for model in models:
        (start,) = model.get_weights()
        keras.utils.set_random_seed(0)
        x, y = np.eye(64, dtype="float32"), np.full((64, WIDTH), 1e3, "float32")
        model.fit(x, y, batch_size=32, steps_per_epoch=1, verbose=0, **arguments)
        found.append(np.float64(model.get_weights()[0] - start))
    return found


def test_two_continuations_of_one_checkpoint_have_different_noise(continuations):
    first, second = (change.ravel() for change in changes(continuations, sample_weight=np.zeros(64)))
    assert first.std() > 0
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(first.size)


def test_two_continuations_of_one_checkpoint_have_different_lots(continuations):
    """Without noise, the rows of the kernel that moved are the records of the lot."""
    for model in continuations:
        tiny.private(tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0), model)
    first, second = (np.any(change != 0, axis=1) for change in changes(continuations))
    assert 0 < first.sum() < 64
    assert np.any(first != second)
