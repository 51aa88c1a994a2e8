"""What a paper's table or figure is, as plain data: rows of runs, or numbers that are computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from experiments.campaign import Record, Run
from experiments.report.figures import Panel

SCORE, GAP, STEP = "score", "optimality gap", "milliseconds a step"
BY_X, BY_EPOCH, EPOCHS_TO_REACH = "by x", "by epoch", "epochs to reach"


@dataclasses.dataclass(frozen=True)
class Row:
    """One setting of a table, one point or one curve of a figure.

    Attributes:
        series: the line it belongs to.
        run: what is run, once for each seed.
        x: where it stands on the horizontal axis.
        panel: the plot it belongs to, a data set as a rule.
        published: the paper's score.
        nominal: the epsilon that the paper states of it.
        grid: runs of which the best on held-out records is taken in place of `run`.
    """

    series: str
    run: Run
    x: float | None = None
    panel: str = ""
    published: float | None = None
    nominal: float | None = None
    grid: tuple[Run, ...] = ()


@dataclasses.dataclass(frozen=True)
class Column:
    """More than the usual in a table: a cell of a row and its runs, one a seed."""

    name: str
    of: Callable[[Row, Sequence[Record]], str]


@dataclasses.dataclass(frozen=True)
class Study:
    """A table or figure for which models are trained.

    Attributes:
        results: the file that its runs are in; tables of one paper share runs.
        about: what it shows, in a sentence or two.
        x_label: of the axis that rows stand on.
        plot: BY_X, BY_EPOCH or EPOCHS_TO_REACH.
        measure: SCORE, GAP or STEP.
        highest: the best score of all epochs counts, as in papers that report it, not the last one.
    """

    name: str
    results: str
    title: str
    about: str
    rows: tuple[Row, ...]
    x_label: str = ""
    plot: str = BY_X
    measure: str = SCORE
    highest: bool = False
    log_x: bool = False
    columns: tuple[Column, ...] = ()
    notes: tuple[str, ...] = ()
    seeds: int = 5


@dataclasses.dataclass(frozen=True)
class Computed:
    """The numbers of a figure that needs no training."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    panels: tuple[Panel, ...]


@dataclasses.dataclass(frozen=True)
class Computation:
    """A table or figure of privacy accounting alone; its argument says whether it is a trial."""

    name: str
    title: str
    about: str
    compute: Callable[[bool], Computed]
    notes: tuple[str, ...] = ()
