"""Lots are counted as they are drawn; the memory map holds what it should, and goes away."""

import os

import numpy as np
import pytest

from benchmarks import input_cost, protocol
from tfdp.data import PoissonBatches


def test_padding_is_the_share_of_rows_that_are_not_records():
    x = np.ones((400, 1), np.float32)
    batches = PoissonBatches(x, batch_size=100, sampling_seed=1)
    lots = input_cost.Lots(batches.dataset(bucketed=True))
    lots.run(3)
    drawn = [present.numpy() for _, present in batches.dataset(bucketed=True).take(3)]
    assert lots.rows == sum(len(present) for present in drawn)
    assert lots.present == sum(present.sum() for present in drawn)
    assert 0 < lots.padding == 1 - lots.present / lots.rows


def test_lots_alone_are_measured_beside_the_training_step():
    options = input_cost.arguments(
        ["--workload", "mlp@8", "--records", "64", "--steps", "3", "--lots", "5", "--repeats", "2"]
    )
    step, lots, padded = input_cost.drawing(options)
    assert [one.method for one in (step, lots, padded)] == ["training step", "lots", "padded lots"]
    assert {one.workload for one in (step, lots, padded)} == {"mlp@8"}
    assert (step.padding, lots.padding) == (None, 0.0)
    assert 0 <= padded.padding < 1
    assert [one.steps for one in (step, lots, padded)] == [3, 5, 5]
    assert all(len(one.step_ms["all"]) == 2 for one in (step, lots, padded))


def test_the_file_is_as_large_as_asked_for(tmp_path):
    rows = input_cost.write_rows(tmp_path / "rows", 0.3)
    assert abs(os.path.getsize(tmp_path / "rows") - 0.3 * 2**30) < 4 * input_cost.FEATURES
    x = np.memmap(tmp_path / "rows", np.float32, "r").reshape(rows, -1)
    assert x.shape[1] == input_cost.FEATURES
    assert 0.4 < x[-100:].mean() < 0.6


def test_both_kinds_of_records_train_from_the_same_file(tmp_path, monkeypatch):
    asked = []

    def attempt(what, module, *child):
        asked.append(child[-2:])
        return input_cost.epoch_of(*child[-2:], options)

    monkeypatch.setattr(protocol, "attempt", attempt)
    options = input_cost.arguments(
        ["--gigabytes", "0.0015", "--repeats", "1", "--epochs", "2", "--width", "4", "--folder", str(tmp_path)]
    )
    memory, mapped = input_cost.epochs(options)
    assert [records for _, records in asked] == ["in memory", "memory map"]
    assert len({file for file, _ in asked}) == 1
    assert (memory.method, mapped.method) == ("in memory", "memory map")
    assert memory.steps == mapped.steps == 3
    assert len(memory.step_ms["all"]) == len(mapped.step_ms["all"]) == 1
    assert not list(tmp_path.iterdir())  # the file is gone


def test_records_that_memory_cannot_hold_are_out_of_reach(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "available_mb", lambda: 1.0)
    monkeypatch.setattr(
        protocol, "attempt", lambda *child: {name: protocol.summary_ms([1.0]) for name in protocol.TIMES}
    )
    memory, mapped = input_cost.epochs(input_cost.arguments(["--gigabytes", "0.0015", "--folder", str(tmp_path)]))
    assert memory.status == "out of reach" and "memory" in memory.reason
    assert mapped.status == "measured"


def test_a_full_disk_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(SystemExit, match="give another --folder"):
        input_cost.write_rows(tmp_path / "rows", 1e9)
    assert not (tmp_path / "rows").exists()
