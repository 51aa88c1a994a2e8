"""Kang, Liu, Niu, Tong, Zhang and Wang 2020, Input Perturbation: A New Paradigm between Central and Local Differential Privacy: figures 2 to 4."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.campaign import Record
from experiments.papers import kang
from experiments.papers.kang import LARGE, MLP, SMALL
from experiments.papers.study import GAP, SCORE, Column, Row, Study

PAPER = "Kang et al. 2020, input perturbation"
EPSILONS = (0.01, 0.05, 0.1, 0.25)
# The paper's baselines: Kifer et al. 2012, Zhang et al. 2017, Bassily et al. 2014 (here in lots), Wang et al. 2017.
CONVEX = ("objective", "gradient descent", "gradient", "gradient, all records", "input, as published", "input")
NETWORK = {
    "gradient": "noisy-sgd",
    "input, as published": "input-perturbation-published",
    "input": "input-perturbation",
}


def _large() -> tuple[Row, ...]:
    found: list[Row] = []
    for dataset in LARGE:
        found += kang.convex_rows(dataset, CONVEX, EPSILONS)
        found.append(kang.not_private(dataset, MLP))
        found += kang.network_rows(dataset, MLP, NETWORK, EPSILONS)
    return tuple(found)


def _small() -> tuple[Row, ...]:
    return tuple(row for dataset in SMALL for row in kang.convex_rows(dataset, CONVEX, EPSILONS))


_NOTES = (
    '"gradient descent" is output perturbation of Zhang et al. 2017, "gradient, all records" Wang et al. 2017 without variance reduction. '
    '"gradient" is noisy SGD in lots, in place of the n^2 steps on one record each of Bassily et al. 2014.',
    '"input, as published" is the paper\'s noise, "input" the least noise that proves epsilon, of the features of a record: a far stronger claim.',
    *kang.NOTES,
)


def _study(number: int, what: str, rows: tuple[Row, ...], measure: str) -> Study:
    name, title = f"input-perturbation-figure{number}", f"{PAPER}, figure {number}"
    columns = (Column("optimality gap", _gap),) if number == 4 else ()
    return Study(
        name, "kang_2020", title, what, rows, "epsilon", measure=measure, log_x=True, columns=columns, notes=_NOTES
    )


def _gap(row: Row, records: Sequence[Record]) -> str:
    return f"{np.mean([record['gap'] for record in records]):.3g}"


STUDIES = (
    _study(2, "Accuracy by epsilon on large data sets, logistic regression and one hidden layer.", _large(), SCORE),
    _study(3, "Optimality gap by epsilon on large data sets, logistic regression and one hidden layer.", _large(), GAP),
    _study(
        4,
        "Accuracy by epsilon on small data sets, logistic regression; the gap of the same runs stands beside it.",
        _small(),
        SCORE,
    ),
)
