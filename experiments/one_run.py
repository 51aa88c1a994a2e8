"""`train.py run`: one run, from the command's settings to a finished folder."""

from __future__ import annotations

import os
from pathlib import Path

from experiments import training
from experiments.folder_lock import alone_in
from experiments.report import run_report
from experiments.report.figures import check_can_draw
from experiments.run_folder import RunFolder
from experiments.settings import RunSettings


def execute(
    settings: RunSettings,
    path: Path,
    data_dir: str | os.PathLike | None,
    command: str,
    tensorboard: bool = False,
    verbose: str | int = "auto",
) -> None:
    """Trains, or goes on, or says that there is nothing to do. What is refused leaves nothing behind."""
    check_can_draw()
    if tensorboard:
        training.check_tensorboard()
    folder = RunFolder(path)
    folder.check(settings)
    if not (folder.finished and (path / run_report.FILE).exists()):
        with alone_in(path, "give another --name or --folder"):
            if not folder.finished:
                _train(settings, folder, data_dir, command, tensorboard, verbose)
                return
            run_report.write(folder)  # broken off while it was written
            training.clean(path)
    print(
        f"{path} is finished already. Its report: {path / run_report.FILE}. To run it again, delete the folder or give --name."
    )


def _train(
    settings: RunSettings,
    folder: RunFolder,
    data_dir: str | os.PathLike | None,
    command: str,
    tensorboard: bool,
    verbose: str | int,
) -> None:
    """All that a run leaves."""
    data = training.load(settings, data_dir)
    training.check(settings, data)
    folder.begin(settings, command)
    if not training.is_private(settings):
        print(f"\n{run_report.NO_PRIVACY}\n")
    trained = training.train(settings, data, folder.path, verbose, tensorboard)
    folder.finish(trained.model, trained.statement, trained.record)
    run_report.write(folder)
    training.clean(folder.path)
    print(f"\n{trained.statement}\n")
    scored = f"{run_report.scored_on(settings.to_json()).capitalize()} {trained.record['metric']}"
    print(f"{scored}: {run_report.score_text(trained.record)} of {trained.record['test_records']:,} records.")
    print(f"Model, statement, history and report are in {folder.path}: open {folder.path / run_report.FILE}.")
