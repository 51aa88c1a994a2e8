"""Sweeps: the grid, the table, and what siblings cost together."""

import json

import pytest

from experiments import sweep, training
from experiments.campaign import TrainingRun
from experiments.report.found import FILE, Found, folders_in
from tests.experiments.conftest import TINY, call
from tfdp.accounting import Ledger, epsilon
from tfdp.accounting.claims import rounded_up

LEDGER = Ledger.poisson(sampling_rate=0.1, noise_multiplier=2.0, steps=30)


def record(score: float, ledger: Ledger | None = LEDGER) -> dict:
    told = {"epsilon": None if ledger is None else epsilon(ledger, delta=1e-5)}
    told |= {} if ledger is None else {"ledger": json.loads(ledger.to_json())}
    return {"score": score, "metric": "accuracy", "seconds": 2.0, "cpu_seconds": 2.0, "statement": told}


def test_methods_without_privacy_are_run_once_a_seed_and_rounds_are_whole():
    settings = sweep.grid({"dataset": "digits"}, ["noisy-sgd", "no-privacy-sgd"], [1.0, 3.0], 2)
    assert [(one.method, one.epsilon, one.seed) for one in settings] == [
        (method, value, seed)
        for seed in (0, 1)
        for method, value in (("noisy-sgd", 1.0), ("noisy-sgd", 3.0), ("no-privacy-sgd", None))
    ]


def test_siblings_cost_what_one_run_of_all_their_steps_costs():
    said = sweep.siblings([record(1.0), record(2.0), record(3.0)], 1e-5)
    together = epsilon(Ledger.poisson(sampling_rate=0.1, noise_multiplier=2.0, steps=90), delta=1e-5)
    assert "These 3 runs are siblings" in said
    assert f"epsilon {rounded_up(together)} at delta 1e-05 (proven" in said


def test_nothing_is_claimed_of_all_siblings_where_one_has_no_ledger():
    assert "nothing is proven of all together" in sweep.siblings([record(1.0), record(2.0, None)], 1e-5)


def test_the_table_has_mean_range_and_the_largest_proven_epsilon():
    runs = [TrainingRun(one) for one in sweep.grid({"dataset": "digits"}, ["noisy-sgd"], [1.0], 2)]
    found = sweep.found(runs, [record(80.0), record(90.0)], "command")
    assert found.rows == (
        ("noisy-sgd", "1", rounded_up(epsilon(LEDGER, delta=1e-5)), "85.00", "80.00 to 90.00", "2", "2"),
    )


def test_held_out_records_are_not_called_test_records():
    runs = [TrainingRun(one) for one in sweep.grid({"dataset": "digits", "held_out": True}, ["noisy-sgd"], [1.0], 1)]
    found = sweep.found(runs, [record(80.0)], "command")
    assert found.about == "accuracy on held-out records of digits, 1 runs."
    assert found.panels[0].y_label == "held-out accuracy"


@pytest.fixture(scope="module")
def swept(tmp_path_factory, dense_layers_count_as_proved):
    folder = tmp_path_factory.mktemp("sweep")
    given = (
        "sweep",
        "--methods",
        "noisy-sgd",
        "--epsilons",
        "3",
        "--seeds",
        "2",
        *TINY,
        "--folder",
        folder,
        "--name",
        "s",
    )
    return given, folder / "s", call(*given)


def test_a_sweep_leaves_a_line_a_run_a_table_a_figure_and_a_report(swept):
    _, folder, (code, printed) = swept
    assert code == 0, printed
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    assert [line["run"]["seed"] for line in lines] == [0, 1]
    assert "2 of 2: digits-noisy-sgd-eps3-seed1" in printed and "These 2 runs are siblings" in printed
    (own,) = (path for path in folder.iterdir() if path.is_dir())
    assert own.name.startswith("2-runs-")
    assert (own / "table.md").read_text() in printed
    assert (own / "figures" / "figure.png").stat().st_size > 1000
    assert "These 2 runs are siblings" in (own / "report.html").read_text()


def test_a_sweep_that_is_finished_runs_nothing_and_its_report_can_be_made_anew(swept):
    given, folder, _ = swept
    (file,) = folder.glob("*/report.html")
    page = file.read_text()
    _, printed = call(*given)
    assert "2 of 2 runs are there already" in printed
    file.unlink()
    assert call("report", folder)[0] == 0
    assert file.read_text() == page


def test_a_report_is_of_a_folder_and_of_those_in_it(tmp_path):
    for name in ("2-runs-a", "3-runs-b", "unfinished"):
        (tmp_path / name).mkdir()
    (tmp_path / "2-runs-a" / FILE).touch()
    (tmp_path / "3-runs-b" / FILE).touch()
    assert folders_in(tmp_path) == [tmp_path / "2-runs-a", tmp_path / "3-runs-b"]
    assert folders_in(tmp_path / "3-runs-b") == [tmp_path / "3-runs-b"]
    assert folders_in(tmp_path / "unfinished") == folders_in(tmp_path / "nothing") == []


@pytest.fixture
def sweep_of_fakes(tmp_path, monkeypatch):
    """The command, its folder, and which runs were run. Of what they find the table alone is written."""
    ran = []

    def execute(run, data_dir, work):
        ran.append(run.label)
        return {name: value for name, value in record(80.0 + len(ran)).items() if name != "cpu_seconds"}

    monkeypatch.setattr(TrainingRun, "execute", execute)

    def write(found, folder):
        folder.mkdir(exist_ok=True)
        (folder / "table.md").write_text(found.markdown)

    monkeypatch.setattr(Found, "write", write)
    monkeypatch.setattr(training, "check", lambda settings, data: None)

    def command(*given):
        code, printed = call("sweep", "--folder", tmp_path, "--epsilons", "1", "--seeds", "1", *given)
        assert code == 0, printed

    return command, tmp_path / "sweep-digits", ran


def contents(folder) -> dict:
    return {path: path.read_bytes() for path in folder.glob("*/*") if path.is_file()}


def test_two_sweeps_of_one_data_set_leave_each_others_tables_alone_and_share_runs(sweep_of_fakes):
    command, folder, ran = sweep_of_fakes
    command("--methods", "noisy-sgd")
    first = contents(folder)
    for other in (("--clip", "2"), ("--epsilons", "3"), ("--seeds", "2")):
        command("--methods", "noisy-sgd", *other)
    assert len(list(folder.glob("*/table.md"))) == 4
    assert first.items() <= contents(folder).items()
    assert len(ran) == len((folder / "runs.jsonl").read_text().splitlines()) == 4  # of two seeds, one was there


def test_a_sweep_finds_its_folder_again_whatever_the_order_of_its_methods(sweep_of_fakes):
    command, folder, ran = sweep_of_fakes
    command("--methods", "noisy-sgd", "noisy-adam")
    command("--methods", "noisy-adam", "noisy-sgd")
    assert len(ran) == 2 and len(list(folder.glob("2-runs-*"))) == 1
