"""The suite of real models: what the runner measures, what it keeps, and that the page is of the models that there are."""

import json
import re

import pytest

from benchmarks import protocol
from benchmarks.real_models import __main__ as runner
from benchmarks.real_models import page
from benchmarks.real_models.catalogue import all_models

SMALL = ["fraud", "brain_waves"]  # the second has regularisers of weights


@pytest.fixture
def in_this_process(monkeypatch):
    """Parts that are counted, run without a process of their own."""
    run = []

    def attempt(what, module, flag, part, kind, name, limit):
        assert (module, flag) == ("benchmarks.real_models", "--part")
        run.append((part, name))
        return runner.part(part, all_models()[name])

    monkeypatch.setattr(protocol, "attempt", attempt)
    return run


def test_a_run_compares_with_brute_force_keeps_what_it_found_and_goes_on_from_there(in_this_process, tmp_path):
    file = tmp_path / "found.jsonl"
    given = ["--jsonl", str(file), "--parts", "exact", "--models", *SMALL]
    assert runner.main(given, docs=tmp_path) == 0
    assert runner.main([*given, "--write-docs"], docs=tmp_path) == 0  # nothing is left to do but the page
    assert in_this_process == [("exact", name) for name in SMALL]
    for name, found in runner.read(file).items():
        assert found["exact"]["slow"] == [], name
        assert max(found["exact"][how] for how in ("joint", "unclipped", "clipped")) < 1e-4
    assert "2 were compared with brute force: 2 within" in (tmp_path / "models.md").read_text()


def test_costs_are_of_both_sides(in_this_process, tmp_path):
    runner.main(["--jsonl", str(tmp_path / "found.jsonl"), "--parts", "cost", "--models", SMALL[0]])
    cost = json.loads((tmp_path / "found.jsonl").read_text())["cost"]
    assert cost["step_ms"].keys() == cost["first_fit_s"].keys() == {"plain", "private"}
    assert all(cost[name][side] > 0 for name in ("step_ms", "first_fit_s") for side in ("plain", "private"))


def test_what_breaks_off_is_a_remark_and_no_end(monkeypatch, tmp_path):
    monkeypatch.setattr(
        protocol, "in_a_process_of_its_own", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("ended with -6"))
    )
    runner.main(["--jsonl", str(tmp_path / "found.jsonl"), "--parts", "exact", "--models", *SMALL])
    found = runner.read(tmp_path / "found.jsonl")
    assert list(found) == SMALL
    assert "ended with -6" in page.row(all_models()[SMALL[0]], found[SMALL[0]])[-1]


def test_the_page_has_a_row_for_each_model_of_the_suite_and_no_other():
    rows = re.findall(r"^\| (\w+) \| (.+?) \|", (page.DOCS / "models.md").read_text(), re.MULTILINE)
    wanted = [(model.name, model.example) for model in all_models().values()]
    assert [row for row in rows if row[0] != "model"] == wanted
    assert len(wanted) >= 60
