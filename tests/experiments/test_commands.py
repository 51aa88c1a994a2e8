"""The command line: help, and errors before anything is created."""

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


def test_a_folder_with_other_files_is_not_touched(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    code, printed = call("run", "--folder", tmp_path, "--name", "mine")
    assert code == 2 and "holds files that are not of a run" in printed
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
