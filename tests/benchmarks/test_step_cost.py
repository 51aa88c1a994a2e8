"""Both sides are trained as they are said to be, and every step that is timed is one that was taken."""

import json

import keras
import pytest
import tensorflow as tf

from benchmarks import growth, input_cost, physical_batches, protocol, report, sides, step_cost, workloads


@pytest.mark.parametrize("script", [step_cost, growth, physical_batches, input_cost, report])
def test_every_script_has_help(script, capsys):
    with pytest.raises(SystemExit) as ended:
        script.main(["--help"])
    assert ended.value.code == 0
    assert "usage: python -m benchmarks." in capsys.readouterr().out


def options(*given):
    return step_cost.arguments(["--repeats", "2", "--epochs", "3", *given])


def test_a_fit_is_its_epochs_and_what_the_call_takes_beside_them(monkeypatch):
    """On a clock that says: 100 s before the epochs, then 5, 2, 2, then 10 s."""
    clock = [0.0]
    monkeypatch.setattr(sides.protocol, "now", lambda: {"wall": clock[0], "cpu": clock[0] / 2})

    def fit(callbacks):
        clock[0] += 100
        for seconds in (5, 2, 2):
            callbacks[0].on_epoch_begin(0)
            clock[0] += seconds
            callbacks[0].on_epoch_end(0)
        clock[0] += 10

    found = sides.timed_fits({"plain": fit}, {"plain": 4}, 3, "wall")["plain"]
    assert found["step_ms"]["all"] == [500.0] * 6
    assert found["cpu_ms"]["median"] == 250.0
    assert found["fit_ms"]["all"] == [110_000.0] * 3


def test_with_jit_both_sides_are_compiled_as_well_and_first_epochs_are_left_out():
    """One step an epoch: the lot is all records, of one shape, and XLA compiles once."""
    found = step_cost.fit_cost(workloads.get("mlp@8"), "adam", options("--jit", "--steps", "1", "--clock", "cpu"))
    assert [one.method for one in found] == ["plain", "private", "plain, XLA", "private, XLA"]
    assert [one.library for one in found] == ["keras", "tfdp"] * 2
    for one in found:
        assert one.protocol == "jit"
        assert len(one.step_ms["all"]) == 2 * (3 - 1)
        assert len(one.fit_ms["all"]) == 2
        assert one.step_ms == one.cpu_ms  # by this clock
        assert one.weights == 2018
        assert sides.compiled(workloads.get("mlp@8"), "adam", one.method).jit_compile == one.method.endswith("XLA")


class Sizes(keras.metrics.Metric):
    """The sizes of the lots of an epoch."""

    def __init__(self):
        super().__init__(name="sizes")
        self.seen, self.count = self.add_variable((64,), "zeros"), self.add_variable((), "zeros")

    def update_state(self, labels, logits, sample_weight=None):
        place = tf.one_hot(tf.cast(self.count, tf.int32), 64)
        self.seen.assign(self.seen + place * tf.cast(tf.shape(labels)[0], tf.float32))
        self.count.assign_add(1.0)

    def result(self):
        return self.count


def test_private_lots_through_fit_are_poisson_samples():
    """Lots of a fit differ in size; in the mean they are those of the plain side."""
    workload, sizes = workloads.get("mlp@64"), Sizes()
    model = sides.compiled(workload, "sgd", "private")
    model.compile(optimizer=model.optimizer, loss=workload.loss(), metrics=[sizes])
    sides.fit(model, workload, workload.records(32 * 64))
    lots = sizes.seen.numpy()[:32].tolist()
    assert sizes.count.numpy() == 32
    assert len(set(lots)) > 4
    assert 54 < sum(lots) / 32 < 74  # seven standard deviations


def test_a_resident_step_is_measured_on_both_sides():
    plain, private = step_cost.resident_cost(workloads.get("mlp@8"), "sgd", options("--steps", "4"))
    assert (plain.library, private.library) == ("keras", "tfdp")
    assert len(private.step_ms["all"]) == 2
    assert private.steps == 4


def test_steps_that_are_not_taken_are_noticed():
    workload = workloads.get("mlp@8")
    model = sides.compiled(workload, "sgd", "private")
    refused = []

    def beyond_the_plan():
        with pytest.raises(RuntimeError, match="of 5 steps were taken"):
            sides.resident(model, sides.lot_in_memory(workload, "private"))(5)
        refused.append(True)

    sides.fit(model, workload, workload.records(16), 1, [sides._Inside(beyond_the_plan)])  # two steps are planned
    assert refused


def test_what_the_command_measured_is_in_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "in_a_process_of_its_own", lambda *child: {"memory_mb": len(child[-1])})
    tiny = ["--workloads", "mlp@8", "--optimizers", "sgd", "--steps", "2", "--epochs", "2", "--repeats", "1"]
    step_cost.main([*tiny, "--memory", "--json", str(tmp_path / "fit.json")])
    _, (plain, private) = protocol.read(tmp_path / "fit.json")
    assert (plain.protocol, private.protocol) == ("fit", "fit")
    assert (plain.memory_mb, private.memory_mb) == (len("plain"), len("private"))  # each by a process for its side


def test_the_process_of_a_side_prints_how_far_it_grew(capsys):
    step_cost.main(["--memory-of", "mlp@8", "sgd", "plain"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found.keys() == {"memory_mb", "warm_up_memory_mb"}
    assert 0 <= found["memory_mb"] < 1000
