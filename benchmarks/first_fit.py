"""What a user waits for before the first step, and how many operations a step is: private training beside plain Keras.

    python -m benchmarks.first_fit --workloads mlp@16 convnet@64 vit@64

The first fit of each side is one epoch of `--steps` steps, in a process of its own that trained another, tiny model before: it
contains the self-proof and all tracing. Printed are wall clock and CPU time of both sides. Operations are counted in the graph of
Keras's training function: its own, and those of all functions that it calls (branches, loops, the core), each function once.
Constants count; arguments of functions do not.
"""

import argparse
import json
import sys

import keras
import numpy as np
import tensorflow as tf

from benchmarks import protocol, sides, workloads


def nodes(graph: tf.Graph) -> int:
    """Operations of a graph and of all functions in reach of it."""
    definition = graph.as_graph_def()
    return len(definition.node) + sum(len(function.node_def) for function in definition.library.function)


def training_function(model: keras.Model) -> tf.Graph:
    """The graph that one call of Keras's train function runs."""
    waiting = [model.train_function]
    while waiting:
        found = waiting.pop()
        if hasattr(found, "_list_all_concrete_functions"):
            return found._list_all_concrete_functions()[-1].graph
        cells = getattr(found, "__closure__", None) or ()
        waiting += [cell.cell_contents for cell in cells if callable(cell.cell_contents)]
    raise ValueError("The model was not trained by a graph.")


def measured(name: str, optimizer: str, side: str, steps: int) -> dict:
    """Of one side, in this process."""
    tiny = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    tiny.compile(optimizer="sgd", loss="mse")
    tiny.fit(np.zeros((8, 3), "float32"), np.zeros((8, 2), "float32"), verbose=0)
    workload = workloads.get(name)
    model, records = sides.compiled(workload, optimizer, side), workload.records(steps * workload.lot)
    before = protocol.now()
    sides.fit(model, workload, records)
    after = protocol.now()
    return {clock: after[clock] - before[clock] for clock in before} | {"nodes": nodes(training_function(model))}


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=list(workloads.WORKLOADS))
    parser.add_argument("--optimizer", default="sgd", choices=list(sides.OPTIMIZERS))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--of", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    if options.of:
        print(json.dumps(measured(options.of[0], options.optimizer, options.of[1], options.steps)))
        return 0
    print(
        "| workload | operations, plain | private | ratio | first fit, plain, CPU s | private | ratio | private, wall s |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.workloads:
        asked = ["--optimizer", options.optimizer, "--steps", str(options.steps)]
        plain, private = (
            protocol.in_a_process_of_its_own("benchmarks.first_fit", *asked, "--of", name, side) for side in sides.SIDES
        )
        print(
            f"| {name} | {plain['nodes']} | {private['nodes']} | {private['nodes'] / plain['nodes']:.2f} | {plain['cpu']:.2f} | "
            f"{private['cpu']:.2f} | {private['cpu'] / plain['cpu']:.1f} | {private['wall']:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
