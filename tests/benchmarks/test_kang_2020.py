"""What the studies of Kang et al. 2020 share."""

import numpy as np
import pytest

from benchmarks import kang_2020
from benchmarks.kang_2020 import Family
from experiments.convex import Case
from experiments.papers.reproduce import proven
from experiments.statements import stated
from experiments.tasks import TASKS
from tfdp.erm import PrivateLogisticRegression


def small_case(records: int = 400) -> Case:
    """Two classes, which the first of three features tells apart; a quarter are test records."""
    random = np.random.default_rng(0)
    x = random.normal(size=(records, 3)).astype("f4")
    y, train = (x[:, 0] > 0).astype("i4"), 3 * records // 4
    return Case(x[:train], y[:train], x[train:], y[train:], TASKS["iris"].feature_norm)


def study(module, folder, monkeypatch, *arguments):
    """Runs the module's study of a small case under the name of iris; the file of results."""
    case, file = small_case(), folder / "out" / "results.jsonl"
    np.savez(folder / "iris.npz", x_train=case.x, y_train=case.y, x_test=case.x_test, y_test=case.y_test)
    given = ["study", "--data-dir", str(folder), "--cases", "iris", "--json", str(file), *arguments]
    monkeypatch.setattr("sys.argv", [module.__name__, *given])
    module.main()
    return file


class Fake:
    """A family whose accuracy is known: best at a value of 2 below epsilon 1, and of 3 above."""

    __name__ = "fake"

    def __init__(self):
        self.calls = []

    def run(self, case, method, epsilon, value, with_gap):
        self.calls.append((method, epsilon, value, len(case.y), with_gap))
        accuracy = 90.0 - 10 * abs(value - (2 if epsilon < 1 else 3))
        return {"accuracy": accuracy, "proven": "none" if epsilon > 1 else f"{epsilon:g}", "gap": 0.25}

    def main(self):
        family = Family({"tuned": (1.0, 2.0, 3.0), "fixed": (1.0,)}, self.run, lambda case: {"accuracy": 95.0})
        kang_2020.main(family, "benchmarks.fake", "About.")


def test_a_number_is_tuned_at_the_nearest_epsilon_on_held_out_records_and_used_for_all_runs(tmp_path, monkeypatch):
    fake = Fake()
    arguments = ["--epsilons", "0.05", "0.5", "7", "--tuning-epsilons", "0.1", "7", "--runs", "2"]
    study(fake, tmp_path, monkeypatch, *arguments)
    tuning = [call for call in fake.calls if not call[4]]
    assert [call[1:4] for call in tuning] == [(e, v, 270) for e in (0.1, 7.0) for v in (1, 2, 3) for _ in range(3)]
    finals = [call[:3] for call in fake.calls if call[4] and call[0] == "tuned"]
    assert finals == [("tuned", e, v) for e, v in ((0.05, 2), (0.5, 2), (7.0, 3)) for _ in range(2)]


def test_the_table_has_a_row_a_method_with_what_is_proven(tmp_path, monkeypatch, capsys):
    fake = Fake()
    file = study(fake, tmp_path, monkeypatch, "--epsilons", "0.5", "7", "--runs", "2")
    study(fake, tmp_path, monkeypatch, "--epsilons", "7", "--runs", "3", "--methods", "fixed")
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["fake", "table", "--json", str(file)])
    fake.main()
    assert capsys.readouterr().out.splitlines() == [
        "iris",
        "",
        "| method | proven | 0.5 | 7 |",
        "| --- | --- | --- | --- |",
        "| no privacy | none | 95.0 |  |",
        "| tuned | 0.5, none | 90.0 (0.25), 2 of 3 runs | 90.0 (0.25), 2 of 3 runs |",
        "| fixed | 0.5, none | 80.0 (0.25), 2 of 3 runs | 70.0 (0.25) |",
    ]


def test_what_is_proven_is_short_where_it_is_what_was_asked_for():
    def column(*proves):
        return kang_2020.proven_of([0.1, 1.0], [[{"proven": one}] if one else None for one in proves])

    assert column("0.1", "0.99") == "as nominal"
    assert column("features 0.1", "features 1") == "features as nominal"
    assert column(None, "1") == "as nominal"
    assert column("none", "none") == "none"
    assert column("features 3.5", "none") == "features 3.5, none"
    assert column("0.1", "0.5") == "0.1, 0.5"


def test_a_statement_is_shown_with_what_is_proven_of_whom():
    case = small_case()
    published = {"method": "input", "as_published": True, "steps": 10}
    for arguments, shown in (({"method": "output"}, "2"), ({"method": "input"}, "features 2"), (published, "none")):
        model = PrivateLogisticRegression(**arguments, epsilon=2.0).fit(case.x, case.y)
        assert proven([{"statement": stated(model.statement_)}]) == shown


@pytest.mark.parametrize(("size", "delta", "lot"), [(300, 1e-3, 28), (40_000, 1e-5, 2048)])
def test_delta_and_lot_follow_from_the_number_of_records(size, delta, lot):
    case = small_case(size)
    assert (case.delta, case.lot) == (1e-3 if size == 300 else delta, lot)
    assert case.delta < 1 / len(case.y)


def test_randomized_labels_take_half_of_epsilon():
    """Two classes: keep with probability 1 - p / 2, so epsilon is ln((1 - p / 2) / (p / 2))."""
    share = small_case().label_noise(3.0)
    assert np.log((1 - share / 2) / (share / 2)) == pytest.approx(1.5)
