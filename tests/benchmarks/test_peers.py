"""A peer's method is compared with brute force before it is timed."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks import workloads
from benchmarks.peers import measure


@dataclasses.dataclass
class Linear:
    """Logistic regression on the MLP's records, in numpy: a peer that can clip, or that only clips the sum."""

    clips_each: bool
    library, module, packages, methods = "numpy", "tests.benchmarks.test_peers", ("numpy",), ("plain", "clipped")

    def side(self, workload, method, setting):
        return LinearSide(self, workload, method, setting)

    def example_gradients(self, workload, method, rows, weights=None):
        x, y = workload.records(rows)
        weights = np.zeros(x.shape[1]) if weights is None else weights
        return (1 / (1 + np.exp(-x @ weights)) - y)[:, None] * x


class LinearSide:
    def __init__(self, peer, workload, method, setting):
        self.peer, self.workload, self.method, self.setting = peer, workload, method, setting
        self.w = np.zeros(123)

    def run(self, steps):
        for _ in range(steps):
            found = self.peer.example_gradients(self.workload, self.method, self.setting.lot, self.w)
            if self.method == "clipped" and self.peer.clips_each:
                found = found * np.minimum(1, self.setting.clip / np.linalg.norm(found, axis=1))[:, None]
            self.w = self.w - self.setting.rate * found.mean(axis=0)

    def weights(self):
        return self.w.copy()


@pytest.mark.parametrize("method", Linear.methods)
def test_a_method_that_clips_each_example_passes(method):
    assert measure.check(Linear(True), workloads.get("mlp"), method)["error"] < 1e-12


def test_a_method_that_does_not_is_not_timed():
    with pytest.raises(measure.OutOfReach, match="differs from brute force"):
        measure.check(Linear(False), workloads.get("mlp"), "clipped")


def test_every_method_is_checked_tried_and_timed(tmp_path, monkeypatch):
    def attempt(what, module, _, task, limit):
        return measure.child(Linear(True), json.loads(task))

    monkeypatch.setattr(measure.protocol, "attempt", attempt)
    given = ["--workloads", "mlp@8", "--repeats", "3", "--steps", "2", "--clock", "cpu"]
    measure.main(Linear(True), "A peer.", [*given, "--json", str(tmp_path / "numpy.json")])
    about, entries = measure.protocol.read(tmp_path / "numpy.json")
    assert about["clock"] == "cpu"
    assert [one.method for one in entries] == list(Linear.methods)
    for one in entries:
        assert (one.protocol, one.status, one.weights) == ("resident", "measured", 123)
        assert one.error < 1e-12 and one.memory_mb >= 0
        assert len(one.step_ms["all"]) == 3 and one.step_ms == one.cpu_ms


def test_every_peer_has_its_requirements():
    folder = measure.protocol.ROOT / "benchmarks" / "peers"
    scripts = {path.stem.removeprefix("run_").replace("_", "-") for path in folder.glob("run_*.py")}
    assert scripts == {path.stem for path in (folder / "requirements").glob("*.txt")}
    assert all(name in (folder / "build.sh").read_text() for name in scripts)
