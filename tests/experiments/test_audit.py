"""`train.py audit`: what it finds in a finished run, and that it keeps it."""

import json
import shutil

import keras
import numpy as np
import pytest
from sklearn import metrics

import tfdp
from experiments import audit, folder_lock
from experiments.folder_lock import alone_in
from tests.audit.conftest import layers_count_as_proved  # noqa: F401
from tests.experiments.conftest import call
from tfdp.accounting import Ledger

pytestmark = pytest.mark.usefixtures("layers_count_as_proved")


@pytest.fixture
def audited(run, tmp_path):
    shutil.copytree(run[1], tmp_path / "tiny")
    return tmp_path / "tiny"


def found(folder) -> dict:
    return json.loads((folder / audit.FILE).read_text())


def test_canaries_are_audited_at_the_price_of_the_run_and_nothing_is_done_twice(audited):
    given = "audit", audited, "--canaries", "40"
    code, printed = call(*given)
    assert code == 0, printed
    (one,) = found(audited)["canaries"]
    ledger = Ledger.poisson(sampling_rate=50 / 200, noise_multiplier=1.5, steps=8)  # the run's own
    assert one["proven_epsilon"] == pytest.approx(tfdp.accounting.epsilon(ledger, delta=1e-5), rel=1e-3)
    assert (one["attack"], one["canaries"], one["seed"], one["guesses"]) == ("gradient", 40, 0, 30)
    assert 0 <= one["epsilon_lower_bound"] <= one["proven_epsilon"]
    assert f"{one['correct']} of 30 guesses about 40 canaries" in printed and "does not refute" in printed
    assert "is proven, at delta = 1e-05." in printed and "as published" not in printed
    written = (audited / audit.FILE).stat().st_mtime_ns
    assert call(*given) == (code, printed)
    with alone_in(audited):  # to read is harmless
        assert call(*given) == (code, printed)
    assert (audited / audit.FILE).stat().st_mtime_ns == written


def test_members_are_the_runs_training_records(audited):
    code, printed = call("audit", audited, "--attack", "black-box", "--canaries", "30")
    assert code == 0, printed
    content = found(audited)
    assert content["canaries"][0]["attack"] == "black-box"
    train, test = tfdp.data.load("digits")
    model = keras.models.load_model(audited / "model.keras")
    losses = [
        -np.log(keras.ops.softmax(model.predict(x, verbose=0)).numpy()[np.arange(len(y)), y])
        for x, y in ((train[0][:200], train[1][:200]), test)
    ]
    members = np.repeat([1, 0], [200, len(test[1])])
    assert content["membership"]["auc"] == pytest.approx(
        metrics.roc_auc_score(members, -np.concatenate(losses)), abs=1e-3
    )
    assert "no attack finds more than" in printed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--attack", "grey-box"), "There is no attack 'grey-box'. There are gradient, mislabelled, black-box"),
        (("--canaries", "0"), "canaries must be at least 1"),
        (("--canaries", "100000000"), "at most 100,000 here, not 100,000,000"),
        (("--seed", "-1"), "seed must be at least 0"),
        (("--attack", "mislabelled", "--canaries", "201"), "200 records only"),
    ],
)
def test_wrong_arguments_leave_nothing_behind(audited, given, message):
    code, printed = call("audit", audited, *given)
    assert code == 2 and message in printed
    assert not (audited / audit.FILE).exists()


def test_a_second_audit_of_one_folder_is_refused(audited):
    with alone_in(audited):
        code, printed = call("audit", audited)
    assert code == 1 and f"another process is at work in {audited}. Wait until it has ended." in printed
    assert not (audited / audit.FILE).exists()


def test_a_folder_that_cannot_be_written_to_is_found_before_anything_is_computed(audited, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(folder_lock, "_locked", denied)
    monkeypatch.setattr(audit, "_completed", None)
    code, printed = call("audit", audited)
    assert code == 1 and f"Permission denied: '{audited / folder_lock.FILE}'" in printed


def test_a_folder_without_a_finished_run(tmp_path):
    code, printed = call("audit", tmp_path)
    assert code == 2 and "is not the folder of a finished run" in printed
