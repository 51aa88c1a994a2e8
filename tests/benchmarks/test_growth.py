"""Every point has its say, whether it comes about or not."""

import json
import subprocess
import sys

from benchmarks import growth, protocol, tables


def test_a_point_gives_memory_and_time_of_one_side():
    """In a process of its own: one that has held more before does not grow."""
    point = 'growth.point("width", 64, "private", growth.arguments(["--steps", "2", "--repeats", "3"]))'
    command = f"import json; from benchmarks import growth; print(json.dumps({point}))"
    told = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True, timeout=300)
    found = json.loads(told.stdout.splitlines()[-1])
    assert found["steps"] == 2
    assert len(found["step_ms"]["all"]) == 3
    assert found["weights"] == 65 * 64 + 65 * 64 + 65 * 10
    assert found["memory_mb"] > 0


def test_a_point_that_fails_says_why(monkeypatch):
    def fail(*_):
        raise MemoryError("Unable to allocate 1.00 TiB")

    monkeypatch.setattr(protocol, "bound_memory", lambda share: None)
    monkeypatch.setattr(growth.sides, "memory", fail)
    found = growth.point("width", 64, "plain", growth.arguments([]))
    assert found == {"out_of_reach": "MemoryError: Unable to allocate 1.00 TiB"}


def test_after_a_point_out_of_reach_the_others_are_measured(tmp_path, monkeypatch):
    """Times that grow with the square, and a private side that has no memory from 1024 neurons on."""

    def attempt(what, module, *child, limit):
        value, side = child[-2:]
        if side == "private" and int(value) >= 1024:
            return {"out_of_reach": "no memory"}
        return {"step_ms": protocol.summary_ms([1e-6 * int(value) ** 2]), "memory_mb": 1.0}

    monkeypatch.setattr(protocol, "attempt", attempt)
    file = tmp_path / "growth.json"
    growth.main(["--axes", "width", "--json", str(file)])
    _, entries = protocol.read(file)
    assert [one.status for one in entries] == ["measured"] * 5 + ["out of reach", "measured", "out of reach"]
    assert "2.00, 2.00" in tables.growth(entries)
    assert tables.growth(entries).count("out of reach: no memory") == 2


def test_a_child_without_memory_is_out_of_reach():
    """It may take a ten-thousandth of what is free: whatever breaks then, the parent gets a reason."""
    child = ["--share", "0.0001", "--steps", "1", "--point", "width", "64", "plain"]
    found = protocol.attempt("point", "benchmarks.growth", *child, limit=100)
    assert set(found) == {"out_of_reach"}, json.dumps(found)
