"""`train.py run`: one run, from the command's settings to a finished folder."""

from __future__ import annotations

import os

from experiments import training
from experiments.report import run_report
from experiments.report.figures import check_can_draw
from experiments.run_folder import RunFolder
from experiments.settings import RunSettings


def execute(
    settings: RunSettings,
    folder: RunFolder,
    data_dir: str | os.PathLike | None,
    command: str,
    tensorboard: bool = False,
    verbose: str | int = "auto",
) -> None:
    """Trains, or goes on. What can be refused is refused before anything is written."""
    check_can_draw()
    if tensorboard:
        training.check_tensorboard()
    data = training.load(settings, data_dir)
    training.check(settings, data)
    folder.begin(settings, command)
    if folder.finished:  # broken off while its report was written
        run_report.write(folder)
        training.clean(folder.path)
        print(folder.finished_already)
        return
    if not training.is_private(settings):
        print(f"\n{run_report.NO_PRIVACY}\n")
    trained = training.train(settings, data, folder.path, verbose, tensorboard)
    folder.finish(trained.model, trained.statement, trained.record)
    run_report.write(folder)
    training.clean(folder.path)
    print(f"\n{trained.statement}\n")
    scored = f"{run_report.scored_on(settings.to_json()).capitalize()} {trained.record['metric']}"
    print(f"{scored}: {run_report.score_text(trained.record)} of {trained.record['test_records']:,} records.")
    print(f"Model, statement, history and report are in {folder.path}: open {folder.report}.")
