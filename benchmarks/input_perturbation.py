"""What input perturbation costs: a pipeline of images, and training on it.

    python -m benchmarks.input_perturbation [--parts pipeline fit] --json results/input_perturbation.json

Pipeline: `--records` images of 32 x 32 x 3 (float32, in memory) are perturbed, shuffled, put in batches of `--batch` and
prefetched, by the input pipeline alone, which is read as `fit` reads it (`Dataset.reduce` would optimise the graph anew in every
epoch). Three sides run in turn, an epoch each: the images as they are; perturbed; and perturbed with `memory_limit=0`, so that the
noise is drawn again in every epoch, as it is in the first. First epochs do not count.

Fit: the same three through `model.fit` of a small convolutional network, whose steps run beside the pipeline.

A speed is the time of the images as they are divided by that of the perturbed ones: 1 if that costs nothing.
"""

import argparse
import functools
import sys
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from benchmarks import protocol, sides
from benchmarks.protocol import Entry
from tfdp.data import InputPerturbation

SHAPE, CLASSES = (32, 32, 3), 10
PLAIN, PERTURBED, ANEW = "as they are", "perturbed", "perturbed in every epoch"


def records(rows: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.random((rows, *SHAPE), dtype=np.float32), generator.integers(0, CLASSES, rows, dtype=np.int32)


def pipelines(options: argparse.Namespace) -> dict[str, tf.data.Dataset]:
    images = tf.data.Dataset.from_tensor_slices(records(options.records))
    all_sides = {
        PLAIN: images,
        PERTURBED: images.apply(InputPerturbation(0.5)),
        ANEW: images.apply(InputPerturbation(0.5, memory_limit=0)),
    }
    return {
        name: dataset.shuffle(1000).batch(options.batch).prefetch(tf.data.AUTOTUNE)
        for name, dataset in all_sides.items()
    }


def pipeline(options: argparse.Namespace) -> list[Entry]:
    """The input alone: every batch is read."""

    def read(dataset: tf.data.Dataset) -> None:
        for _ in dataset:
            pass

    runs = {name: functools.partial(read, dataset) for name, dataset in pipelines(options).items()}
    for run in runs.values():
        run()
    steps = -(-options.records // options.batch)
    times = protocol.interleaved(runs, options.repeats)
    return [_entry(name, "pipeline", options, protocol.steps_taken(times[name], steps, options.clock)) for name in runs]


def network() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(SHAPE),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(CLASSES),
        ]
    )


def fit(options: argparse.Namespace) -> list[Entry]:
    """Ordinary training."""
    model = network()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    def train(dataset: tf.data.Dataset, callbacks: list) -> None:
        model.fit(dataset, epochs=options.epochs, verbose=0, callbacks=callbacks)

    fits = {name: functools.partial(train, dataset) for name, dataset in pipelines(options).items()}
    steps = dict.fromkeys(fits, -(-options.records // options.batch))
    found = sides.timed_fits(fits, steps, options.repeats, options.clock)
    return [_entry(name, "fit", options, found[name]) for name in fits]


def _entry(name: str, part: str, options: argparse.Namespace, found: dict) -> Entry:
    library = "keras" if name == PLAIN else "tfdp"
    return Entry(f"images@{options.batch}", library, name, "sgd", f"perturbation, {part}", **found)


def speeds(entries: list[Entry]) -> dict[str, float]:
    """Of each side, relative to the images as they are."""
    times = {one.method: one.step_ms["median"] for one in entries}
    return {name: times[PLAIN] / time for name, time in times.items()}


def table(entries: list[Entry]) -> str:
    lines = [f"| {entries[0].protocol} | ms a batch | quartiles | speed |", "|---|---|---|---|"]
    for one, speed in zip(entries, speeds(entries).values(), strict=True):
        ms = one.step_ms
        lines.append(
            f"| {one.method} | {ms['median']:.3g} | {ms['low']:.3g} to {ms['high']:.3g} | {100 * speed:.0f} % |"
        )
    return "\n".join(lines)


PARTS: dict[str, Callable] = {"pipeline": pipeline, "fit": fit}


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = protocol.parser("input_perturbation", __doc__, repeats=5)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS), help="default: both")
    parser.add_argument("--records", type=int, default=10_240, help="images (default 10,240)")
    parser.add_argument("--batch", type=int, default=256, help="images in a batch (default 256)")
    parser.add_argument("--epochs", type=int, default=3, help="of every fit; the first warms up (default 3)")
    options = parser.parse_args(given)
    if options.epochs < 2:
        parser.error("--epochs: at least 2, because the first epoch does not count.")
    return options


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    results = protocol.Results(options, sides.PACKAGES)
    for part in options.parts:
        found = PARTS[part](options)
        results.add(*found)
        print(table(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
