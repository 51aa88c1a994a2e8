"""The command line: help, and errors before anything is created."""

import json
import shutil
import subprocess
import sys

import pytest

from experiments import audit, best, papers
from experiments.methods import METHODS
from tests.experiments.conftest import call

NAMES = {
    "run": METHODS,
    "sweep": METHODS,
    "paper": papers.TITLES,
    "best": best.TITLES,
    "report": (),
    "audit": audit.ATTACKS,
}


@pytest.mark.parametrize("command", NAMES)
def test_every_command_explains_itself(command):
    code, printed = call(command, "--help")
    assert code == 0 and "usage: train.py" in printed
    assert all(f"  {name} " in printed for name in NAMES[command])


def test_help_needs_neither_tensorflow_nor_keras():
    check = "import sys, train; from experiments.commands import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    check += "assert not {'tensorflow', 'keras'} & set(sys.modules), 'loaded'"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)


WRONG = [
    (("run", "--dataset", "minst"), "There is no dataset 'minst'. There are digits, mnist"),
    (("--epochs", "0"), "epochs must be a whole number of at least 1"),
    (("run", "--argument", "direction"), "--argument takes NAME=VALUE"),
    (("run", "--argument", "direction=left"), "direction"),
    (("run", "--argument", "l2_norm_clip=1"), "The optimizer's l2_norm_clip is given by --clip, not by --argument"),
    (("run", "--argument", "learning_rate=1"), "The optimizer's learning_rate is given by --learning-rate, not"),
    (("run", "--argument", "no_such=1", "--method", "noisy-sgd"), "no_such"),
    (("run", "--batch-size", "5000"), "batch_size must be at most the number of records, 1,437"),
    (("run", "--dataset", "adult"), "adult is not here. Give data_dir="),
    (("sweep", "--methods", "noisy-sgd", "adam"), "There is no method 'adam'"),
    (("sweep", "--seeds", "0"), "seeds must be at least 1"),
    (("paper", "gdp-table9"), "There is no table or figure 'gdp-table9'. There are gdp-table1"),
    (("paper", "gdp-table1", "--only", "cifar"), "leaves nothing of gdp-table1. Its rows are: noise 1.3"),
    (("paper", "gdp-figure2", "--seeds", "2"), "is computed, not trained: leave out --only and --seeds"),
    (("paper", "gdp-table1"), "mnist is not here"),
    (("best", "svhn"), "There is no best of 'svhn'. There are mnist, cifar10, adult"),
    (("best", "adult"), "adult is not here"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[" ".join(given) for given, _ in WRONG])
def test_a_wrong_argument_says_what_is_allowed_and_creates_nothing(given, message, tmp_path):
    code, printed = call(*given, "--folder", tmp_path / "out")
    assert code == 2
    assert message in printed
    assert not (tmp_path / "out").exists()


def test_a_report_of_nothing_says_what_is_missing(tmp_path):
    code, printed = call("report", tmp_path)
    assert code == 2 and "is not the folder of a finished run: there is no result.json" in printed


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("found.json", "{", "can't be read"),
        ("found.json", "{}", "is not what train.py wrote there: it has no title, about"),
        ("result.json", '{"score": 1}', "is not what train.py wrote there: it has no settings, metric, records"),
        ("result.json", "[]", "is not what train.py wrote there: it has no settings, metric, score"),
    ],
)
def test_a_file_that_was_damaged_is_named(tmp_path, file, content, message):
    (tmp_path / file).write_text(content)
    code, printed = call("report", tmp_path)
    assert code == 2 and f"{tmp_path / file} {message}" in printed


def test_settings_of_another_version_are_refused(tmp_path):
    (tmp_path / "one").mkdir()
    for settings in ({}, {"no_such": 1}):
        (tmp_path / "one" / "settings.json").write_text(
            json.dumps({"settings": settings, "command": "python train.py"})
        )
        code, printed = call("run", "--name", "one", "--folder", tmp_path)
        assert code == 2 and "These settings are of another version of train.py" in printed


@pytest.mark.parametrize("command", ["report", "audit"])
def test_a_file_is_no_folder_of_a_run(command, tmp_path):
    (tmp_path / "file").touch()
    code, printed = call(command, tmp_path / "file")
    assert code == 2 and f"{tmp_path / 'file'} is not the folder of a finished run" in printed


def test_a_folder_with_other_files_is_not_touched(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    code, printed = call("run", "--folder", tmp_path, "--name", "mine")
    assert code == 2 and "holds files that are not of a run" in printed
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("result.json", {"history": 3}),
        ("result.json", {"settings": None}),
        ("statement.json", {"claims": None}),
        ("statement.json", {"claims": [{}]}),
    ],
)
def test_a_report_of_what_someone_changed_names_the_folder(run, file, change, tmp_path):
    folder = shutil.copytree(run[1], tmp_path / "changed")
    content = json.loads((folder / file).read_text()) | change
    (folder / file).write_text(json.dumps(content))
    code, printed = call("report", folder)
    assert code == 2 and f"{folder} does not hold what train.py wrote there" in printed
