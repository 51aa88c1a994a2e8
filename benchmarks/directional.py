"""Is shaped noise worth it? Directional noise and AdaClip against isotropic noise, at the same proven epsilon.

    python -m benchmarks.directional study --data-dir DIR --cases adult imdb --epsilons 0.2 1 3 --json results/directional.jsonl
    python -m benchmarks.directional table --json results/directional.jsonl
    python -m benchmarks.directional cost          what a step of each method costs, on cnn@256
    python -m benchmarks.directional figure        draws the picture of docs/directional.md

Study: every method trains the case's network to the target epsilon (delta 1e-5, PLD accountant) through `model.fit`. Learning rate
and clip of each method are the best of the same grid at `--tuning-epsilon`, by the score on a tenth of the training records
that is held out, with one seed. With them it trains on all training records, at every epsilon once for each of the `--seeds`,
and the test score is reported.
Tuning looks at the records without paying for it: results compare methods, they are no recipe.

`DIR/<name>.npz` holds x_train, y_train, x_test, y_test. Records of a name that ends in "_raw" are tables as they were published:
numbers in their own units, one-hot categories. Every finished run is a line of the JSON file; a second call goes on where the
first was stopped. Table: the same for what a study has finished.
"""

import argparse
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

import tfdp
from benchmarks import plots, protocol, sides, workloads
from experiments import scores
from experiments.results import Results
from experiments.tables import markdown
from models import bu_2019, xiang_2021
from tfdp.mechanisms.published import published_scales

DELTA = 1e-5
TUNING_SEED = 10**6
KNOWN_MOMENTS = "directional, m known"  # of cases that say which
METHODS: dict[str, tuple[dict[str, type], dict]] = {
    "isotropic": ({"sgd": tfdp.NoisySGD, "adam": tfdp.NoisyAdam}, {}),
    "directional": ({"sgd": tfdp.DirectionalDPSGD, "adam": tfdp.DirectionalDPAdam}, {}),
    "directional, w = 1": ({"sgd": tfdp.DirectionalDPSGD, "adam": tfdp.DirectionalDPAdam}, {"direction": "ones"}),
    KNOWN_MOMENTS: ({"sgd": tfdp.DirectionalDPSGD, "adam": tfdp.DirectionalDPAdam}, {"direction": "ones"}),
    "adaclip": ({"sgd": tfdp.AdaClipDPSGD, "adam": tfdp.AdaClipDPAdam}, {}),
}


def negative_rmse(model: keras.Model, x: scores.Features, y: np.ndarray) -> float:
    """More is better, as of accuracy."""
    return -scores.rmse(model, x, y)


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
    prepare: Callable[[np.ndarray], scores.Features] = lambda x: x
    first_class: int = 0
    score: Callable[[keras.Model, scores.Features, np.ndarray], float] = scores.accuracy
    own: dict[str, dict] = dataclasses.field(default_factory=dict)  # arguments of a method in this case
    own_rates: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)  # of a method with shorter steps


def _logistic(x: np.ndarray) -> keras.Model:
    return keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(2, kernel_initializer="zeros")])


def _images(x: np.ndarray) -> np.ndarray:
    return (x[..., None] / 255.0).astype(np.float32)


def _pairs(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"user": x[:, 0], "movie": x[:, 1]}


def _of_words(weight: keras.Variable) -> np.ndarray | float:
    """Words are numbered by how frequent they are in English (Zipf's law), texts have 256: the mean square of a word's share
    of a text. The other weights are taken to be like the most frequent word's."""
    share = 0.1 / np.maximum(np.arange(10_000), 1.0)
    known = (share**2 + share / 256)[:, None]
    return known if weight.shape[0] == len(known) else 0.01


def _of_units(weight: keras.Variable) -> np.ndarray | float:
    """Seconds within two days, 28 standardised numbers, an amount of money."""
    return np.array([172_800.0, *[1.0] * 28, 100.0])[:, None] ** 2 if len(weight.shape) == 2 else 1.0


CASES = {
    "adult": Case("adult", lambda x: bu_2019.adult_mlp(), 256, 6, "adam", (0.003, 0.01, 0.03)),
    "adult, sgd": Case("adult", lambda x: bu_2019.adult_mlp(), 256, 6, "sgd", (0.1, 0.5, 2.0)),
    "creditcard": Case("creditcard", _logistic, 128, 20, "adam", (0.003, 0.03, 0.3)),
    "creditcard, raw": Case(
        "creditcard_raw",
        _logistic,
        128,
        20,
        "adam",
        (0.01, 0.1),
        (0.01, 0.1, 10.0),
        own={KNOWN_MOMENTS: {"moments": _of_units, "s_min": 1e-6, "s_max": 1e6}},
    ),
    "imdb": Case(
        "imdb",
        lambda x: bu_2019.imdb_text(),
        512,
        3,
        "adam",
        (0.01, 0.03, 0.1),
        own={KNOWN_MOMENTS: {"moments": _of_words}},
    ),
    "mnist cnn": Case("mnist", lambda x: bu_2019.mnist_cnn(), 1024, 2, "adam", (0.003, 0.01), (0.1, 1.0), _images),
    "mnist lenet": Case("mnist", lambda x: xiang_2021.lenet5(), 1024, 2, "adam", (0.003, 0.01), (0.1, 1.0), _images),
    "movielens": Case(
        "movielens1m",
        lambda x: bu_2019.movielens_ncf(),
        10_000,
        3,
        "adam",
        (0.01, 0.03),
        (0.1, 1.0),
        _pairs,
        first_class=1,
        score=negative_rmse,
    ),
}


def run(case: Case, method: str, epsilon: float, rate: float, clip: float, seed: int, held_out: bool, data) -> float:
    """Test score of one run, or the score on the records that are held out."""
    x, y, x_test, y_test = data
    if held_out:
        order = np.random.default_rng(0).permutation(len(y))
        cut = len(y) // 10
        x, x_test = (keras.tree.map_structure(lambda a, part=part: a[part], x) for part in (order[cut:], order[:cut]))
        y, y_test = y[order[cut:]], y[order[:cut]]
    keras.utils.set_random_seed(seed)
    model = case.build(x)
    kinds, own = METHODS[method]
    own = own | case.own.get(method, {})
    optimizer = kinds[case.optimizer](rate, l2_norm_clip=clip, target_epsilon=epsilon, delta=DELTA, **own)
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, batch_size=case.lot, epochs=case.epochs, verbose=0)
    assert tfdp.accounting.epsilon(optimizer.ledger, delta=DELTA) <= epsilon
    return case.score(model, x_test, y_test)


def study(options: argparse.Namespace) -> None:
    results = Results(Path(options.json))
    for name in options.cases:
        case = CASES[name]
        data = _load(options.data_dir, case)
        methods = [m for m in options.methods if m != KNOWN_MOMENTS or m in case.own]
        for epsilon, method in itertools.product(options.epsilons, methods):

            def score(*setting, name=name, case=case, data=data) -> float:
                if (name, *setting) not in results.scores:
                    results.add((name, *setting), run(case, *setting, data))
                return results.scores[(name, *setting)]

            if options.setting:
                best = tuple(options.setting)
            else:
                grid = itertools.product(case.own_rates.get(method, case.learning_rates), case.clips)
                tuned = {pair: score(method, options.tuning_epsilon, *pair, TUNING_SEED, True) for pair in grid}
                best = max(tuned, key=tuned.get)
            found = [score(method, epsilon, *best, seed, False) for seed in range(options.seeds)]
            print(row(name, epsilon, method, best, found), flush=True)


def row(name: str, epsilon: float, method: str, best: tuple[float, float], found: list[float]) -> str:
    digits = 1 if CASES[name].score is scores.accuracy else 3
    found = np.abs(found)  # some scores are errors, negative
    mean, low, high = (f"{value:.{digits}f}" for value in (found.mean(), found.min(), found.max()))
    cells = [name, f"{epsilon:g}", method, mean, f"{low} to {high}", str(len(found)), *(f"{b:g}" for b in best)]
    return "| " + " | ".join(cells) + " |"


def table(options: argparse.Namespace) -> None:
    """A row for each method, case and epsilon of which runs with all records are there, at the learning rate and clip that tuning
    finds best."""
    held_out: dict[tuple, dict[tuple, float]] = {}
    found: dict[tuple, dict[int, float]] = {}
    for (name, method, epsilon, rate, clip, seed, is_tuning), score in Results(Path(options.json)).scores.items():
        if is_tuning:
            held_out.setdefault((name, method), {})[rate, clip] = score
        else:
            found.setdefault((name, epsilon, method, (rate, clip)), {})[seed] = score
    print("| case | epsilon | method | mean | range | runs | learning rate | clip |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    order = list(CASES), list(METHODS)
    for key in sorted(found, key=lambda k: (order[0].index(k[0]), k[1], order[1].index(k[2]))):
        tuned = held_out.get((key[0], key[2]), {})
        if not tuned or key[3] == max(tuned, key=tuned.get):
            print(row(*key, list(found[key].values())))


def _load(folder: str, case: Case) -> tuple:
    with np.load(Path(folder) / f"{case.data}.npz") as data:
        x, x_test = case.prepare(data["x_train"]), case.prepare(data["x_test"])
        y, y_test = (data[name].astype(np.int32) - case.first_class for name in ("y_train", "y_test"))
        return x, y, x_test, y_test


def cost(options: argparse.Namespace) -> None:
    """Steps of every method through fit, in turn: see `benchmarks/step_cost.py`."""
    workload = workloads.get("cnn@256")
    records = workload.records(workload.steps * workload.lot)
    fits = {}
    for method, (kinds, own) in METHODS.items():
        own = own | ({"moments": lambda weight: 1.0} if method == KNOWN_MOMENTS else {})
        model = workload.model()
        optimizer = kinds["sgd"](sides.RATE, l2_norm_clip=sides.CLIP, noise_multiplier=sides.NOISE, **own)
        model.compile(optimizer=optimizer, loss=workload.loss())
        fits[method] = functools.partial(sides.fit, model, workload, records, 4)
        fits[method]()
    found = sides.timed_fits(fits, dict.fromkeys(fits, workload.steps), options.repeats, "wall")
    isotropic = found["isotropic"]["step_ms"]["median"]
    rows = [
        [method, f"{one['step_ms']['median']:.1f}", f"{one['step_ms']['median'] / isotropic:.2f}"]
        for method, one in found.items()
    ]
    print(markdown(["method", "a step of cnn@256, ms", "ratio"], rows))


def figure(options: argparse.Namespace) -> None:
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
    commands.add_parser("cost").add_argument("--repeats", type=int, default=5)
    options = commands.add_parser("study")
    for command in (commands.add_parser("table"), options):
        command.add_argument("--json", default="results/directional.jsonl")
    options.add_argument("--data-dir", required=True, help="where <name>.npz lie")
    options.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    options.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options.add_argument("--epsilons", nargs="+", type=float, default=[0.2, 1.0, 3.0])
    options.add_argument("--tuning-epsilon", type=float, default=1.0)
    options.add_argument("--setting", nargs=2, type=float, help="learning rate and clip, in place of tuning")
    options.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    {"cost": cost, "figure": figure, "table": table, "study": study}[options.command](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
