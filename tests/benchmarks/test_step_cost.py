"""The scripts run, and compare a private step with a plain one."""

import pytest

from benchmarks import growth, report, step_cost, workloads
from benchmarks.protocol import Entry


@pytest.mark.parametrize("how", [step_cost.resident_cost, step_cost.fit_cost])
def test_both_sides_are_measured(how):
    plain, private = how(workloads.get("mlp@8"), "sgd", 4, 1)
    assert (plain.library, private.library) == ("keras", "tfdp")
    assert report.ratio(private, [plain, private]) is not None
    assert len(private.step_ms["all"]) == 1


@pytest.mark.parametrize("script", [step_cost, growth, report])
def test_every_script_has_help(script, capsys):
    with pytest.raises(SystemExit) as ended:
        script.main(["--help"])
    assert ended.value.code == 0
    assert "usage: python -m benchmarks." in capsys.readouterr().out


def measured(library, method, milliseconds):
    summary = dict.fromkeys(("median", "low", "high", "least"), milliseconds) | {"all": [milliseconds]}
    return Entry("cnn@256", library, method, "sgd", "resident", step_ms=summary)


def test_a_ratio_is_to_the_plain_side_of_the_same_framework():
    entries = [measured("keras", "plain", 2.0), measured("tfdp", "factored", 3.0), measured("opacus", "plain", 4.0)]
    entries.append(measured("opacus", "ghost", 10.0))
    assert [report.ratio(one, entries) for one in entries] == [None, 1.5, None, 2.5]


def test_what_is_out_of_reach_is_in_the_table_with_its_reason():
    lost = Entry(
        "cnn@256", "tf-privacy", "registry", "sgd", "resident", status="out of reach", reason="no rule for Conv2D"
    )
    assert "out of reach: no rule for Conv2D" in report.table([lost])


def test_a_section_of_the_docs_is_replaced_and_the_rest_stays(tmp_path):
    report.write_section("fit", "old", tmp_path)
    page = tmp_path / "performance.md"
    page.write_text(page.read_text() + "\nwritten by hand\n")
    report.write_section("fit", "new", tmp_path)
    text = page.read_text()
    assert "new" in text and "old" not in text and "written by hand" in text
