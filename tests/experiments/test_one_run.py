"""What a run leaves in its folder, and that it is true."""

import csv
import html
import json
import re
import shutil

import keras
import pytest

import tfdp
from experiments.folder_lock import alone_in
from experiments.report.run_report import NO_PRIVACY
from tests.experiments.conftest import TINY, call
from tfdp.accounting import Ledger
from tfdp.accounting.claims import rounded_up

STEPS, RATE, NOISE = 8, 50 / 200, 1.5


def statement(folder) -> dict:
    return json.loads((folder / "statement.json").read_text())


def test_a_run_leaves_its_files_and_nothing_unfinished(run):
    _, folder, printed = run
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    figures = {f"figures/{name}.png" for name in ("accuracy", "epsilon", "tradeoff")}
    files = {
        "model.keras",
        "statement.json",
        "statement.txt",
        "history.csv",
        "settings.json",
        "result.json",
        "report.html",
    }
    assert left == files | figures
    assert "Privacy statement" in printed and "report.html" in printed


def test_the_statement_is_that_of_the_steps_that_the_command_asked_for(run):
    _, folder, _ = run
    ledger = Ledger.poisson(sampling_rate=RATE, noise_multiplier=NOISE, steps=STEPS)
    expected = tfdp.accounting.epsilon(ledger, delta=1e-5)
    assert statement(folder)["epsilon"] == pytest.approx(expected, rel=1e-3)
    assert statement(folder)["claims"][0]["status"] == "proven"


def test_the_history_has_every_epoch_with_its_epsilon(run):
    _, folder, _ = run
    rows = list(csv.DictReader((folder / "history.csv").open()))
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert float(rows[1]["epsilon"]) == pytest.approx(statement(folder)["epsilon"], rel=1e-6)


def test_the_reloaded_model_has_its_ledger_and_its_score(run):
    _, folder, _ = run
    model = keras.models.load_model(folder / "model.keras")
    assert model.optimizer.ledger.steps == STEPS
    assert tfdp.privacy_statement(model, 1e-5).epsilon == statement(folder)["epsilon"]
    _, (x, y) = tfdp.data.load("digits")
    score = model.evaluate(x, y, verbose=0, return_dict=True)["accuracy"]
    assert 100 * score == pytest.approx(json.loads((folder / "result.json").read_text())["score"], abs=1e-4)


def test_the_report_shows_the_numbers_of_the_statement(run):
    _, folder, _ = run
    page, said = html.unescape((folder / "report.html").read_text()), statement(folder)
    for claim in said["claims"][:3]:
        assert f'<span class="status {claim["status"].replace(" ", "-")}">' in page
        assert f">{rounded_up(claim['epsilon'])}</td>" in page
    assert said["meaning"] in page
    assert all(limit["text"] in page for limit in said["not_protected"])
    assert f"<b>{json.loads((folder / 'result.json').read_text())['score']:.2f} %</b>" in page
    assert all(version in page for version in said["versions"].values())
    assert "They are not private" in page


def test_no_callback_of_our_own_is_suspected_of_acting_on_metrics(run):
    _, folder, _ = run
    limits = [limit["text"] for limit in statement(folder)["not_protected"]]
    assert limits and not any("a callback" in text for text in limits)


def test_the_report_needs_nothing_from_outside(run):
    _, folder, _ = run
    page = (folder / "report.html").read_text()
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(link.startswith("#") for link in links)
    assert "@import" not in page and not re.findall(r"url\((?!#)", page) and "<script" not in page
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page


def test_a_finished_run_is_not_run_again(run):
    given, folder, _ = run
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code, printed = call(*given)
    assert code == 0 and "is finished already" in printed
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_finished_run_may_be_asked_for_while_another_process_holds_its_folder(run):
    given, folder, _ = run
    with alone_in(folder):
        code, printed = call(*given)
    assert code == 0 and "is finished already" in printed


def test_a_folder_of_other_settings_is_left_alone(run):
    given, folder, _ = run
    code, printed = call(*given, "--seed", "1")
    assert code == 2
    assert f"{folder} holds a run of other settings: seed 0 there and 1 here" in printed


def test_the_report_is_made_anew_as_it_was(run, tmp_path):
    _, folder, _ = run
    copy = tmp_path / "tiny"
    shutil.copytree(folder, copy)
    (copy / "report.html").unlink()
    shutil.rmtree(copy / "figures")
    with alone_in(copy):  # a report takes nothing away from another process
        assert call("report", copy)[0] == 0
    assert (copy / "report.html").read_text() == (folder / "report.html").read_text()
    assert len(list((copy / "figures").iterdir())) == 3


def test_training_without_privacy_says_so_loudly(tmp_path):
    given = ("run", "--method", "no-privacy-sgd", *TINY, "--folder", tmp_path, "--name", "plain")
    code, printed = call(*given)
    assert code != 0 and "clip has no effect with no-privacy-sgd: leave it out" in printed
    assert list(tmp_path.iterdir()) == []
    code, printed = call(*(part for part in given if part not in TINY[-2:]))
    assert code == 0
    assert NO_PRIVACY in printed and NO_PRIVACY in (tmp_path / "plain" / "report.html").read_text()
    assert statement(tmp_path / "plain")["epsilon"] is None


def test_noise_on_records_is_claimed_for_their_features_alone(tmp_path):
    given = (
        "run",
        "--method",
        "input-perturbation",
        "--epsilon",
        "5",
        *TINY,
        "--folder",
        tmp_path,
        "--name",
        "records",
    )
    assert call(*given)[0] == 0
    said = statement(tmp_path / "records")
    assert said["epsilon"] is None and said["claims"][0]["epsilon"] == pytest.approx(5, rel=1e-3)
    assert "epsilon, proven at delta 1e-05, of the features alone" in (tmp_path / "records" / "report.html").read_text()
    assert not (tmp_path / "records" / "released").exists()


def test_a_score_on_held_out_records_and_of_averaged_weights_says_so(tmp_path):
    given = ("run", "--method", "noisy-sgd", "--noise-multiplier", "1.5", *TINY, "--held-out", "--ema", "0.5")
    code, printed = call(*given, "--folder", tmp_path, "--name", "chosen")
    assert code == 0 and "Held-out accuracy: " in printed and "143 records" in printed
    page = (tmp_path / "chosen" / "report.html").read_text()
    assert "held-out accuracy, 143 records" in page and "test accuracy" not in page
    assert "the score above of their average" in page
