"""The tables say what the entries do."""

import dataclasses

import pytest

from benchmarks import plots, protocol, report, tables
from benchmarks.protocol import Entry


def measured(library, method, milliseconds, workload="cnn@256", how="resident", **more):
    times = dict.fromkeys(("median", "low", "high", "least"), milliseconds) | {"all": [milliseconds]}
    return Entry(workload, library, method, "sgd", how, step_ms=times, cpu_ms=times, **more)


def rows(table):
    """The cells under each column, a dict for each row."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def four_sides():
    return [
        measured("keras", "plain", 2.0, how="jit"),
        measured("tfdp", "private", 3.0, how="jit"),
        measured("keras", "plain, XLA", 1.0, how="jit"),
        measured("tfdp", "private, XLA", 2.5, how="jit"),
    ]


def test_a_ratio_is_to_the_plain_side_of_the_same_framework():
    entries = [measured("keras", "plain", 2.0), measured("tfdp", "private", 3.0), measured("opacus", "plain", 4.0)]
    entries.append(measured("opacus", "ghost", 10.0))
    assert [tables.ratio(one, entries) for one in entries] == [None, 1.5, None, 2.5]


def test_what_xla_compiled_is_compared_with_plain_that_xla_compiled_and_with_plain():
    (row,) = rows(tables.jit(four_sides()))
    assert row["private / plain"] == "1.50"
    assert row["private, XLA / plain, XLA"] == "2.50"
    assert row["private, XLA / plain"] == "1.25"
    assert tables.ratio(four_sides()[3], four_sides()) == 2.5


def test_both_sides_stand_in_a_row():
    plain, private = measured("keras", "plain", 2.0, memory_mb=10.0), measured("tfdp", "private", 3.0, memory_mb=20.0)
    (row,) = rows(tables.sides([plain, private]))
    assert (row["ratio"], row["plain, MB"], row["private, MB"]) == ("1.50", "10", "20")
    assert "a fit plain, ms" not in row  # nothing was measured


def test_what_is_out_of_reach_is_in_the_table_with_its_reason():
    lost = measured("tf-privacy", "registry", 1.0)
    lost.fill({"out_of_reach": "no rule for Conv2D"})
    assert "out of reach: no rule for Conv2D" in tables.every_method([lost])
    assert "out of reach: no rule for Conv2D" in tables.growth(
        [dataclasses.replace(lost, library="tfdp", workload="lot 8", method="private")]
    )


def test_the_exponent_of_a_power_is_found():
    entries = []
    for value in (8, 32, 128):
        entries.append(measured("keras", "plain", 0.5 * value, f"lot {value}", "growth", memory_mb=2.0))
        entries.append(measured("tfdp", "private", 0.1 * value**2, f"lot {value}", "growth"))
    entries.append(measured("keras", "plain", 1.0, "width 8", "growth"))
    found = rows(tables.growth(entries))
    assert [row["exponents"] for row in found] == ["", "1.00, 2.00", "1.00, 2.00", ""]
    assert found[1]["exponents of memory"] == "0.00, ?"


def test_large_lots_are_compared_by_the_example():
    small = measured("tfdp", "private", 10.0, "cnn@256", "physical", lot=256, memory_mb=100.0)
    name = "private, max_physical_batch=256"
    large = measured("tfdp", name, 352.0, "cnn@8192", "physical", lot=8192, memory_mb=110.0)
    first, second = rows(tables.physical([small, large]))
    assert first["an example, ms"] == "0.0391"
    assert second["max_physical_batch"] == "256"
    table = tables.physical([small, large]).splitlines()[-1]
    assert "1.10" in table  # both ratios: 352 / 8192 over 10 / 256, and 110 over 100
    assert table.count("1.10") == 2


def test_padding_and_the_share_of_the_step_stand_beside_the_lots():
    step, lots = measured("tfdp", "training step", 16.0, how="drawing"), measured("tfdp", "lots", 0.5, how="drawing")
    found = rows(tables.drawing([step, dataclasses.replace(lots, padding=0.065)]))[1]
    assert (found["share of training"], found["padding"]) == ("3.1 %", "6.5 %")


def test_an_epoch_lasts_its_steps():
    entries = [
        measured("tfdp", "in memory", 2.0, how="epoch", steps=500),
        measured("tfdp", "memory map", 2.2, how="epoch", steps=500),
    ]
    assert [row["an epoch, s"] for row in rows(tables.epoch(entries))] == ["1", "1.1"]
    assert rows(tables.epoch(entries))[1]["ratio"] == "1.10"


def test_the_fastest_method_of_each_peer_stands_beside_ours():
    entries = [measured("keras", "plain", 2.0), measured("tfdp", "private", 3.0, memory_mb=5.0)]
    entries += [
        measured("opacus", "plain", 1.0),
        measured("opacus", "hooks", 9.0),
        measured("opacus", "ghost", 6.0, memory_mb=8.0),
    ]
    lost = measured("jax-privacy", "vmap", 1.0)
    lost.fill({"out_of_reach": "memory"})
    (row,) = rows(tables.peers([*entries, lost]))
    assert (row["plain Keras, ms"], row["tfdp, ms"]) == ("2", "3")
    assert row["opacus, ms"] == "6 (ghost)"
    assert row["jax-privacy, ms"] == "out of reach"
    assert row["fastest peer / tfdp"] == "2.00"
    assert (row["tfdp, MB"], row["fastest peer, MB"]) == ("5", "8")


@pytest.fixture
def files(tmp_path):
    """What three scripts wrote."""
    options = protocol.parser("here", None, 1).parse_args
    growing = [measured("keras", "plain", 1.0 * v, f"lot {v}", "growth", memory_mb=1.0) for v in (8, 16)]
    growing += [measured("tfdp", "private", 2.0 * v, f"lot {v}", "growth", memory_mb=2.0) for v in (8, 16)]
    written = {
        "resident": [measured("keras", "plain", 2.0), measured("tfdp", "private", 3.0)],
        "opacus": [measured("opacus", "ghost", 6.0)],
        "rest": four_sides() + growing,
    }
    for name, entries in written.items():
        protocol.Results(options(["--json", str(tmp_path / name)]), ["numpy"]).add(*entries)
    return [str(tmp_path / name) for name in written]


def test_a_file_gives_back_the_entries_that_were_written(files):
    about, entries = protocol.read(files[0])
    assert entries == [measured("keras", "plain", 2.0), measured("tfdp", "private", 3.0)]
    assert about["clock"] == "wall" and about["machine"]["packages"].keys() == {"numpy"}


def test_each_section_holds_its_own_entries(files):
    found = report.contents(files)
    assert set(found) == {"resident", "peers", "jit", "growth"}
    assert {one.library for one in found["resident"][0]} == {"keras", "tfdp"}
    assert {one.library for one in found["peers"][0]} == {"keras", "tfdp", "opacus"}
    assert "peers" not in report.contents(files[:1])


def test_the_page_gets_tables_and_plots(files, tmp_path):
    report.main([*files, "--write-docs"], tmp_path / "docs")
    page = (tmp_path / "docs" / "performance.md").read_text()
    assert "| cnn@256 | sgd | 2 | 3 | 6 (ghost) | 2.00 |" in page
    assert "1.00, 1.00" in page
    for name in ("resident", "peers", "jit", "growth"):
        assert f"<!-- {name}: written by benchmarks -->" in page
        if plots.pyplot is not None:
            assert f"(performance-{name}.png)" in page
            assert (tmp_path / "docs" / f"performance-{name}.png").stat().st_size > 1000


def test_a_section_of_the_docs_is_replaced_and_the_rest_stays(tmp_path):
    report.write_section("fit", "old", tmp_path)
    page = tmp_path / "performance.md"
    page.write_text(page.read_text() + "\nwritten by hand\n")
    report.write_section("fit", "new", tmp_path)
    text = page.read_text()
    assert "new" in text and "old" not in text and "written by hand" in text
