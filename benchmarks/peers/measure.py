"""The protocol for peers: check by brute force, measure memory, then time a training step on a lot in memory.

Every peer has a module, run in the environment that `build.sh` makes for it:

    benchmarks/peers/build.sh opacus
    benchmarks/peers/.venvs/opacus/bin/python -m benchmarks.peers.run_opacus --workloads cnn@256 --json results/opacus.json

What is measured: clipped, noised steps (clip 1, noise multiplier 1.1) of the same network on the same records, lot in
memory, by each of the peer's methods, beside a plain step of the same framework; medians of interleaved repeats. Memory
is measured with every method in a process of its own. `python -m benchmarks.step_cost --resident --memory` is the same
for tfdp. A method whose step takes more than 10 s is timed once, in that process.

Before a method is timed, one step of it without noise, on a few examples, is compared with brute force: gradients of
batches of one, clipped and averaged by numpy. A wrong method is not timed. What the peer cannot do, what fails, and what
does not end within `--limit` seconds is recorded as out of reach, with the reason.
"""

import argparse
import dataclasses
import json
import sys
from typing import Protocol

import numpy as np

from benchmarks import protocol, tables, workloads
from benchmarks.protocol import Entry
from benchmarks.workloads import Workload

CLIP, NOISE, RATE = 1.0, 1.1, 1e-3
EXAMPLES = 4
TOLERANCE = 1e-2  # of float32, through a deep network with kinks
SLOW = 10.0  # seconds a step from which on a method is timed once and alone


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a side trains."""

    lot: int
    optimizer: str = "sgd"
    clip: float = CLIP
    noise: float = NOISE
    rate: float = RATE


class OutOfReach(Exception):
    """The library does not do this, for the reason given."""


class Side(Protocol):
    """One network with one way of training it, and one lot in memory."""

    def run(self, steps: int) -> None:
        """Take so many training steps, and return when the last is done."""

    def weights(self) -> np.ndarray:
        """All trainable weights side by side."""


class Peer(Protocol):
    """What a peer's module offers. `methods[0]` is "plain"."""

    library: str
    module: str
    packages: tuple[str, ...]
    methods: tuple[str, ...]

    def side(self, workload: Workload, method: str, setting: Setting) -> Side:
        """Raises OutOfReach."""

    def example_gradients(self, workload: Workload, method: str, rows: int) -> np.ndarray:
        """The gradient of each of the lot's first examples, run alone, at the weights that `side` begins with."""


def check(peer: Peer, workload: Workload, method: str) -> dict:
    """One step without noise against brute force. Raises OutOfReach if they disagree."""
    gradients = peer.example_gradients(workload, method, EXAMPLES).astype(np.float64)
    norms = np.linalg.norm(gradients, axis=1)
    clip = float(np.median(norms))  # some are clipped, some are not
    expected = (np.minimum(1.0, clip / norms) @ gradients) / EXAMPLES if method != "plain" else gradients.mean(axis=0)
    side = peer.side(workload, method, Setting(EXAMPLES, clip=clip, noise=0.0, rate=1.0))
    before = side.weights().astype(np.float64)
    side.run(1)
    error = float(np.linalg.norm(before - side.weights() - expected) / np.linalg.norm(expected))
    if not error < TOLERANCE:
        raise OutOfReach(f"its clipped gradient differs from brute force by {error:.1e} of its norm")
    return {"error": error, "weights": before.size}


def trial(peer: Peer, workload: Workload, method: str, optimizer: str, clock: str) -> dict:
    """Memory of the training steps, and roughly how long they take."""
    side = peer.side(workload, method, Setting(workload.lot, optimizer))
    before = protocol.resident_mb()
    with protocol.memory_growth(before) as warm_up:
        side.run(1)
    with protocol.memory_growth(before) as training:
        seconds = protocol.interleaved({"": lambda: side.run(1)}, 1)[""]
        if seconds["wall"][0] < SLOW:
            side.run(2)
    measured = {"memory_mb": training.megabytes, "warm_up_memory_mb": warm_up.megabytes}
    return measured | protocol.steps_taken(seconds, 1, clock)


def times(
    peer: Peer,
    workload: Workload,
    methods: list[str],
    optimizer: str,
    repeats: int,
    steps: int | None,
    seconds: float,
    clock: str,
) -> dict:
    """All methods in one process, in turn."""
    runs = {method: peer.side(workload, method, Setting(workload.lot, optimizer)).run for method in methods}
    for run in runs.values():
        run(2)
    return protocol.resident_steps(runs, repeats, steps, seconds, clock)


def child(peer: Peer, task: dict) -> dict:
    """Something in a process of its own; the parent asks for it by `--child`."""
    workload = workloads.get(task["workload"])
    try:
        if task["what"] == "check":
            return check(peer, workload, task["method"])
        if task["what"] == "trial":
            return trial(peer, workload, task["method"], task["optimizer"], task["clock"])
        chosen = {name: task[name] for name in ("methods", "optimizer", "repeats", "steps", "seconds", "clock")}
        return times(peer, workload, **chosen)
    except OutOfReach as reason:
        return {"out_of_reach": str(reason)}
    except Exception as error:
        return protocol.out_of_reach(error)


def measure(peer: Peer, workload: Workload, optimizer: str, options: argparse.Namespace) -> list[Entry]:
    """All of the peer's methods on one workload."""

    def ask(what: str, **more) -> dict:
        task = {"what": what, "workload": workload.name, "optimizer": optimizer, "clock": options.clock, **more}
        limit = None if what == "times" else options.limit  # what is timed has shown that it ends
        return protocol.attempt(what, peer.module, "--child", json.dumps(task), limit=limit)

    entries = {}
    for method in peer.methods:
        if options.methods and method not in (*options.methods, "plain"):
            continue
        entries[method] = entry = Entry(workload.name, peer.library, method, optimizer, "resident")
        entry.fill(ask("check", method=method))
        if entry.status == "measured":
            entry.fill(ask("trial", method=method))
    quick = [name for name, entry in entries.items() if entry.step_ms and entry.step_ms["median"] < 1000 * SLOW]
    if quick:
        found = ask("times", methods=quick, repeats=options.repeats, steps=options.steps, seconds=options.seconds)
        for method in quick:
            entries[method].fill(found.get(method, found))
    return list(entries.values())


def main(peer: Peer, description: str, given: list[str] | None = None) -> int:
    """The command line that all peers share."""
    parser = protocol.parser(peer.module.removeprefix("benchmarks."), description, repeats=7)
    parser.epilog = "How it is measured: benchmarks/peers/measure.py."
    parser.add_argument(
        "--workloads", nargs="+", default=[w.name for w in workloads.WITH_PEERS], help="kind or kind@lot; default: all"
    )
    parser.add_argument("--methods", nargs="+", choices=peer.methods, help="default: all; plain always runs")
    parser.add_argument("--optimizers", nargs="+", default=["sgd"], choices=["sgd", "adam"], help="default: sgd")
    parser.add_argument("--steps", type=int, help="steps in a run; default: as many as fill --seconds")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a run without --steps (default 0.5)")
    parser.add_argument(
        "--limit", type=float, default=900, help="seconds after which a trial is given up (default 900)"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.child:
        print(json.dumps(child(peer, json.loads(options.child))))
        return 0
    results = protocol.Results(options, peer.packages)
    for workload in map(workloads.get, options.workloads):
        for optimizer in options.optimizers:
            results.add(*(found := measure(peer, workload, optimizer, options)))
            print(tables.line(found), flush=True)
    print(tables.every_method(results.entries))
    return 0


def exit_with(peer: Peer, description: str) -> None:
    sys.exit(main(peer, description))
