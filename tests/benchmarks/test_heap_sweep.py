"""The sweep notices a process that breaks, and runs what it says under the checking allocator."""

import subprocess

import pytest

from benchmarks import heap_sweep


def test_cases_are_of_layers_that_exist_and_the_same_each_time():
    for name in heap_sweep.LAYERS:
        cases = [heap_sweep.drawn(name, seed) for seed in range(50)]
        assert cases == [heap_sweep.drawn(name, seed) for seed in range(50)]
        assert len({str(case) for case in cases}) > 40


@pytest.mark.parametrize("name", ["SeparableConv2D", "Conv1DTranspose"])
def test_a_rule_runs_at_odd_sizes(name):
    heap_sweep.run(name, heap_sweep.drawn(name, 0))


def test_a_process_that_breaks_is_told_from_one_that_comes_through(monkeypatch, capsys):
    ends = iter([0, -6])

    def run(command, **_):
        return subprocess.CompletedProcess(command, next(ends), "3 the last case\n", "")

    monkeypatch.setattr(heap_sweep.subprocess, "run", run)
    assert heap_sweep.main(["--layers", "Conv1D", "Conv2D", "--cases", "1"]) == 1
    out = capsys.readouterr().out
    assert "Conv1D: 1 cases came through" in out
    assert "Conv2D: 1 cases ended with -6" in out
    assert "3 the last case" in out
