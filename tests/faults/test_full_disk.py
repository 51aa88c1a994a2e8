"""No room, or no permission: a clear error, the earlier good file still there, and nothing that was trained lost."""

import contextlib
import json
import os
import resource
import shutil

import keras
import numpy as np
import pytest

import tfdp
from benchmarks.faults import X, Y, counting_model, steps_in_the_weights
from experiments import training
from experiments.results import add_line, runs_of
from experiments.run_folder import RunFolder
from experiments.settings import RunSettings
from tests.experiments.conftest import TINY, call


@contextlib.contextmanager
def room_for(size: int):
    """No file can grow beyond so many bytes: the system says so as it says that a disk is full, in the middle of a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fit(model, callbacks, epochs=3):
    model.fit(X, Y, batch_size=4, epochs=epochs, steps_per_epoch=2, verbose=0, callbacks=callbacks)


SAVERS = {
    "model": lambda folder: keras.callbacks.ModelCheckpoint(folder / "{epoch}.keras"),
    "log": lambda folder: keras.callbacks.CSVLogger("/dev/full"),
}


@pytest.mark.parametrize("saver", SAVERS)
def test_a_save_that_finds_no_room_ends_fit_with_an_error_and_loses_no_step(tmp_path, saver):
    model = counting_model()
    with room_for(6000), pytest.raises(OSError, match=r"space|large|write|lose"):
        fit(model, [SAVERS[saver](tmp_path)])
    done = steps_in_the_weights(model)
    assert model.optimizer.ledger.steps == done > 0
    fit(model, [], epochs=1)
    assert model.optimizer.ledger.steps == steps_in_the_weights(model) == done + 2


def test_the_backup_before_is_found_where_the_last_one_found_no_room(tmp_path):
    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path, double_checkpoint=True, delete_checkpoint=False)

    fit(counting_model(), [backup()], epochs=2)  # 4 steps
    latest = tmp_path / "latest.weights.h5"
    shutil.copy(latest, f"{latest}.bkp")
    shutil.copy(tmp_path / "training_metadata.json", tmp_path / "training_metadata.json.bkp")
    latest.write_bytes(latest.read_bytes()[:6000])  # what is left when HDF5 finds no room, and the process crashes
    model = counting_model()
    fit(model, [backup()], epochs=4)
    assert model.optimizer.ledger.steps == steps_in_the_weights(model) == 8


SETTINGS = RunSettings.of("digits", "noisy-sgd", noise_multiplier=1.0)


def test_a_finished_folder_is_never_half_overwritten(tmp_path):
    model = counting_model()
    fit(model, [])
    folder = RunFolder(tmp_path / "run")
    folder.begin(SETTINGS, "python train.py")
    statement = tfdp.privacy_statement(model, 1e-5)
    folder.finish(model, statement, {"score": 1.0})
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    fit(model, [])
    for size in (0, 1000, 6000):
        with room_for(size), pytest.raises(OSError):
            folder.finish(model, tfdp.privacy_statement(model, 1e-5), {"score": 2.0})
    after = {path.name: path.read_bytes() for path in folder.path.iterdir() if "part" not in path.name}
    assert after == before
    assert keras.models.load_model(folder.path / "model.keras").optimizer.ledger.steps == 6


@pytest.fixture
def command(tmp_path):
    given = ("run", "--method", "noisy-sgd", "--noise-multiplier", "1.5", *TINY, "--folder", tmp_path, "--name", "one")
    return given, tmp_path / "one"


def test_a_run_that_finds_no_room_says_so_and_goes_on_once_there_is(command, monkeypatch):
    given, path = command
    usage = shutil.disk_usage(path.parent)
    left = iter([usage, usage, usage._replace(free=1000)])  # as training begins, after an epoch, after another one
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: next(left))
        code, printed = call(*given)
    assert code == 1 and "Traceback" not in printed
    assert "a checkpoint needs" in printed and "1,000 are free" in printed
    assert "the same command goes on from there" in printed and "train.py run" in printed
    assert not (path / "result.json").exists()
    code, printed = call(*given)
    assert code == 0, printed
    statement = json.loads((path / "statement.json").read_text())
    assert sum(line["steps"] for line in statement["ledger"]["lines"]) == 8
    (path / "report.html").unlink()  # broken off while the report was written
    (path / "unfinished").mkdir()
    code, printed = call(*given)
    assert code == 0 and "finished already" in printed
    assert (path / "report.html").exists() and not (path / "unfinished").exists()


@pytest.mark.parametrize("where", ["below a file", "/sys"])
def test_a_folder_that_cannot_be_made_is_an_error_of_one_line(tmp_path, where):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" if where == "below a file" else where
    code, printed = call("run", *TINY, "--folder", folder, "--name", "run")
    assert code in (1, 2) and "Traceback" not in printed
    assert str(folder) in printed


def test_torn_lines_of_a_history_are_dropped_before_the_next_is_written(tmp_path):
    file = tmp_path / "history.csv"
    for content, left in (("epoch,loss\n0,1.0\n1,0.", "epoch,loss\n0,1.0\n"), ("epo", ""), ("a\nb\n", "a\nb\n")):
        file.write_text(content)
        training._drop_torn_line(file)
        assert file.read_text() == left
    training._drop_torn_line(tmp_path / "nothing")


def test_a_line_of_results_that_found_no_room_does_not_spoil_the_next(tmp_path):
    file = tmp_path / "runs.jsonl"
    first, last = {"run": [1], "score": 1}, {"run": [3], "score": 3}
    add_line(file, first)
    with room_for(30), pytest.raises(OSError):
        add_line(file, {"run": [2], "score": list(range(50))})
    add_line(file, last)
    assert runs_of(file) == [first, last]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_noised_records_that_find_no_room_are_an_error(tmp_path):
    x, y = np.ones((2000, 20), np.float32), np.zeros(2000, np.int64)
    with room_for(20_000), pytest.raises(OSError):
        tfdp.data.InputPerturbation(1.0, 1.0).write(tmp_path / "released", x, y, delta=1e-5)
    assert not list((tmp_path / "released").iterdir())
    tfdp.data.InputPerturbation(1.0, 1.0).write(tmp_path / "released", x, y, delta=1e-5)
    assert np.load(tmp_path / "released" / "x.npy").shape == x.shape
