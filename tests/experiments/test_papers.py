"""The papers' tables and figures: that they are declared, and a trial of one of each paper."""

import json

import pytest

from experiments import papers
from experiments.papers import bu_2019, kang, reproduce
from experiments.papers.study import Computation
from tests.experiments.conftest import call
from tfdp.accounting import Ledger, epsilon, gdp_epsilon, gdp_mu


@pytest.mark.parametrize("name", papers.TITLES)
def test_every_name_has_a_study(name):
    study = papers.named(name)
    assert study.name == name
    assert isinstance(study, Computation) or len(study.rows) > 1


@pytest.mark.parametrize("row", bu_2019.MNIST, ids=str)
def test_the_settings_of_table_1_give_the_papers_own_epsilon(row):
    _, _, noise, epochs, _, mu, epsilon, _ = row
    found = gdp_mu(sampling_rate=bu_2019.MNIST_RATE, noise_multiplier=noise, steps=epochs * 60_000 // 256)
    assert found == pytest.approx(mu, abs=0.01)
    assert gdp_epsilon(found, 1e-5) == pytest.approx(epsilon, rel=0.03)


def test_tables_of_one_paper_share_runs_and_rows_are_not_twice_in_a_study():
    for name in papers.TITLES:
        study = papers.named(name)
        if not isinstance(study, Computation):
            places = [(row.panel, row.series, row.x) for row in study.rows]
            assert len(set(places)) == len(places), name


# Of each paper one that trains, as far as there is one that does so in seconds.
TRIALS = [
    ("gdp-table2", ()),
    ("gdp-figure2", ()),
    ("directional-figure4", ("--only", "MNIST Gaussian")),
    ("encoding-figure6", ()),
    ("data-perturbation-figure1", ("--only", "adult, logistic regression bolt-on sgd 0.01")),
    (
        "input-perturbation-figure3",
        ("--only", "adult, one hidden layer input, as published 0.25", "adult, one hidden layer no privacy"),
    ),
]


@pytest.mark.parametrize(("name", "more"), TRIALS, ids=[name for name, _ in TRIALS])
def test_a_trial_prints_and_writes_table_figure_and_report(name, more, tmp_path):
    code, printed = call("paper", name, "--quick", *more, "--folder", tmp_path)
    assert code == 0, printed
    folder = tmp_path / f"{name}-quick"
    table = (folder / "table.md").read_text()
    assert table in printed and "A trial" in table
    assert (folder / "figures" / "figure.png").stat().st_size > 1000
    assert "A trial" in (folder / "report.html").read_text()
    for file in tmp_path.glob("*.jsonl"):
        assert all("score" in json.loads(line) for line in file.read_text().splitlines())


def test_the_paper_stands_beside_ours_with_nominal_and_proven_epsilon(tmp_path):
    study = papers.named("gdp-table1")
    rows = study.rows[:1]
    statement = {"epsilon": 0.8646, "delta": 1e-5, "claims": []}
    record = {"metric": "accuracy", "score": 94.9, "seconds": 60.0, "cpu_seconds": 60.0, "statement": statement}
    found = reproduce._found(study, rows, [[record, record | {"score": 95.3}]], False, True, "command")
    told = dict(zip(found.columns, found.rows[0], strict=True))
    assert told["paper: accuracy, %"] == "95"
    assert (told["ours: accuracy, %"], told["lowest to highest"], told["runs"]) == ("95.1", "94.9 to 95.3", "2")
    assert (told["nominal epsilon"], told["proven epsilon"]) == ("0.83", "0.8646")


def test_pruned_noise_as_published_takes_its_steps_though_nothing_is_proven_of_them(tmp_path):
    code, printed = call(
        "paper", "directional-figure5", "--quick", "--only", "SVHN w = 1, as published 64", "--folder", tmp_path
    )
    assert code == 0, printed
    (record,) = (json.loads(line) for line in next(tmp_path.glob("*.jsonl")).read_text().splitlines())
    statuses = {claim["status"] for claim in record["statement"]["claims"]}
    assert record["statement"]["epsilon"] is None and "as published" in statuses
    run = record["run"]
    planned = run["epochs"] * -(-record["records"] // run["batch_size"])
    assert sum(line["steps"] for line in record["statement"]["ledger"]["lines"]) == planned > 0


def test_figure_4_prices_what_was_run():
    row = papers.named("gdp-figure4").rows[0]
    ledger = Ledger.poisson(sampling_rate=0.1, noise_multiplier=2.0, steps=7)
    record = {"statement": {"ledger": json.loads(ledger.to_json()), "delta": 1e-5}}
    spent = {name: epsilon(ledger, delta=1e-5, accountant=name) for name in ("gdp", "moments")}
    assert bu_2019._figure4_column(row, [record]) == f"CLT {spent['gdp']:.2f}, MA {spent['moments']:.2f}"


def test_bounds_are_rounded_so_that_they_stay_bounds():
    assert (bu_2019._up(5.6471, 3), bu_2019._down(7.79, 1)) == ("5.648", "7.7")


def test_a_time_is_the_median_of_the_runs():
    study = papers.named("directional-table2")
    records = [{"metric": study.measure, "step_ms": ms, "cpu_seconds": 1.0} for ms in (30.0, 31.0, 90.0)]
    found = reproduce._found(study, study.rows[:1], [records], False, True, "command")
    told = dict(zip(found.columns, found.rows[0], strict=True))
    assert (told["ours: milliseconds a step"], told["lowest to highest"]) == ("31.0", "30.0 to 90.0")


def test_nothing_is_called_proven_that_is_not():
    features = {"protects": "the features of a record in the released data", "status": "proven", "epsilon": 2.0}
    none = {"epsilon": None, "claims": [features | {"status": "none"}]}
    some = {"epsilon": 1.0, "claims": []}
    assert reproduce.proven([{"statement": {"epsilon": None, "claims": [features]}}]) == "features 2"
    assert reproduce.proven([{"statement": some}, {"statement": none}]) == "none"
    assert reproduce.proven([{"statement": some}, {"statement": some | {"epsilon": 1.5}}]) == "1.5"


def test_delta_is_the_same_for_every_method_of_kangs_small_sets():
    """The convex methods take the largest power of ten below 1 / (number of records) of their own accord."""
    records = {
        "kddcup99": 56_000,
        "adult": 32_561,
        "bank": 32_950,
        "breast_cancer": 559,
        "creditcard": 787,
        "iris": 120,
    }
    for dataset, size in records.items():
        assert kang.delta(dataset) == float(f"1e-{len(str(size))}"), dataset


def test_pruning_ratios_are_compared_in_the_lots_of_table_1():
    study = papers.named("directional-figure5")
    lots = {row.run.settings.batch_size for row in study.rows if row.panel == "CIFAR-10 by pruning ratio"}
    assert lots == {256}


def test_without_noise_the_papers_accuracies_stand_beside_ours():
    rows = [row for row in papers.named("directional-figure3").rows if row.series == "unperturbed"]
    assert {row.panel: row.published for row in rows} == {"MNIST": 98.32, "SVHN": 93.01, "CIFAR-10": 91.43}
    assert {row.nominal for row in rows} == {None}


def test_input_perturbation_stands_beside_the_papers_own_baselines():
    methods = {row.series for row in papers.named("input-perturbation-figure4").rows}
    assert {"objective", "gradient descent", "gradient", "gradient, all records"} <= methods
