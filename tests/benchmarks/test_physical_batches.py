"""Large lots in parts and small lots train on as many records."""

import pytest

from benchmarks import physical_batches, protocol, sides, workloads


@pytest.fixture
def options():
    return physical_batches.arguments(["--lot", "16", "--physical", "4", "--epochs", "3", "--repeats", "1"])


def test_both_epochs_are_as_many_records(options):
    small, large = physical_batches.times("mlp", options)
    assert (small.workload, large.workload) == ("mlp@4", "mlp@16")
    assert small.steps * small.lot == large.steps * large.lot == physical_batches.EPOCH_LOTS * 16
    assert large.method == "private, max_physical_batch=4"
    assert len(large.step_ms["all"]) == 3 - 1


def test_the_limit_is_the_optimizers(options):
    (_, nothing), (workload, limit) = physical_batches.lots_of("mlp", options)
    model = sides.compiled(workload, "sgd", "private", max_physical_batch=limit)
    assert (nothing, model.optimizer.max_physical_batch) == (None, 4)


def test_memory_of_the_step_is_measured_beside_its_records(options):
    workload = workloads.get("mlp@16")
    model = sides.compiled(workload, "sgd", "private", max_physical_batch=4)
    found = physical_batches.memory_of_step(workload, model, 64)
    assert found["records_mb"] == 16 * (123 + 1) * 4 / 2**20
    assert found["memory_mb"] > 0


def test_each_memory_has_a_process_of_its_own(tmp_path, monkeypatch):
    asked = []

    def child(module, *arguments):
        asked.append(arguments[-3:])
        return {"memory_mb" if arguments[-3] == "step" else "fit_memory_mb": 10.0 * len(asked)}

    monkeypatch.setattr(
        physical_batches,
        "times",
        lambda kind, options: [
            sides.entry(workload, "sgd", "private", "physical", lot=workload.lot)
            for workload, _ in physical_batches.lots_of(kind, options)
        ],
    )
    monkeypatch.setattr(protocol, "in_a_process_of_its_own", child)
    physical_batches.main(["--workloads", "mlp", "--json", str(tmp_path / "physical.json")])
    assert asked == [("step", "mlp", "0"), ("fit", "mlp", "0"), ("step", "mlp", "1"), ("fit", "mlp", "1")]
    _, (small, large) = protocol.read(tmp_path / "physical.json")
    assert (small.memory_mb, small.fit_memory_mb, large.memory_mb, large.fit_memory_mb) == (10, 20, 30, 40)
