"""One process at a time in a folder, and none that is refused leaves a trace."""

import errno
import fcntl
import subprocess
import sys

import pytest

from experiments import folder_lock, training
from experiments.campaign import Campaign
from experiments.folder_lock import InUse, alone_in
from experiments.papers import reproduce
from tests.experiments.conftest import call

HOLD = """
import pathlib, sys, time
from experiments.folder_lock import alone_in
with alone_in(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_is_refused_until_the_first_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(InUse, match=f"another process is at work in {tmp_path}. Wait until it has ended, or go."):
            alone_in(tmp_path, "go").__enter__()
        first.kill()
    assert (tmp_path / folder_lock.FILE).exists()
    with alone_in(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_folders_that_were_made_go_again_unless_something_is_in_them(tmp_path):
    with alone_in(tmp_path / "a" / "b"):
        (tmp_path / "a" / "kept").touch()
    with alone_in(tmp_path / "c" / "d"):
        pass
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["a", "a/kept"]


def test_a_lock_on_a_file_that_was_deleted_meanwhile_does_not_count(tmp_path, monkeypatch):
    flock, path, deleted = fcntl.flock, tmp_path / folder_lock.FILE, []

    def late(file, how):
        if not deleted:
            path.unlink()
            deleted.append(path)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with alone_in(tmp_path), pytest.raises(InUse):
        alone_in(tmp_path).__enter__()
    assert deleted


@pytest.mark.parametrize("system", ["without fcntl", "whose files have no locks"])
def test_a_system_without_locks_does_without(tmp_path, monkeypatch, system):
    def none(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    if system == "without fcntl":
        monkeypatch.setattr(folder_lock, "fcntl", None)
    with alone_in(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()
    assert not list(tmp_path.iterdir())


COMMANDS = {
    "run": (("run", "--name", "one"), "one"),
    "sweep": (("sweep",), "sweep-digits"),
    "paper": (("paper", "data-perturbation-figure1", "--quick"), ""),
    "computed": (("paper", "gdp-figure2", "--quick"), "gdp-figure2-quick"),
    "best": (("best", "imdb", "--quick"), ""),
}


@pytest.fixture
def nothing_is_computed(monkeypatch):
    def never(*arguments, **named):
        raise AssertionError("Something is computed.")

    for where, name in ((training, "load"), (Campaign, "run_all"), (reproduce, "reproduce")):
        monkeypatch.setattr(where, name, never)


@pytest.mark.usefixtures("nothing_is_computed")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_second_command_in_a_folder_ends_at_once_and_says_what_to_do(command, tmp_path):
    given, name = COMMANDS[command]
    with alone_in(tmp_path / name):
        code, printed = call(*given, "--folder", tmp_path)
    assert code == 1
    assert f"another process is at work in {tmp_path / name}. Wait until it has ended, or give another --" in printed


@pytest.mark.usefixtures("nothing_is_computed")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_cannot_be_written_to_is_found_before_anything_is_computed(command):
    code, printed = call(*COMMANDS[command][0], "--folder", "/sys")
    assert code == 1
    assert "'/sys" in printed and "when there is room, and permission, the same command" in printed


@pytest.mark.usefixtures("nothing_is_computed")
@pytest.mark.parametrize("below", ["", "below"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_where_a_folder_should_be_is_refused_by_name(command, below, tmp_path):
    (tmp_path / "file").touch()
    code, printed = call(*COMMANDS[command][0], "--folder", tmp_path / "file" / below)
    assert code == 2
    assert f"{tmp_path / 'file' / below}" in printed and "can't be a folder: there is a file" in printed


def test_a_run_that_was_killed_before_its_first_file_goes_on(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / folder_lock.FILE).touch()
    code, printed = call("run", "--name", "one", "--folder", tmp_path, "--batch-size", "5000")
    assert code == 2 and "batch_size must be at most" in printed  # and not that the folder holds other files
