"""Is shaped noise worth it? Directional noise and AdaClip against isotropic noise, at the same proven epsilon.

    python -m benchmarks.directional study --data-dir DIR --cases adult imdb --epsilons 0.2 1 3 --json results/directional.jsonl
    python -m benchmarks.directional figure        draws the picture of docs/directional.md

Study: every method trains the case's network to the target epsilon (delta 1e-5, PLD accountant) through `model.fit`. Learning rate
and clip of each method are the best of the same grid, by the accuracy on a tenth of the training records that is held out, with
one seed. With them it trains on all training records once for each of the `--seeds`, and the test accuracy is reported.
Tuning looks at the records without paying for it: results compare methods, they are no recipe.

`DIR/<name>.npz` holds x_train, y_train, x_test, y_test. Every finished run is a line of the JSON file; a second call goes on
where the first was stopped.
"""

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

import tfdp
from benchmarks import plots, protocol
from models import bu_2019
from tfdp.mechanisms.published import published_scales

DELTA = 1e-5
METHODS: dict[str, tuple[dict[str, type], dict]] = {
    "isotropic": ({"sgd": tfdp.NoisySGD, "adam": tfdp.NoisyAdam}, {}),
    "directional": ({"sgd": tfdp.DirectionalDPSGD, "adam": tfdp.DirectionalDPAdam}, {}),
    "directional, w = 1": ({"sgd": tfdp.DirectionalDPSGD, "adam": tfdp.DirectionalDPAdam}, {"direction": "ones"}),
    "adaclip": ({"sgd": tfdp.AdaClipDPSGD, "adam": tfdp.AdaClipDPAdam}, {}),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A data set, its network, and the grid that all methods are tuned on."""

    data: str
    build: Callable[[np.ndarray], keras.Model]
    lot: int
    epochs: int
    optimizer: str
    learning_rates: tuple[float, ...]
    clips: tuple[float, ...] = (0.1, 1.0)
    prepare: Callable[[np.ndarray], np.ndarray] = lambda x: x


def _logistic(x: np.ndarray) -> keras.Model:
    return keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(2)])


def _images(x: np.ndarray) -> np.ndarray:
    return (x[..., None] / 255.0).astype(np.float32)


CASES = {
    "adult": Case("adult", lambda x: bu_2019.adult_mlp(), 256, 18, "adam", (0.003, 0.01, 0.03)),
    "adult, sgd": Case("adult", lambda x: bu_2019.adult_mlp(), 256, 18, "sgd", (0.1, 0.5, 2.0)),
    "creditcard": Case("creditcard", _logistic, 128, 20, "adam", (0.003, 0.03, 0.3)),
    "creditcard, sgd": Case("creditcard", _logistic, 128, 20, "sgd", (0.01, 0.1, 1.0)),
    "bank": Case("bank", _logistic, 512, 10, "adam", (0.003, 0.01, 0.03)),
    "imdb": Case("imdb", lambda x: bu_2019.imdb_text(), 512, 9, "adam", (0.003, 0.01, 0.03)),
    "mnist": Case("mnist", lambda x: bu_2019.mnist_cnn(), 1024, 5, "adam", (0.003, 0.01), (0.1, 1.0), _images),
}


def run(case: Case, method: str, epsilon: float, rate: float, clip: float, seed: int, held_out: bool, data) -> float:
    """Test accuracy of one run, or the accuracy on the records that are held out."""
    x, y, x_test, y_test = data
    if held_out:
        order = np.random.default_rng(0).permutation(len(x))
        cut = len(x) // 10
        x, y, x_test, y_test = x[order[cut:]], y[order[cut:]], x[order[:cut]], y[order[:cut]]
    keras.utils.set_random_seed(seed)
    model = case.build(x)
    kinds, own = METHODS[method]
    optimizer = kinds[case.optimizer](rate, l2_norm_clip=clip, target_epsilon=epsilon, delta=DELTA, **own)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    model.fit(x, y, batch_size=case.lot, epochs=case.epochs, verbose=0)
    assert tfdp.accounting.epsilon(optimizer.ledger, delta=DELTA) <= epsilon
    return float(model.evaluate(x_test, y_test, batch_size=1000, verbose=0)[1])


def study(options: argparse.Namespace) -> None:
    done: dict[str, float] = {}
    file = Path(options.json)
    if file.exists():
        done = {json.dumps(one["run"]): one["accuracy"] for one in map(json.loads, file.read_text().splitlines())}
    file.parent.mkdir(parents=True, exist_ok=True)
    for name, epsilon in itertools.product(options.cases, options.epsilons):
        case, data = CASES[name], _load(options.data_dir, CASES[name])

        def accuracy(*setting, name=name, case=case, data=data) -> float:
            key = json.dumps([name, *setting])
            if key not in done:
                done[key] = run(case, *setting, data)
                with file.open("a") as lines:
                    lines.write(json.dumps({"run": [name, *setting], "accuracy": done[key]}) + "\n")
            return done[key]

        for method in options.methods:
            grid = itertools.product(case.learning_rates, case.clips)
            tuned = {pair: accuracy(method, epsilon, *pair, 10**6, True) for pair in grid}
            best = max(tuned, key=tuned.get)
            found = [accuracy(method, epsilon, *best, seed, False) for seed in range(options.seeds)]
            spread = f"{100 * min(found):.1f} to {100 * max(found):.1f}"
            row = [name, f"{epsilon:g}", method, f"{100 * np.mean(found):.1f}", spread, *map(str, best)]
            print("| " + " | ".join(row) + " |", flush=True)


def _load(folder: str, case: Case) -> tuple[np.ndarray, ...]:
    with np.load(Path(folder) / f"{case.data}.npz") as data:
        x, x_test = case.prepare(data["x_train"]), case.prepare(data["x_test"])
        return x, data["y_train"].astype(np.int32), x_test, data["y_test"].astype(np.int32)


def figure() -> None:
    """By how much the published noise misses its own constraint, and where the clip has its shape."""
    random, spreads = np.random.default_rng(0), np.linspace(0, 3, 25)
    missed = []
    for spread in spreads:
        draws = [published_scales([random.lognormal(0, spread, 1000)], 1.0, 1.0) for _ in range(20)]
        missed.append(np.mean([1 / np.min(sigma) ** 2 for (sigma,) in draws]))
    picture, axes = plots.pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    axes.semilogy(spreads, missed, label="as published: clipped to a ball")
    axes.semilogy(spreads, np.ones_like(spreads), label="clipped in the shape of the noise")
    axes.set(xlabel="spread of log w", ylabel="worst $\\sum \\Delta_i^2 / \\sigma_i^2$, in units of $\\tau$")
    axes.legend()
    picture.savefig(protocol.ROOT / "docs" / "directional.png", dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.directional", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("figure")
    options = commands.add_parser("study")
    options.add_argument("--data-dir", required=True, help="where <name>.npz lie")
    options.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options.add_argument("--epsilons", nargs="+", type=float, default=[0.2, 1.0, 3.0])
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--json", default="results/directional.jsonl")
    options = parser.parse_args()
    figure() if options.command == "figure" else study(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
