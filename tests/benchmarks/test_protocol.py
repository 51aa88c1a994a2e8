"""Time and memory are what they are said to be."""

import numpy as np
import pytest

from benchmarks import protocol


def test_sides_take_turns():
    order = []
    protocol.interleaved({"plain": lambda: order.append("plain"), "private": lambda: order.append("private")}, 3)
    assert order == ["plain", "private"] * 3


def test_a_resident_step_is_the_time_of_a_run_over_its_steps(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(protocol.time, "perf_counter", lambda: now[0])

    def run(steps):
        now[0] += 0.25 + 0.002 * steps  # what a run costs beside its steps is little if they are many

    (summary, taken) = protocol.resident_steps({"one": run}, repeats=3, steps=1000)["one"]
    assert taken == 1000
    assert summary["median"] == pytest.approx(2.25)


@pytest.mark.skipif(not protocol.Path("/proc/self/clear_refs").exists(), reason="peaks can be forgotten on Linux only")
def test_memory_that_was_given_back_before_does_not_count():
    del (large := [np.ones(40_000_000)])[0]
    del large
    with protocol.memory_growth() as grown:
        small = np.ones(10_000_000)
    assert 70 < grown.megabytes < 120, small.nbytes
