"""The command line. Nothing heavy is loaded before the arguments are known to be right."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import arguments, audit, best, papers
from experiments.folder_lock import InUse, alone_in
from experiments.run_folder import RunFolder, as_written
from experiments.settings import RunSettings, check_effect

_START = """
  python train.py                                       one private run on embedded digits, with its report
  python train.py run --dataset mnist --data-dir data   one run of any method on any data set
  python train.py sweep --methods noisy-adam directional-adam --epsilons 0.5 1 3 --seeds 3
  python train.py paper gdp-table1 --data-dir data      a table or figure of a paper, with ours beside it
  python train.py best adult --data-dir data            what trained best of what we tried, at small epsilons
  python train.py report saved_models/NAME              figures and report of what was run, made anew
  python train.py audit saved_models/NAME               attacks on a finished run: what epsilon can't be smaller than

Every command goes on where it was broken off, if it is given again. "train.py COMMAND --help" says more.
"""

# Arguments of an optimizer that have an option of their own.
_GIVEN_BY = {
    name: name for name in ("learning_rate", "momentum", "noise", "noise_multiplier", "delta", "max_physical_batch")
}
_GIVEN_BY |= {"l2_norm_clip": "clip", "target_epsilon": "epsilon", "use_ema": "ema", "ema_momentum": "ema"}


def main(given: Sequence[str] | None = None) -> int:
    """What to do, and an exit code."""
    given = list(sys.argv[1:] if given is None else given)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help")):
        given = ["run", *given]
    parser = _parser()
    for word in given:
        if word.startswith("--") and word.endswith("=--"):  # argparse makes an empty list of it, whatever the type
            parser.error(f"argument {word.removesuffix('=--')}: expected a value, not '--'")
    options = parser.parse_args(given)
    options.command_line = shlex.join(["python", "train.py", *given])
    try:
        options.do(options)
    except (ValueError, FileNotFoundError) as error:
        parser.exit(2, f"train.py {given[0]}: {error}\n")
    except InUse as error:
        parser.exit(1, f"train.py {given[0]}: {error}\n")
    except OSError as error:  # no room, or no permission
        told = "What is finished is kept; when there is room, and permission, the same command goes on from there:"
        parser.exit(1, f"train.py {given[0]}: {error}\n{told}\n  {options.command_line}\n")
    except KeyboardInterrupt:
        print(f"\nStopped. What is finished is kept; the same command goes on from there:\n  {options.command_line}")
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    wide = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "train.py",
        description="Differentially private training: runs, sweeps, papers, reports.\n" + _START,
        formatter_class=wide,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, about, takes, do in (
        ("run", "one run, with its model, privacy statement and report", arguments.of_run, _run),
        ("sweep", "methods x epsilons x seeds, side by side", arguments.of_sweep, _sweep),
        ("paper", "a table or figure of one of the papers", arguments.of_paper, _paper),
        ("best", "our best on a data set, each setting chosen on held-out records", arguments.of_best, _best),
        ("report", "figures and report of a folder, made anew", arguments.of_report, _report),
        ("audit", "attacks on a finished run, beside what is claimed of it", arguments.of_audit, _audit),
    ):
        one = commands.add_parser(
            name, help=about, description=about[0].upper() + about[1:] + ".", formatter_class=wide
        )
        takes(one)
        one.set_defaults(do=do)
    return parser


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given."""
    names = (
        "dataset",
        "model",
        "epochs",
        "batch_size",
        "learning_rate",
        "momentum",
        "clip",
        "ema",
        "noise",
        "delta",
        "records",
    )
    found = {name: getattr(options, name) for name in (*names, "max_physical_batch")}
    return found | {"arguments": dict(map(_argument, options.arguments)) or None, "held_out": options.held_out}


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--argument takes NAME=VALUE, such as pruning_ratio=0.9, not {text!r}.")
    if name in _GIVEN_BY:
        option = _GIVEN_BY[name].replace("_", "-")
        raise ValueError(f"The optimizer's {name} is given by --{option}, not by --argument.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _run(options: argparse.Namespace) -> None:
    own = {name: getattr(options, name) for name in ("epsilon", "noise_multiplier", "seed")}
    check_effect(options.method, _given(options))
    settings = RunSettings.of(**_given(options), method=options.method, **own)
    folder = RunFolder(options.folder / (options.name or settings.name))
    folder.check(settings)
    if folder.finished and folder.report.exists():
        print(folder.finished_already)
        return
    with alone_in(folder.path, "give another --name or --folder"):
        from experiments import one_run

        verbose = 2 if os.environ.get("CI") else "auto"
        one_run.execute(settings, folder, options.data_dir, options.command_line, options.tensorboard, verbose)


def _sweep(options: argparse.Namespace) -> None:
    from experiments import sweep
    from experiments.campaign import Campaign, TrainingRun
    from experiments.report.figures import check_can_draw

    if options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {options.seeds}.")
    settings = sweep.grid(_given(options), options.methods, options.epsilons, options.seeds)
    check_can_draw()
    folder = options.folder / (options.name or f"sweep-{options.dataset}")
    with alone_in(folder, "give another --name or --folder"):
        from experiments import training

        for one in settings:
            if one.seed == 0:
                training.check(one, training.load(one, options.data_dir))
        runs = [TrainingRun(one) for one in settings]
        records = Campaign(folder, "runs", options.data_dir).run_all(runs)
        _show(sweep.found(runs, records, options.command_line), folder / sweep.folder_name(settings))


def _paper(options: argparse.Namespace) -> None:
    _reproduce(papers.named(options.name), options)


def _best(options: argparse.Namespace) -> None:
    _reproduce(best.named(options.name), options)


def _reproduce(study: Any, options: argparse.Namespace) -> None:
    if options.seeds is not None and options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {options.seeds}.")
    from experiments.papers import reproduce
    from experiments.papers.study import Computation
    from experiments.report.figures import check_can_draw

    check_can_draw()
    folder, own = options.folder, options.folder / reproduce.folder_name(study, options.quick)
    with alone_in(own if isinstance(study, Computation) else folder, "give another --folder"):
        found = reproduce.reproduce(
            study, folder, options.data_dir, options.quick, options.seeds, options.only, options.command_line
        )
        _show(found, own)


def _show(found: Any, folder: Path) -> None:
    found.write(folder)
    print(f"\n{found.markdown}\nTable, figures and report are in {folder}: open {folder / 'report.html'}.")


def _report(options: argparse.Namespace) -> None:
    from experiments.report import found, run_report
    from experiments.report.figures import check_can_draw

    check_can_draw()
    folder = RunFolder(options.directory)
    of_many = found.folders_in(folder.path)
    for one in of_many:
        with as_written(one):
            found.read(one).write(one)
    if not of_many:
        if folder.begun and not folder.finished:
            raise ValueError(f"{folder.path} holds a run that is not finished. Go on with it: {folder.command}")
        with as_written(folder.path):
            run_report.write(folder)
    for one in of_many or [folder.path]:
        print(f"The report is {one / 'report.html'}.")


def _audit(options: argparse.Namespace) -> None:
    audit.execute(options.directory, options.data_dir, options.attack, options.canaries, options.seed)
