"""Our best by data set: what trained best of what was tried, each setting chosen on held-out records with another seed."""

from __future__ import annotations

from typing import Any

from experiments.campaign import TrainingRun
from experiments.papers.study import Row, Study
from experiments.settings import RunSettings

TITLES = {
    "best-mnist": "MNIST, a small convolutional network",
    "best-adult": "Adult income, large lots",
    "best-imdb": "IMDb reviews, which words occur",
    "best-movielens": "MovieLens, RMSE",
    "best-cifar10": "CIFAR-10, a convolutional network",
}


def named(name: str) -> Study:
    """What a name stands for."""
    if name not in TITLES:
        raise ValueError(f"There is no best {name!r}. There are {', '.join(TITLES)}.")
    return next(study for study in STUDIES if study.name == name)


def _row(published: float, base: dict[str, Any], *choices: dict[str, Any]) -> Row:
    """One target epsilon; the best of the choices on held-out records is what is run."""
    runs = tuple(TrainingRun(RunSettings.of(method="noisy-sgd", **base, **choice)) for choice in choices)
    return Row(f"epsilon {base['epsilon']:g}", runs[0], published=published, grid=runs)
