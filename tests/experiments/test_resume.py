"""A run that is broken off goes on where it was."""

import json

import keras

from experiments import training
from experiments.run_folder import RunFolder
from tests.experiments.conftest import TINY, call


def interrupted_at(epoch: int):
    """The run's callbacks, and Ctrl-C as this epoch begins."""
    original = training._callbacks

    def callbacks(*arguments):
        def press(current, logs=None):
            if current == epoch:
                raise KeyboardInterrupt

        return [*original(*arguments), keras.callbacks.LambdaCallback(on_epoch_begin=press)]

    return callbacks


def test_a_run_that_is_broken_off_goes_on_and_takes_not_one_step_more(tmp_path, monkeypatch):
    given = (
        "run",
        "--method",
        "noisy-sgd",
        "--epsilon",
        "3",
        *TINY,
        "--epochs",
        "4",
        "--folder",
        tmp_path,
        "--name",
        "one",
    )
    with monkeypatch.context() as patch:
        patch.setattr(training, "_callbacks", interrupted_at(2))
        code, printed = call(*given)
    folder = RunFolder(tmp_path / "one")
    assert code == 130 and "the same command goes on from there" in printed
    assert folder.begun and not folder.finished
    assert call("report", folder.path)[0] == 2
    code, printed = call(*given)
    assert code == 0, printed
    assert "Epoch 3/4" in printed and "Epoch 2/4" not in printed
    assert [row["epoch"] for row in folder.record["history"]] == [0, 1, 2, 3]
    lines = folder.record["statement"]["ledger"]["lines"]
    assert sum(line["steps"] for line in lines) == 16
    assert folder.record["statement"]["epsilon"] <= 3.0


def checkpoint(folder, name: str, content: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)


def test_a_torn_checkpoint_gives_way_to_the_one_before(tmp_path):
    backup = tmp_path / "unfinished"
    checkpoint(backup, "latest.weights.h5", "torn")
    checkpoint(backup, "latest.weights.h5.bkp", "whole")
    checkpoint(backup, "training_metadata.json", "")
    checkpoint(backup, "training_metadata.json.bkp", '{"epoch": 3}')
    training.mend(backup)
    assert (backup / "latest.weights.h5").read_text() == "whole"
    assert json.loads((backup / "training_metadata.json").read_text()) == {"epoch": 3}


def test_a_first_checkpoint_that_is_torn_is_dropped(tmp_path):
    backup = tmp_path / "unfinished"
    checkpoint(backup, "latest.weights.h5", "torn")
    training.mend(backup)
    assert not backup.exists()


def test_an_epoch_that_was_run_twice_counts_once(tmp_path):
    (tmp_path / "history.csv").write_text("epoch,loss\n0,1.0\n1,0.9\n1,0.8\n")
    assert training.history(tmp_path) == [{"epoch": 0.0, "loss": 1.0}, {"epoch": 1.0, "loss": 0.8}]
