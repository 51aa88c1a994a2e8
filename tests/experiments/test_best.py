"""Our best: that a setting is chosen on held-out records with another seed, and then run on all."""

import json

import pytest

from experiments import best, papers
from experiments.papers import reproduce
from experiments.papers.reproduce import TUNING_SEED
from experiments.tasks import TASKS
from tests.experiments.conftest import call


@pytest.mark.parametrize("dataset", best.TITLES)
def test_choices_differ_in_nothing_but_how_they_train(dataset):
    study = best.named(dataset)
    assert study.name == f"best-{dataset}" and dataset in TASKS
    for row in study.rows:
        told = {
            (run.settings.dataset, run.settings.model, run.settings.epsilon, run.settings.delta) for run in row.grid
        }
        assert len(told) == (1 if row.grid else 0) and len({run.settings.name for run in row.grid}) == len(row.grid)


def test_a_trial_chooses_on_held_out_records_and_reports_others(tmp_path):
    code, printed = call("best", "imdb", "--quick", "--only", "epsilon 4", "--folder", tmp_path)
    assert code == 0, printed
    chosen, reported = (json.loads(line)["run"] for line in (tmp_path / "best-quick.jsonl").read_text().splitlines())
    assert chosen["held_out"] and chosen["seed"] == TUNING_SEED
    assert not reported["held_out"] and reported["seed"] == 0
    assert {**chosen, "held_out": False, "seed": 0} == reported
    assert "chosen among several" in (tmp_path / "best-imdb-quick" / "table.md").read_text()


def test_networks_on_wavelets_stand_beside_such_a_network():
    published = {
        (dataset, row.series.partition(", ")[2]): row.published
        for dataset in ("mnist", "cifar10")
        for row in best.named(dataset).rows
    }
    assert published == {
        ("mnist", "fixed wavelets"): 98.7,
        ("mnist", "all layers trained"): 98.1,
        ("cifar10", "fixed wavelets"): 69.3,
        ("cifar10", "all layers trained"): 66.2,
    }


@pytest.mark.parametrize(
    ("study", "text", "rows"),
    [
        (best.named("imdb"), "epsilon 1", ["epsilon 1"]),
        (best.named("imdb"), "epsilon 10.43", ["epsilon 10.43, the paper's network"]),
        (best.named("imdb"), "Epsilon", ["epsilon 1", "epsilon 4", "epsilon 10.43, the paper's network"]),
        (papers.named("gdp-table1"), "noise 0.5", ["noise 0.5"]),
    ],
)
def test_a_number_in_only_ends_where_it_ends(study, text, rows):
    assert [row.series for row in reproduce.chosen(study, [text])] == rows
