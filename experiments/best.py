"""Our best by data set: what trained best of what was tried. Where a row has several settings, one is chosen on held-out records
with another seed; a single one was set beforehand, or found in the same way by hand (`docs/results.md` says of each).

From scratch, no public data. The paper's number that stands beside ours is at the epsilon that is said in the notes. On fixed wavelets
it is that of Tramer and Boneh 2021, whose idea they are.
"""

from __future__ import annotations

from typing import Any

from experiments.campaign import TrainingRun
from experiments.papers.study import Row, Study
from experiments.settings import RunSettings

TITLES = {
    "mnist": "MNIST, one convolution on wavelets, fixed or trained",
    "cifar10": "CIFAR-10, one convolution on wavelets, fixed or trained",
    "adult": "Adult income, logistic regression",
    "imdb": "IMDb reviews, which words occur, and the paper's network",
    "movielens1m": "MovieLens, how generous a user and how liked a movie is",
}


def named(name: str) -> Study:
    """What a name stands for."""
    if name not in TITLES:
        raise ValueError(f"There is no best of {name!r}. There are {', '.join(TITLES)}.")
    return STUDIES[name]


def _row(
    epsilon: float, published: float | None, base: dict[str, Any], *choices: dict[str, Any], what: str = ""
) -> Row:
    """Of the choices, if there are several, the best on held-out records is run. `what` tells rows of one epsilon apart."""
    runs = tuple(
        TrainingRun(RunSettings.of(**({"epsilon": epsilon, "method": "noisy-sgd", "momentum": 0.9} | base | choice)))
        for choice in choices
    )
    return Row(f"epsilon {epsilon:g}{what}", runs[0], published=published, grid=runs if len(runs) > 1 else ())


def _study(dataset: str, about: str, paper: str, *rows: Row, note: str = "") -> Study:
    notes = (f"The paper's number is {paper}.", *([note] if note else []))
    return Study(f"best-{dataset}", "best", f"Our best: {TITLES[dataset]}", about, rows, notes=notes)


_MNIST = {"dataset": "mnist", "clip": 0.1, "ema": 0.98}
_WAVELETS, _TRAINED = _MNIST | {"model": "scattering_cnn"}, _MNIST | {"model": "wavelet_cnn"}
_FIXED, _ALL = ", fixed wavelets", ", all layers trained"
_ADULT = {"dataset": "adult", "model": "adult_attributes", "clip": 1.0}
_IMDB_PAPER = {"dataset": "imdb", "model": "imdb_text", "method": "directional-adam", "momentum": None}
_IMDB_PAPER |= {"batch_size": 1024, "epochs": 9, "clip": 0.1, "arguments": {"direction": "ones"}}
_IMDB = {"dataset": "imdb", "model": "bag_of_words", "batch_size": 5000, "epochs": 20, "clip": 0.5, "ema": 0.9}
_MOVIELENS = {
    "dataset": "movielens1m",
    "model": "rating_biases",
    "batch_size": 80_000,
    "epochs": 20,
    "clip": 40.0,
    "ema": 0.9,
}

STUDIES = {
    "mnist": _study(
        "mnist",
        "Wavelets in front (scattering), one convolution with bounded activations, a short clip, large lots, momentum. Wavelets are fixed, or "
        "what trained filters start from.",
        "98.7 at epsilon 3 with fixed wavelets (Tramer and Boneh 2021), and 98.1 at epsilon 2.93 with all layers trained from random weights on (Papernot et al. 2021)",
        _row(
            1.0,
            98.7,
            _WAVELETS | {"batch_size": 2048},
            {"epochs": 15, "learning_rate": 3.0},
            {"epochs": 25, "learning_rate": 3.0},
            what=_FIXED,
        ),
        _row(
            2.93,
            98.7,
            _WAVELETS | {"batch_size": 1024},
            {"epochs": 20, "learning_rate": 2.0},
            {"epochs": 30, "learning_rate": 1.5},
            what=_FIXED,
        ),
        _row(1.0, None, _TRAINED | {"batch_size": 2048}, {"epochs": 15, "learning_rate": 3.0}, what=_ALL),
        _row(2.93, 98.1, _TRAINED | {"batch_size": 1024}, {"epochs": 15, "learning_rate": 2.5}, what=_ALL),
    ),
    "cifar10": _study(
        "cifar10",
        "Wavelets in front (scattering), one convolution with bounded activations, a short clip, momentum. Wavelets are fixed, or what trained "
        "filters start from.",
        "69.3 at epsilon 3, with fixed wavelets (Tramer and Boneh 2021), and 66.2 at epsilon 7.53 with all layers trained from random weights on (Papernot et al. 2021)",
        _row(
            7.53,
            69.3,
            {"dataset": "cifar10", "model": "scattering_cnn", "clip": 0.1},
            {"batch_size": 1024, "epochs": 10, "learning_rate": 2.0, "ema": 0.98},
            {"batch_size": 2048, "epochs": 20, "learning_rate": 2.0, "ema": 0.95},
            what=_FIXED,
        ),
        _row(
            7.53,
            66.2,
            {"dataset": "cifar10", "model": "colour_wavelet_cnn", "clip": 0.1, "ema": 0.98},
            {"batch_size": 1024, "epochs": 10, "learning_rate": 2.0},
            what=_ALL,
        ),
    ),
    "adult": _study(
        "adult",
        "The fewest weights, lots of half of all records and more, averaged weights; ten of the fourteen attributes, chosen by what they are "
        "called.",
        "84.0 at epsilon 10.2 (Bu et al. 2019, table 2)",
        _row(
            0.05,
            84.0,
            _ADULT | {"batch_size": 16_384, "epochs": 40, "ema": 0.95},
            {"learning_rate": 0.2},
            {"learning_rate": 0.35},
        ),
        _row(
            0.5,
            84.0,
            _ADULT | {"batch_size": 29_000, "epochs": 45, "ema": 0.9},
            {"learning_rate": 2.0},
            {"learning_rate": 3.0},
            {"learning_rate": 5.0},
        ),
    ),
    "imdb": _study(
        "imdb",
        "Logistic regression on which words occur, frequent words weighing less; and the paper's network with noise on a scale of each weight's own.",
        "83.8 at epsilon 10.43 (Bu et al. 2019, table 3)",
        _row(1.0, 83.8, _IMDB, {"learning_rate": 8.0}, {"learning_rate": 15.0}),
        _row(4.0, 83.8, _IMDB, {"learning_rate": 12.0}, {"learning_rate": 20.0}, {"learning_rate": 35.0}),
        _row(
            10.43,
            83.8,
            _IMDB_PAPER,
            {"learning_rate": 0.1},
            {"learning_rate": 0.3},
            what=", the paper's network",
        ),
        note="Logistic regression weighs words by their number, which is how frequent they are in these very reviews, as the data's publisher counted: no epsilon "
        "here covers that.",
    ),
    "movielens1m": _study(
        "movielens1m",
        "One number for each user and each movie.",
        "0.915 at epsilon 10.61 (Bu et al. 2019, table 4)",
        _row(1.0, 0.915, _MOVIELENS, {"learning_rate": 0.01}, {"learning_rate": 0.03}),
        _row(4.0, 0.915, _MOVIELENS, {"learning_rate": 0.03}, {"learning_rate": 0.06}),
    ),
}
