"""What is claimed of perturbed records, and what is written beside them."""

import json
import math

import dp_accounting
import numpy as np
import pytest

from tfdp.accounting import Relation, Status
from tfdp.accounting.claims import FEATURES, LABEL, MEMBERSHIP, RECORD
from tfdp.data import InputPerturbation

KEY = bytes(range(32))
DELTA = 1e-5


def claim(statement, protects):
    (found,) = [one for one in statement.claims if one.protects == protects]
    return found


def test_features_are_the_gaussian_mechanism_for_a_replaced_record():
    found = claim(InputPerturbation(4.0, clip_norm=2.0).statement(DELTA), FEATURES)
    assert (found.status, found.neighbours, found.mu) == (Status.PROVEN, Relation.REPLACE_ONE, 1.0)
    assert found.epsilon == pytest.approx(dp_accounting.get_epsilon_gaussian(1.0, DELTA), rel=1e-4)
    assert found.epsilon >= dp_accounting.get_epsilon_gaussian(1.0, DELTA) - 1e-9
    assert "keyed hash" in found.reasons[0]


def test_labels_as_they_are_leave_nothing_proven_of_the_record():
    statement = InputPerturbation(4.0).statement(DELTA)
    assert claim(statement, LABEL).status is claim(statement, RECORD).status is Status.NONE
    assert claim(statement, RECORD).epsilon == math.inf
    assert statement.epsilon is None
    assert "the same label" in str(statement)


def test_records_without_labels_are_their_features():
    statement = InputPerturbation(4.0).statement(DELTA, labelled=False)
    assert [one.protects for one in statement.claims] == [FEATURES]
    assert statement.epsilon == statement.claims[0].epsilon


def test_labels_that_were_released_are_in_the_statement():
    x, y = np.ones((3, 2), np.float32), np.arange(3)
    p = InputPerturbation(4.0)
    p.on_arrays(x)
    assert p.statement(DELTA, labelled=False).epsilon is not None
    p.on_arrays(x, y)
    with pytest.raises(ValueError, match="Records with labels were perturbed"):
        p.statement(DELTA, labelled=False)
    assert claim(p.statement(DELTA), LABEL).status is Status.NONE


def test_randomised_labels_are_composed_into_the_record():
    statement = InputPerturbation(4.0, randomized_response=0.5, classes=2).statement(DELTA)
    features, label, record = (claim(statement, one) for one in (FEATURES, LABEL, RECORD))
    assert (label.status, label.delta, label.epsilon) == (Status.PROVEN, 0.0, pytest.approx(math.log(3)))
    assert record.status is Status.PROVEN
    assert max(features.epsilon, label.epsilon) < record.epsilon < features.epsilon + label.epsilon
    assert statement.epsilon == record.epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_proven_noise_keeps_to_its_target_and_is_dp_accountings(epsilon):
    p = InputPerturbation.proven(epsilon, DELTA, clip_norm=3.0)
    assert p.stddev == pytest.approx(6 * dp_accounting.get_sigma_gaussian(epsilon, DELTA), rel=1e-4)
    assert 0.999 * epsilon < claim(p.statement(), FEATURES).epsilon <= epsilon


def test_proven_noise_pays_for_randomised_labels():
    p = InputPerturbation.proven(6.0, DELTA, randomized_response=0.5, classes=10, batch_size=32)
    assert p.statement().epsilon == pytest.approx(6.0, rel=1e-4)
    assert p.statement().epsilon <= 6.0
    with pytest.raises(ValueError, match="labels alone cost"):
        InputPerturbation.proven(1.0, DELTA, randomized_response=0.5, classes=10)


# T ln(1 / delta) = 25 * 4 = 100: the values of tests/accounting/test_perturbation.py.
PUBLISHED = {
    "eq. 9": ({"strong_convexity": 16.0}, 10.0, "excess"),
    "eq. 12": ({"pl": True}, 20.0, "excess"),
    "eq. 10": ({"sampling_rate": 0.1}, 20.0, "Taylor"),
}


@pytest.mark.parametrize("equation", PUBLISHED)
def test_the_papers_noise_comes_with_the_papers_claim_as_published(equation):
    chosen, stddev, reason = PUBLISHED[equation]
    p = InputPerturbation.as_published(0.5, math.exp(-4), steps=25, n=5, lipschitz=2.0, constant=5.0, **chosen)
    assert (p.stddev, p.clip_norm) == (pytest.approx(stddev), 1.0)
    found = claim(p.statement(), MEMBERSHIP)
    assert (found.status, found.epsilon, found.delta) == (Status.AS_PUBLISHED, 0.5, math.exp(-4))
    assert equation in found.how and reason in found.reasons[0]
    assert claim(p.statement(), FEATURES).mu == pytest.approx(2 / stddev)
    assert claim(p.statement(), FEATURES).status is Status.PROVEN
    assert p.statement().epsilon is None


@pytest.mark.parametrize("chosen", [{}, {"pl": True, "strong_convexity": 1.0}, {"pl": True, "sampling_rate": 0.1}])
def test_each_formula_is_asked_for_by_one_argument(chosen):
    with pytest.raises(ValueError, match="exactly one"):
        InputPerturbation.as_published(1.0, DELTA, steps=10, n=100, lipschitz=1.0, **chosen)


def test_a_word_is_no_choice_of_a_formula():
    with pytest.raises(ValueError, match="pl must be True or False"):
        InputPerturbation.as_published(1.0, DELTA, steps=10, n=100, lipschitz=1.0, pl="no")


def test_the_papers_small_noise_proves_nothing():
    """The noise ends before it hides a record: its support alone tells records apart."""
    p = InputPerturbation.as_published(0.25, DELTA, steps=100, n=45222, lipschitz=1.0, pl=True)
    found = claim(p.statement(), FEATURES)
    assert (found.status, found.epsilon) == (Status.NONE, math.inf)
    assert "too small to hide a record" in found.reasons[0]


def test_the_end_of_the_noise_is_paid_for():
    """At mu = 4 a draw may land beyond the end of a neighbour's noise: exp(-(10.197 - 4)^2 / 2) = 4.6e-9 of delta 1e-8."""
    found = claim(InputPerturbation(0.5).statement(1e-8), FEATURES)
    assert found.status is Status.PROVEN
    assert found.epsilon == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / 4, 5.4e-9), rel=1e-3)
    with pytest.raises(ValueError, match="its end"):
        InputPerturbation.proven(30.0, DELTA)


def test_without_noise_nothing_is_claimed():
    found = claim(InputPerturbation(0.0).statement(DELTA), FEATURES)
    assert (found.status, found.epsilon) == (Status.NONE, math.inf)


def test_a_bare_transform_needs_a_delta():
    with pytest.raises(ValueError, match="Give delta="):
        InputPerturbation(1.0).statement()
    with pytest.raises(ValueError, match="delta must"):
        InputPerturbation(1.0).statement(0.0)


def test_the_statement_in_words_and_for_machines():
    statement = InputPerturbation(4.0, clip_norm=2.0, randomized_response=0.25, classes=10, key=KEY).statement(DELTA)
    text = str(statement)
    assert max(map(len, text.splitlines())) <= 100
    for part in ("l2 norm of at most 2", "standard deviation 4", "probability 0.75", "all 10 public classes"):
        assert part in " ".join(text.split())
    stored = json.loads(statement.to_json())
    assert stored["epsilon"] == statement.epsilon
    assert [one["status"] for one in stored["claims"]] == ["proven"] * 3
    assert {one["id"] for one in stored["not_protected"]} >= {"key", "other_releases", "unperturbed_records"}
    assert KEY.hex() not in statement.to_json() + text


X = {"image": np.ones((50, 2, 2), np.float32), "more": [np.zeros((50, 3), np.float16)]}
Y = np.arange(50)


class TestWrite:
    def test_the_records_are_in_files_with_their_statement(self, tmp_path):
        p = InputPerturbation(1.0, key=KEY)
        folder = p.write(tmp_path / "private", X, Y, delta=DELTA)
        names = {"x.image.npy", "x.more.0.npy", "y.npy", "statement.txt", "statement.json"}
        assert {file.name for file in folder.iterdir()} == names
        x, y = p.on_arrays(X, Y)
        assert np.array_equal(np.load(folder / "x.image.npy"), x["image"])
        assert np.array_equal(np.load(folder / "x.more.0.npy"), x["more"][0])
        assert np.array_equal(np.load(folder / "y.npy"), y)
        assert (folder / "statement.txt").read_text() == f"{p.statement(DELTA)}\n"
        assert json.loads((folder / "statement.json").read_text())["delta"] == DELTA
        assert not any(secret in file.read_bytes() for file in folder.iterdir() for secret in (KEY, KEY.hex().encode()))

    def test_a_folder_with_files_is_left_alone(self, tmp_path):
        (tmp_path / "x.npy").write_text("mine")
        with pytest.raises(ValueError, match="not empty"):
            InputPerturbation(1.0).write(tmp_path, X, delta=DELTA)
        assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]

    def test_records_that_turn_out_bad_leave_an_empty_folder(self, tmp_path):
        x = np.ones((200, 3), np.float32)
        x[150] = np.nan
        p = InputPerturbation(1.0)
        with pytest.raises(ValueError, match="not finite"):
            p.write(tmp_path, x, np.zeros(200), delta=DELTA)
        assert not list(tmp_path.iterdir())
        x[150] = 1.0
        assert np.load(p.write(tmp_path, x, np.zeros(200), delta=DELTA) / "x.npy").all()

    def test_nothing_is_written_of_records_that_cannot_be_perturbed(self, tmp_path):
        with pytest.raises(ValueError, match="int64"):
            InputPerturbation(1.0).write(tmp_path / "new", Y, delta=DELTA)
        with pytest.raises(ValueError, match="Give delta="):
            InputPerturbation(1.0).write(tmp_path / "new", X)
        assert not (tmp_path / "new").exists()
