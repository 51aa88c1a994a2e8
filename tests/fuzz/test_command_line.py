"""Any command line is run, or refused with code 2 and a message, and no file is made before it is known to be right."""

import pathlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from experiments import campaign, training
from experiments.methods import METHODS, NOISES
from experiments.tasks import NETWORKS
from tests.experiments.conftest import call
from tests.fuzz.cases import cases


class Reached(Exception):
    """Everything was found right: training would begin."""


NUMBERS = st.one_of(
    st.integers(-2, 2000), st.floats(), st.sampled_from([1e-320, 1e308, 10**30, "1e-5", "0x1", "1_0", "١", "--", ""])
).map(str)
TEXTS = st.text(max_size=6)
OPTIONS = {
    "--model": st.sampled_from(sorted(NETWORKS)) | TEXTS,
    "--method": st.sampled_from(sorted(METHODS)) | TEXTS,
    "--noise": st.sampled_from(sorted(NOISES)) | TEXTS,
    "--argument": st.builds("{}={}".format, st.sampled_from(["direction", "pruning_ratio", "denoise", "codebook_size"]) | TEXTS, NUMBERS | TEXTS),
    **dict.fromkeys(("--epochs", "--batch-size", "--learning-rate", "--momentum", "--clip", "--ema", "--max-physical-batch", "--records", "--delta", "--epsilon", "--noise-multiplier", "--seed", "--no-such"), NUMBERS),
    "--held-out": st.none(),
}  # fmt: skip
GIVEN = st.lists(
    st.sampled_from(sorted(OPTIONS)).flatmap(lambda name: OPTIONS[name].map(lambda value: (name, value))), max_size=4
)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_trained():
    def reached(*arguments, **named):
        raise Reached

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train", reached)
        patch.setattr(campaign.Campaign, "run_all", reached)
        yield


@cases(40, 400)
@given(st.sampled_from(["digits", "iris", "", "minst"]), GIVEN)
def test_any_run_is_begun_or_refused_before_its_folder_is_made(tmp_path_factory, dataset, given):
    folder = tmp_path_factory.mktemp("saved_models")
    words = [word for name, value in given for word in ((name,) if value is None else (f"{name}={value}",))]
    begun_or_refused(folder, "run", f"--dataset={dataset}", "--model=logistic_regression", *words)


@cases(10, 100)
@given(
    st.lists(st.sampled_from([*METHODS, "sgd", ""]), min_size=1, max_size=3),
    st.lists(NUMBERS.filter(lambda text: not text.startswith("-")), min_size=1, max_size=2),
    NUMBERS,
)
@example(["noisy-sgd"], ["1.0"], "--")
def test_any_sweep_is_begun_or_refused(tmp_path_factory, methods, epsilons, seeds):
    folder = tmp_path_factory.mktemp("saved_models")
    words = ["--methods", *methods, "--epsilons", *epsilons, f"--seeds={seeds}", "--model=logistic_regression"]
    if seeds.isdigit() and int(seeds) > 3:
        words[-2] = "--seeds=3"
    begun_or_refused(folder, "sweep", *words)


@cases(15, 150)
@given(st.sampled_from(["run", "sweep", "paper", "report", "audit", ""]), st.lists(TEXTS | NUMBERS, max_size=3))
@example("run", ["\x1e"])
def test_any_words_are_refused(tmp_path_factory, command, words):
    folder = tmp_path_factory.mktemp("saved_models")
    words = [word for word in words if word not in ("-h", "--help") and not word.startswith(("--he", "-h"))]
    begun_or_refused(folder, command, f"--folder={folder}", *words, "--no-such-option")


def begun_or_refused(folder: pathlib.Path, command: str, *words: str) -> None:
    try:
        code, printed = call(command, *words, *(() if "--no-such-option" in words else ("--folder", folder)))
    except Reached:
        return
    assert code == 2, printed
    assert len(printed.strip().rpartition("train.py")[2]) > 20  # words may hold line breaks
    assert not list(folder.iterdir())
