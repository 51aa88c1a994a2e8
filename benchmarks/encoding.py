"""Encoded gradients: what a step of them costs, and whether they are worth it at the same proven epsilon.

    python -m benchmarks.encoding cost [--workloads cnn@256 million@256] [--clock cpu]
    python -m benchmarks.encoding study --data-dir DIR --json results/encoding.jsonl
    python -m benchmarks.encoding table --json results/encoding.jsonl
    python -m benchmarks.encoding noises        numbers and picture of docs/encoding.md

Cost: a step of `EncodedDPSGD` through `model.fit` against one of `NoisySGD`, in turn, and the memory of each in a process of
its own; how both are measured is said in `benchmarks/step_cost.py`. "million" is a network of three dense layers with a million
weights.

Study and table: those of `benchmarks/directional.py`, with other methods. The study is after Nasr et al. 2020, section 5: the
MNIST network, encoded gradients with Student-t and Gaussian noise, denoised or not, and plain `NoisySGD`, denoised or not. The
target epsilon is the same for all, and the size of each noise follows from it; learning rate and clip are tuned.

Noises: the paper's figure 6, what each noise does to a gradient at the same Renyi divergence of one step.
"""

import argparse
import dataclasses
import functools
import json
import math
import sys
from pathlib import Path

import keras

import tfdp
from benchmarks import directional, plots, protocol, sides, workloads
from benchmarks.directional import Case
from benchmarks.workloads import Workload
from experiments.tables import markdown
from models import bu_2019
from tfdp.accounting import Codebook, NoiseComparison, compare_noises

ENCODED = {"sgd": tfdp.EncodedDPSGD, "adam": tfdp.EncodedDPAdam}
NOISY = {"sgd": tfdp.NoisySGD, "adam": tfdp.NoisyAdam}
STUDENT, GAUSSIAN = tfdp.noise.StudentT(9, stddev=1.0), tfdp.noise.Gaussian(1.0)
METHODS = {
    "noisy": (NOISY, {}),
    "noisy, denoised": (NOISY, {"denoise": "ks"}),
    "student, encoded, denoised": (ENCODED, {"noise": STUDENT, "denoise": "ks"}),
    "gaussian, encoded, denoised": (ENCODED, {"noise": GAUSSIAN, "denoise": "ks"}),
    "student, encoded": (ENCODED, {"noise": STUDENT, "denoise": None}),
    "gaussian, encoded": (ENCODED, {"noise": GAUSSIAN, "denoise": None}),
}
RATES = (1.6, 6.4)
DENOISED_RATES = (200.0, 800.0)  # steps are shorter by the distance from noise, a hundredth and less
CASES = {
    "mnist, encoding": Case(
        "mnist",
        lambda x: bu_2019.mnist_cnn(),
        512,
        2,
        "sgd",
        RATES,
        (0.3, 1.0),
        directional._images,
        own_rates={method: DENOISED_RATES for method, (_, own) in METHODS.items() if own.get("denoise")},
    ),
}
NOISES = {
    "Student-t, df 9": STUDENT,
    "Gaussian": GAUSSIAN,
    "variance gamma, shape 2": tfdp.noise.VarianceGamma(2, stddev=1.0),
    "hyperbolic secant": tfdp.noise.HyperbolicSecant(1.0),
    "Student-t, df 3": tfdp.noise.StudentT(3, stddev=1.0),
    "Laplace": tfdp.noise.Laplace(1.0),
    "Cauchy": tfdp.noise.Cauchy(1.0),
}
DIVERGENCES = (0.1, 0.3, 1.0, 3.0, 10.0)
COSTS = {"NoisySGD": NOISY["sgd"], "EncodedDPSGD": ENCODED["sgd"]}


def million() -> Workload:
    """784 features, three dense layers, 1,019,130 weights."""

    def network() -> keras.Model:
        layers = [keras.layers.Dense(width, activation="relu") for width in (1024, 208)]
        return keras.Sequential([keras.Input((784,)), *layers, keras.layers.Dense(10)])

    def features(generator, rows):
        return generator.random((rows, 784), dtype="float32")

    return Workload("million", 256, 3, 1_019_130, features, 10, network)


def workload_of(name: str) -> Workload:
    kind, _, lot = name.partition("@")
    return dataclasses.replace(million(), lot=int(lot or 256)) if kind == "million" else workloads.get(name)


def compiled(workload: Workload, side: str) -> keras.Model:
    model = workload.model()
    optimizer = COSTS[side](0.01, l2_norm_clip=1.0, noise_multiplier=1.1)
    model.compile(optimizer=optimizer, loss=workload.loss())
    return model


def memory_of(name: str, side: str) -> dict:
    return sides.memory(compiled(workload_of(name), side), workload_of(name))


def cost(options: argparse.Namespace) -> None:
    for name in options.workloads:
        workload = workload_of(name)
        steps = options.steps or workload.steps
        records, fits = workload.records(steps * workload.lot), {}
        for side in COSTS:
            fits[side] = functools.partial(sides.fit, compiled(workload, side), workload, records, 3)
            fits[side]()
        found = sides.timed_fits(fits, dict.fromkeys(fits, steps), options.repeats, options.clock)
        for side, one in found.items():
            child = ["memory-of", name, side]
            memory = protocol.in_a_process_of_its_own("benchmarks.encoding", *child)
            print(json.dumps({"workload": name, "side": side, **one, **memory}), flush=True)


def noises(options: argparse.Namespace) -> None:
    book = Codebook(options.weights)
    found: dict[str, dict[float, NoiseComparison]] = {name: {} for name in NOISES}
    for name, noise in NOISES.items():
        for divergence in options.divergences:
            (found[name][divergence],) = compare_noises([noise], book, renyi_divergence=divergence)
    rows = [
        [name, f"{divergence:g}", f"{one.noise.size:.3f}", f"{one.l1:,.0f}", f"{one.l2:,.1f}"]
        for name, each in found.items()
        for divergence, one in each.items()
    ]
    print(markdown(["noise", "Renyi divergence", "standard deviation or scale", "l1", "l2"], rows))
    lines = {name: {at: one.l1 for at, one in each.items()} for name, each in found.items()}
    plots.distortions({name: line for name, line in lines.items() if math.isfinite(sum(line.values()))}, options.figure)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks.encoding", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    costs = commands.add_parser("cost")
    costs.add_argument("--workloads", nargs="+", default=["cnn@256", "million@256"])
    costs.add_argument("--steps", type=int, help="of an epoch; default: enough for each workload")
    costs.add_argument("--repeats", type=int, default=3)
    costs.add_argument("--clock", default="wall", choices=list(protocol.CLOCKS))
    child = commands.add_parser("memory-of")
    child.add_argument("workload")
    child.add_argument("side", choices=list(COSTS))
    figure = commands.add_parser("noises")
    figure.add_argument("--weights", type=int, default=26_000)
    figure.add_argument("--divergences", nargs="+", type=float, default=DIVERGENCES)
    figure.add_argument("--figure", type=Path, default=protocol.ROOT / "docs" / "encoding-noises.png")
    table, study = commands.add_parser("table"), commands.add_parser("study")
    for command in (table, study):
        command.add_argument("--json", default="results/encoding.jsonl")
    study.add_argument("--data-dir", required=True, help="where mnist.npz lies")
    study.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    study.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    study.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 3.2])
    study.add_argument("--tuning-epsilon", type=float, default=3.2)
    study.add_argument("--setting", nargs=2, type=float, help="learning rate and clip, in place of tuning")
    study.add_argument("--seeds", type=int, default=5)
    return parser


def main() -> int:
    options = arguments().parse_args()
    if options.command == "memory-of":
        print(json.dumps(memory_of(options.workload, options.side)))
        return 0
    directional.METHODS.update(METHODS)
    directional.CASES.update(CASES)
    own = {"cost": cost, "noises": noises}
    (own | {"table": directional.table, "study": directional.study})[options.command](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
