"""Time and memory are what they are said to be."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks import protocol


def test_sides_take_turns():
    order = []
    protocol.interleaved({"plain": lambda: order.append("plain"), "private": lambda: order.append("private")}, 3)
    assert order == ["plain", "private"] * 3


def test_a_resident_step_is_the_time_of_a_run_over_its_steps(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(protocol, "now", lambda: {"wall": now[0], "cpu": 2 * now[0]})

    def run(steps):
        now[0] += 0.25 + 0.002 * steps  # what a run costs beside its steps is little if they are many

    found = protocol.resident_steps({"one": run}, repeats=3, steps=1000)["one"]
    assert found["steps"] == 1000
    assert found["step_ms"]["median"] == pytest.approx(2.25)
    assert found["cpu_ms"]["median"] == pytest.approx(4.5)


@pytest.mark.skipif(not protocol.Path("/proc/self/clear_refs").exists(), reason="peaks can be forgotten on Linux only")
def test_memory_that_was_given_back_before_does_not_count():
    del (large := [np.ones(40_000_000)])[0]
    del large
    with protocol.memory_growth() as grown:
        small = np.ones(10_000_000)
    assert 70 < grown.megabytes < 120, small.nbytes


def test_a_process_that_breaks_off_is_out_of_reach_with_the_reason():
    found = protocol.attempt("point", "benchmarks.report", "no such file")
    assert "the point broke off" in found["out_of_reach"] and "no such file" in found["out_of_reach"]
    assert protocol.attempt("point", "benchmarks.report", "--help", limit=0.001) == {
        "out_of_reach": "the point took more than 0 s"
    }


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_memory_is_bounded_for_a_process_of_its_own():
    code = "import numpy as np; from benchmarks import protocol; protocol.bound_memory(0.1); np.ones(2**33)"
    done = subprocess.run([sys.executable, "-c", code], cwd=protocol.ROOT, capture_output=True, text=True, check=False)
    assert "MemoryError" in done.stderr


def test_times_of_several_processes_are_put_together():
    parts = [{name: protocol.summary_ms([s]) for name in protocol.TIMES} | {"steps": 7} for s in (1.0, 2.0, 6.0)]
    found = protocol.together(parts)
    assert found["steps"] == 7
    assert found["step_ms"]["all"] == [1000.0, 2000.0, 6000.0]
    assert found["step_ms"]["median"] == 2000.0
    assert protocol.together([*parts, {"out_of_reach": "why"}]) == {"out_of_reach": "why"}
