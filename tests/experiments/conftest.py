"""What all tests of this room share: a run that takes a second or two."""

import contextlib
import io

import pytest

from experiments import commands
from tests.optimizers.conftest import dense_layers_count_as_proved  # noqa: F401

TINY = ("--model", "logistic_regression", "--records", "200", "--batch-size", "50", "--epochs", "2", "--clip", "1")


def call(*given) -> tuple[int, str]:
    """The command's exit code and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = commands.main(list(map(str, given)))
        except SystemExit as exit:
            code = exit.code
    return code, out.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory, dense_layers_count_as_proved):  # noqa: F811
    """A finished run of 8 steps with a known noise, its folder, and what was printed."""
    folder = tmp_path_factory.mktemp("saved_models")
    given = ("run", "--method", "noisy-sgd", "--noise-multiplier", "1.5", *TINY, "--folder", folder, "--name", "tiny")
    code, printed = call(*given)
    assert code == 0, printed
    return given, folder / "tiny", printed
