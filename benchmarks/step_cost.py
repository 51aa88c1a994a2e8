"""The cost of private training against plain Keras, with nothing changed but the optimizer.

    python -m benchmarks.step_cost --workloads cnn@256 text@512 --repeats 7 --memory --json results/step_cost.json

What is measured: the same model, loss and arrays are trained by `keras.optimizers.SGD` and `tfdp.NoisySGD` (and `Adam`
and `NoisyAdam`; clip 1, noise multiplier 1.1) through ordinary `model.fit` at the same batch size. The private side
includes all that it does in a step: drawing Poisson lots, per-example norms, clipping, noise, the ledger.

How: a first fit warms up (weights, the proof of the engine, tracing). Then fits of N and of 2N steps are timed, plain and
private in turn. With T(N) = fixed + N * step, a step costs (T(2N) - T(N)) / N, and what is left of T(N) is the price of
calling fit, which does not grow with its length. Both are medians over the repeats.

`--resident` times `model.train_function` alone, on one lot that lies in memory, inside a running fit: no lots are drawn
and no callbacks run. That is what peers are compared by (`benchmarks/peers`).

`--memory` runs every side in a process of its own: see `benchmarks/protocol.py`. `benchmarks/report.py` makes tables and
plots of the JSON.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import tfdp
from benchmarks import protocol, report, workloads
from benchmarks.protocol import Entry
from benchmarks.workloads import Workload

CLIP, NOISE = 1.0, 1.1
OPTIMIZERS: dict[str, tuple[Callable, Callable]] = {
    "sgd": (keras.optimizers.SGD, tfdp.NoisySGD),
    "adam": (keras.optimizers.Adam, tfdp.NoisyAdam),
}
SIDES = {"plain": ("keras", "plain"), "private": ("tfdp", "factored")}
MEMORY_LOTS = 4
PACKAGES = ("tfdp", "keras", "tensorflow", "numpy")


def compiled(workload: Workload, optimizer: str, side: str) -> keras.Model:
    """The workload's model, with the plain or the private optimizer."""
    plain, private = OPTIMIZERS[optimizer]
    rate = 1e-3
    model = workload.model()
    made = plain(rate) if side == "plain" else private(rate, l2_norm_clip=CLIP, noise_multiplier=NOISE)
    model.compile(optimizer=made, loss=workload.loss())
    return model


def fit(model: keras.Model, workload: Workload, records: Any, steps: int, callbacks: list | None = None) -> None:
    """`steps` steps of ordinary training."""
    x, y = records
    model.fit(x, y, batch_size=workload.lot, steps_per_epoch=steps, epochs=1, verbose=0, callbacks=callbacks)


def entry(workload: Workload, optimizer: str, side: str, how: str, **measured: Any) -> Entry:
    library, method = SIDES[side]
    return Entry(workload.name, library, method, optimizer, how, **measured)


def fit_cost(workload: Workload, optimizer: str, steps: int, repeats: int, clock: str = "wall") -> list[Entry]:
    """Both sides, through fit."""
    records = workload.records(2 * steps * workload.lot)
    runs = {}
    for side in SIDES:
        model = compiled(workload, optimizer, side)
        weights = model.count_params()
        fit(model, workload, records, 1)
        for times in (1, 2):
            runs[side, times] = lambda m=model, n=times * steps: fit(m, workload, records, n)
    seconds = protocol.interleaved(runs, repeats, clock)
    entries = []
    for side in SIDES:
        short, long = seconds[side, 1], seconds[side, 2]
        a_step = protocol.summary_ms((b - a) / steps for a, b in zip(short, long, strict=True))
        a_fit = protocol.summary_ms(2 * a - b for a, b in zip(short, long, strict=True))
        all_short, all_long = protocol.summary_ms(short), protocol.summary_ms(long)
        for which in ("median", "least"):  # those of the differences are noisier than the differences of these
            a_step[which] = (all_long[which] - all_short[which]) / steps
            a_fit[which] = all_short[which] - steps * a_step[which]
        measured = {"weights": weights, "step_ms": a_step, "fit_ms": a_fit, "steps": steps}
        entries.append(entry(workload, optimizer, side, "fit", **measured))
    return entries


def resident_cost(
    workload: Workload, optimizer: str, steps: int | None, repeats: int, clock: str = "wall"
) -> list[Entry]:
    """Both sides, one lot in memory. Private steps need a running fit: they are taken as its first epoch begins."""
    records = workload.records(4 * workload.lot)
    models = {side: compiled(workload, optimizer, side) for side in SIDES}
    for model in models.values():
        fit(model, workload, records, 1)
    found: dict = {}

    def measure() -> None:
        runs = {side: resident(model, workload, side) for side, model in models.items()}
        for run in runs.values():
            run(2)
        found.update(protocol.resident_steps(runs, repeats, steps, clock=clock))

    # A fit that is planned long, because private steps beyond the plan are not taken; it ends after one step of its own.
    fit(models["private"], workload, records, 10**6, [_Inside(measure)])
    return [
        entry(workload, optimizer, side, "resident", weights=models[side].count_params(), step_ms=ms, steps=taken)
        for side, (ms, taken) in found.items()
    ]


class _Inside(keras.callbacks.Callback):
    """Does something when fit is ready for its first step, and then ends it."""

    def __init__(self, action: Callable[[], None]):
        super().__init__()
        self._action = action

    def on_epoch_begin(self, epoch, logs=None):
        self._action()

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = True


def resident(model: keras.Model, workload: Workload, side: str) -> Callable[[int], None]:
    """Takes steps on one lot of exactly the expected size."""
    lot = tf.data.Dataset.from_tensor_slices(workload.records(workload.lot)).batch(workload.lot)
    if side == "private":  # a lot of tfdp: the record, and which rows are records
        lot = lot.map(lambda x, y: ((x, y), tf.ones(tf.shape(y), tf.bool)))
    lots = iter(lot.cache().repeat())
    step = model.train_function

    def run(steps: int) -> None:
        before, logs = int(model.optimizer.iterations), None
        for _ in range(steps):
            logs = step(lots)
        float(logs["loss"])
        taken = int(model.optimizer.iterations) - before
        if taken != steps:
            raise RuntimeError(f"{taken} of {steps} steps were taken: their time says nothing.")

    return run


def memory(workload: Workload, optimizer: str, side: str) -> dict:
    """Growth of this process while it trains."""
    records = workload.records(MEMORY_LOTS * workload.lot)
    model = compiled(workload, optimizer, side)
    before = protocol.resident_mb()
    with protocol.memory_growth(before) as warm_up:
        fit(model, workload, records, 2)
    with protocol.memory_growth(before) as training:
        fit(model, workload, records, MEMORY_LOTS)
    return {"memory_mb": training.megabytes, "warm_up_memory_mb": warm_up.megabytes}


def with_memory(found: Entry) -> Entry:
    side = "plain" if found.method == "plain" else "private"
    child = ["--memory-of", found.workload, found.optimizer, side]
    return dataclasses.replace(found, **protocol.in_a_process_of_its_own("benchmarks.step_cost", *child))


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.step_cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workloads", nargs="+", default=list(workloads.WORKLOADS), help="kind or kind@lot; default: all"
    )
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--repeats", type=int, default=7, help="runs of every side; the median counts (default 7)")
    parser.add_argument("--steps", type=int, help="N; default: enough for each workload")
    parser.add_argument("--resident", action="store_true", help="time the training step alone, on a lot in memory")
    parser.add_argument(
        "--clock",
        default="wall",
        choices=list(protocol.CLOCKS),
        help="cpu: of all threads; steadier on a shared machine",
    )
    parser.add_argument("--memory", action="store_true", help="measure memory too, every side in its own process")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--write-docs", action="store_true", help="put table and plot into docs/performance.md")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    if options.memory_of:
        name, optimizer, side = options.memory_of
        print(json.dumps(memory(workloads.get(name), optimizer, side)))
        return 0
    where, entries = protocol.machine(*PACKAGES) | {"clock": options.clock}, []
    for workload in map(workloads.get, options.workloads):
        for optimizer in options.optimizers:
            if options.resident:
                found = resident_cost(workload, optimizer, options.steps, options.repeats, options.clock)
            else:
                found = fit_cost(workload, optimizer, options.steps or workload.steps, options.repeats, options.clock)
            found = [with_memory(one) if options.memory else one for one in found]
            entries += found
            print(report.line(found), flush=True)
            keras.backend.clear_session()
            if options.json:  # after every pair: a long run that is stopped keeps what it has
                protocol.write(options.json, entries, where, repeats=options.repeats)
    print(report.table(entries))
    if options.write_docs:
        report.write_docs(entries, where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
