"""What both papers of Kang et al. 2020 share: data sets, models, and rows of every method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from experiments import convex
from experiments.campaign import TrainingRun
from experiments.convex import ConvexRun
from experiments.papers.influence import InfluenceRun
from experiments.papers.study import Row
from experiments.settings import RunSettings

LARGE, SMALL = ("kddcup99", "adult", "bank"), ("breast_cancer", "creditcard", "iris")
LR, MLP = "logistic regression", "one hidden layer"
MODELS = {LR: "logistic_regression", MLP: "one_hidden_layer"}
NETWORK_NOT_PRIVATE = "no privacy, Adam"
GRADIENT = {"batch_size": 256, "epochs": 10, "clip": 1.0, "learning_rate": 0.5}
ORDINARY = {"batch_size": 256, "epochs": 20, "learning_rate": 0.003}
NOTES = (
    "The papers choose steps and learning rates by cross-validation. Here penalties and learning rates of the convex methods are chosen on "
    "held-out records; numbers of steps, and all settings of networks and of Keras's logistic regression, are fixed.",
    "Data sets are standardised by their own statistics, which no epsilon here covers. delta is the largest power of ten below 1 / (number of "
    "records).",
    "Formulas of the papers have constants that they do not give (c, the Lipschitz constant): here both are 1.",
    "The claim of input and data perturbation about the model does not follow from the noise: nominal epsilon is the papers', proven is about the "
    "features of the records that were trained on.",
    "The gap is L(w) - L* on the training records, with a penalty of 0.0005 ||w||^2 for the convex methods (of a fit of its own, with that "
    "penalty); for networks L is the mean loss, and L* the smallest of any run in the plot. The gap is not private.",
)


def panel(dataset: str, model: str) -> str:
    return f"{dataset}, {model}"


def delta(dataset: str) -> float:
    return 1e-3 if dataset in SMALL else 1e-5


def convex_rows(dataset: str, methods: Iterable[str], epsilons: Iterable[float]) -> list[Row]:
    """Logistic regression; penalty or learning rate is the best of the method's grid."""
    here = panel(dataset, LR)
    rows = [
        Row(method, convex.grid(dataset, method, e)[0], e, here, nominal=e, grid=convex.grid(dataset, method, e))
        for method in methods
        for e in epsilons
    ]
    return [Row(convex.NOT_PRIVATE, ConvexRun(dataset, convex.NOT_PRIVATE, 0.0, 0.0), panel=here), *rows]


def network_rows(dataset: str, model: str, methods: dict[str, str], epsilons: Iterable[float]) -> list[Row]:
    """A Keras model by ways of training that `METHODS` names."""
    rows = []
    for name, method in methods.items():
        own = GRADIENT if method in ("noisy-sgd", "dp-lssgd") else ORDINARY
        rows += [
            Row(
                name, TrainingRun(settings(dataset, model, method, own, epsilon=e)), e, panel(dataset, model), nominal=e
            )
            for e in epsilons
        ]
    return rows


def not_private(dataset: str, model: str) -> Row:
    run = TrainingRun(settings(dataset, model, "no-privacy-adam", ORDINARY))
    return Row(NETWORK_NOT_PRIVATE, run, panel=panel(dataset, model))


def influence_rows(dataset: str, model: str, epsilons: Iterable[float]) -> list[Row]:
    """The performance improving form of DBDP-ERM, on a network."""
    pretraining = settings(dataset, model, "no-privacy-adam", ORDINARY)
    return [Row("improved DBDP", InfluenceRun(pretraining, e), e, panel(dataset, model), nominal=e) for e in epsilons]


def settings(dataset: str, model: str, method: str, own: dict[str, Any], epsilon: float | None = None) -> RunSettings:
    """A way of training one of the papers' models."""
    own = own | {"batch_size": min(own["batch_size"], 30 if dataset == "iris" else 128 if dataset in SMALL else 256)}
    given = {"model": MODELS[model], "delta": delta(dataset), "training_loss": True} | own
    if method == "data-perturbation-published" or method == "input-perturbation-published":
        given["clip"] = 1.0  # what the papers take features to be
    return RunSettings.of(dataset, method, epsilon=epsilon, **given)
