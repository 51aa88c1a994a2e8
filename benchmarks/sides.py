"""Plain and private: a workload trained by either optimizer, its fits with their epochs timed, and the memory it takes.

The scripts share this; what they measure with it stands at the top of each.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

import tfdp
from benchmarks import protocol
from benchmarks.protocol import PLAIN, PRIVATE, XLA, Entry
from benchmarks.workloads import Records, Workload

CLIP, NOISE, RATE = 1.0, 1.1, 1e-3
OPTIMIZERS: dict[str, tuple[Callable, Callable]] = {
    "sgd": (keras.optimizers.SGD, tfdp.NoisySGD),
    "adam": (keras.optimizers.Adam, tfdp.NoisyAdam),
}
SIDES = (PLAIN, PRIVATE)
ALL_SIDES = (*SIDES, PLAIN + XLA, PRIVATE + XLA)
MEMORY_LOTS = 4
PACKAGES = ("tfdp", "keras", "tensorflow", "numpy")


def compiled(workload: Workload, optimizer: str, side: str, **private: Any) -> keras.Model:
    """The workload's model, with the plain or the private optimizer; that one is given `private` too."""
    plain_kind, private_kind = OPTIMIZERS[optimizer]
    if side.removesuffix(XLA) == PLAIN:
        made = plain_kind(RATE)
    else:
        made = private_kind(RATE, l2_norm_clip=CLIP, noise_multiplier=NOISE, **private)
    model = workload.model()
    model.compile(optimizer=made, loss=workload.loss(), jit_compile=side.endswith(XLA))
    return model


def entry(workload: Workload, optimizer: str, side: str, how: str, **measured: Any) -> Entry:
    library = "keras" if side.removesuffix(XLA) == PLAIN else "tfdp"
    return Entry(workload.name, library, side, optimizer, how, **measured)


def fit(
    model: keras.Model, workload: Workload, records: Records, epochs: int = 1, callbacks: list | None = None
) -> None:
    """Ordinary training: an epoch is as many steps as the records are lots."""
    x, y = records
    model.fit(x, y, batch_size=workload.lot, epochs=epochs, verbose=0, callbacks=callbacks)


class Epochs(keras.callbacks.Callback):
    """Reads the clocks as each epoch begins and as it ends."""

    def __init__(self):
        super().__init__()
        self.seconds: protocol.Seconds = {clock: [] for clock in protocol.CLOCKS}

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = protocol.now()

    def on_epoch_end(self, epoch, logs=None):
        for clock, end in protocol.now().items():
            self.seconds[clock].append(end - self._begin[clock])


def timed_fits(fits: dict[Any, Callable[[list], Any]], steps: dict[Any, int], repeats: int, clock: str) -> dict:
    """What an Entry says of the time of each side, whose fit is `fits[side](callbacks)`, of `steps[side]` steps an epoch.

    The fits run in turn. The first epoch of each only warms up.
    """
    epochs: dict[Any, list[Epochs]] = {side: [] for side in fits}

    def run(side: Any) -> None:
        epochs[side].append(Epochs())
        fits[side](epochs[side][-1:])

    calls = protocol.interleaved({side: functools.partial(run, side) for side in fits}, repeats)
    found = {}
    for side, fitted in epochs.items():
        counted = {name: [s for one in fitted for s in one.seconds[name][1:]] for name in protocol.CLOCKS}
        beside = [call - sum(one.seconds[clock]) for call, one in zip(calls[side][clock], fitted, strict=True)]
        found[side] = protocol.steps_taken(counted, steps[side], clock) | {"fit_ms": protocol.summary_ms(beside)}
    return found


def resident_times(
    models: dict[str, keras.Model], workload: Workload, steps: int | None, repeats: int, clock: str
) -> dict[str, dict]:
    """`protocol.resident_steps` of models that have been fitted."""
    found: dict = {}

    def measure() -> None:
        runs = {side: resident(model, lot_in_memory(workload, side)) for side, model in models.items()}
        for run in runs.values():
            run(2)
        found.update(protocol.resident_steps(runs, repeats, steps, clock=clock))

    if PRIVATE in models:
        inside_a_fit(models[PRIVATE], workload, measure)
    else:
        measure()
    return found


def inside_a_fit(model: keras.Model, workload: Workload, action: Callable[[], None]) -> None:
    """Do something when fit is ready for its first step: private steps need a running fit of their model."""
    # A fit that is planned long, because private steps beyond the plan are not taken; it ends after one of its own.
    fit(model, workload, workload.records(2 * workload.lot), 10**6, [_Inside(action)])


class _Inside(keras.callbacks.Callback):
    def __init__(self, action: Callable[[], None]):
        super().__init__()
        self._action = action

    def on_epoch_begin(self, epoch, logs=None):
        self._action()

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = True


def lot_in_memory(workload: Workload, side: str) -> Iterator:
    """One lot of exactly the expected size, again and again."""
    lot = tf.data.Dataset.from_tensor_slices(workload.records(workload.lot)).batch(workload.lot)
    if side == PRIVATE:  # a lot of tfdp: the record, and which rows are records
        lot = lot.map(lambda x, y: ((x, y), tf.ones(tf.shape(y), tf.bool)))
    lots = iter(lot.cache().repeat())
    next(lots)
    return lots


def resident(model: keras.Model, lots: Iterator) -> Callable[[int], None]:
    """Takes so many training steps, and nothing beside."""
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


def memory(model: keras.Model, workload: Workload) -> dict:
    """Growth of this process while it trains, by fits of a few lots. The records lie in memory before."""
    records = workload.records(MEMORY_LOTS * workload.lot)
    before = protocol.resident_mb()
    with protocol.memory_growth(before) as warm_up:
        fit(model, workload, records)
    with protocol.memory_growth(before) as training:
        fit(model, workload, records)
    return {"memory_mb": training.megabytes, "warm_up_memory_mb": warm_up.megabytes}
