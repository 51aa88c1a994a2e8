"""The papers' tables and figures by name; one module a paper, with its settings in one place."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.papers.study import Computation, Study

_MODULES = {
    "bu_2019": {
        "gdp-table1": "Bu et al. 2019: MNIST, six noises (6 settings, 350 epochs)",
        "gdp-table2": "Bu et al. 2019: Adult income",
        "gdp-table3": "Bu et al. 2019: IMDb reviews",
        "gdp-table4": "Bu et al. 2019: MovieLens, RMSE",
        "gdp-figure2": "Bu et al. 2019: epsilon and delta by accountant (computed)",
        "gdp-figure3": "Bu et al. 2019: trade-off curves of table 1 (computed)",
        "gdp-figure4": "Bu et al. 2019: accuracy by epoch at equal nominal epsilon",
    },
    "xiang_2021": {
        "directional-table2": "Xiang et al. 2021: time of a step of each method",
        "directional-figure3": "Xiang et al. 2021: accuracy by epoch",
        "directional-figure4": "Xiang et al. 2021: accuracy by epsilon",
        "directional-figure5": "Xiang et al. 2021: accuracy by lot size and pruning ratio",
        "directional-figure6": "Xiang et al. 2021: accuracy by clip",
    },
    "nasr_2020": {
        "encoding-figure2": "Nasr et al. 2020: accuracy and epsilon at a fixed number of epochs",
        "encoding-figure3": "Nasr et al. 2020: best accuracy by epsilon",
        "encoding-figure4": "Nasr et al. 2020: accuracy by epoch",
        "encoding-figure5": "Nasr et al. 2020: with and without denoising",
        "encoding-figure6": "Nasr et al. 2020: distortion of each noise (computed)",
        "encoding-figure7": "Nasr et al. 2020: epochs to reach an accuracy",
    },
    "kang_2020_data": {
        "data-perturbation-figure1": "Kang et al. 2020 (data perturbation): accuracy by epsilon",
        "data-perturbation-figure2": "Kang et al. 2020 (data perturbation): optimality gap by epsilon",
    },
    "kang_2020_input": {
        "input-perturbation-figure2": "Kang et al. 2020 (input perturbation): accuracy by epsilon, large sets",
        "input-perturbation-figure3": "Kang et al. 2020 (input perturbation): optimality gap by epsilon, large sets",
        "input-perturbation-figure4": "Kang et al. 2020 (input perturbation): both, small sets",
    },
}
TITLES = {name: title for titles in _MODULES.values() for name, title in titles.items()}


def named(name: str) -> Study | Computation:
    """What a name stands for. Modules are loaded when one of theirs is wanted."""
    if name not in TITLES:
        raise ValueError(f"There is no table or figure {name!r}. There are {', '.join(TITLES)}.")
    (module,) = (module for module, titles in _MODULES.items() if name in titles)
    studies = importlib.import_module(f"experiments.papers.{module}").STUDIES
    return next(one for one in studies if one.name == name)
