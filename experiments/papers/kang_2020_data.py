"""Kang, Liu, Li and Wang 2020, Differentially Private ERM Based on Data Perturbation: figures 1 and 2."""

from __future__ import annotations

from experiments.papers import kang
from experiments.papers.kang import LARGE, LR, MLP, SMALL
from experiments.papers.study import GAP, SCORE, Row, Study

PAPER = "Kang et al. 2020, data perturbation"
EPSILONS = (0.01, 0.1, 1.0, 3.0, 7.0)
CONVEX = ("bolt-on SGD", "gradient", "DP-LSSGD", "DBDP")
NETWORK = {"gradient": "noisy-sgd", "DP-LSSGD": "dp-lssgd", "DBDP, algorithm 1": "data-perturbation-published"}


def _rows() -> tuple[Row, ...]:
    """Logistic regression on all sets, one hidden layer on the large ones."""
    found: list[Row] = []
    for dataset in (*LARGE, *SMALL):
        found += kang.convex_rows(dataset, CONVEX, EPSILONS)
        found.append(kang.not_private(dataset, LR))
        found += kang.network_rows(dataset, LR, {"DBDP, algorithm 1": "data-perturbation-published"}, EPSILONS)
    for dataset in LARGE:
        found.append(kang.not_private(dataset, MLP))
        found += kang.network_rows(dataset, MLP, NETWORK, EPSILONS)
        found += kang.influence_rows(dataset, MLP, EPSILONS)
    return tuple(found)


_NOTES = (
    "DBDP of the logistic regressions is the paper's algorithm 2 (noise on records of large influence) from the exact optimum, improved DBDP the same "
    "from a network that was trained: nothing is proven of either.",
    *kang.NOTES,
)
STUDIES = tuple(
    Study(
        f"data-perturbation-figure{number}",
        "kang_2020",
        f"{PAPER}, figure {number}",
        f"{about} by epsilon, logistic regression on six data sets and one hidden layer on three.",
        _rows(),
        "epsilon",
        measure=measure,
        log_x=True,
        notes=_NOTES,
    )
    for number, about, measure in ((1, "Accuracy", SCORE), (2, "Optimality gap", GAP))
)
