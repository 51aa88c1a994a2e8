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

from experiments import audit, best, papers
from experiments.methods import METHODS, NOISES
from experiments.settings import RunSettings
from experiments.tasks import NETWORKS, TASKS

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
_FOLDER = Path("saved_models")


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
    for name, about, arguments, do in (
        ("run", "one run, with its model, privacy statement and report", _run_arguments, _run),
        ("sweep", "methods x epsilons x seeds, side by side", _sweep_arguments, _sweep),
        ("paper", "a table or figure of one of the papers", _paper_arguments, _paper),
        ("best", "our best on a data set, each setting chosen on held-out records", _best_arguments, _best),
        ("report", "figures and report of a folder, made anew", _report_arguments, _report),
        ("audit", "attacks on a finished run, beside what is claimed of it", _audit_arguments, _audit),
    ):
        one = commands.add_parser(
            name, help=about, description=about[0].upper() + about[1:] + ".", formatter_class=wide
        )
        arguments(one)
        one.set_defaults(do=do)
    return parser


def _training_arguments(parser: argparse.ArgumentParser) -> None:
    """Of runs and sweeps. What is not given is the data set's."""
    what = parser.add_argument_group("what is trained")
    what.add_argument(
        "--dataset", default="digits", metavar="NAME", help=f"one of {', '.join(TASKS)} (digits needs no file)"
    )
    what.add_argument(
        "--data-dir", metavar="DIR", help="folder with NAME.npz, or with what tensorflow-datasets prepared"
    )
    what.add_argument("--model", metavar="NAME", help=f"one of {', '.join(NETWORKS)}; default: the data set's")
    how = parser.add_argument_group("how (default: what is usual for the data set)")
    how.add_argument("--epochs", type=int, help="passes of ceil(n / batch size) random lots")
    how.add_argument("--batch-size", type=int, help="expected number of records in a lot")
    how.add_argument("--learning-rate", type=float)
    how.add_argument("--momentum", type=float, help="of SGD")
    how.add_argument(
        "--clip", type=float, help="largest l2 norm of a record's gradient (noise on records: of its features)"
    )
    how.add_argument(
        "--ema",
        type=float,
        metavar="MOMENTUM",
        help="average the weights over the steps, such as 0.99; costs no privacy",
    )
    how.add_argument("--noise", metavar="FAMILY", help=f"of encoded methods: {', '.join(NOISES)}")
    how.add_argument("--max-physical-batch", type=int, metavar="N", help="run larger lots in parts, for less memory")
    how.add_argument("--records", type=int, metavar="N", help="train on the first N records only")
    how.add_argument(
        "--held-out",
        action="store_true",
        help="score on a tenth of the training records, held out: to choose settings by",
    )
    how.add_argument(
        "--argument",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="arguments",
        help="another argument of the optimizer, such as direction=full_gradient or pruning_ratio=0.9; may be repeated",
    )
    parser.add_argument("--delta", type=float, help="at which epsilon is meant")
    parser.add_argument("--name", help="of the folder inside --folder; default: made from the settings")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where folders are written (saved_models)")


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _training_arguments(parser)
    parser.add_argument(
        "--method", default="directional-adam", metavar="NAME", help="one of the methods below (directional-adam)"
    )
    parser.add_argument("--epsilon", type=float, help="the noise is found so that this is not exceeded")
    parser.add_argument(
        "--noise-multiplier",
        type=float,
        help="how much noise, in units of the clip; with --epsilon training stops there",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first weights; noise and lots have none (0)")
    parser.add_argument("--tensorboard", action="store_true", help="write logs for TensorBoard as well")
    parser.epilog = _methods()


def _sweep_arguments(parser: argparse.ArgumentParser) -> None:
    _training_arguments(parser)
    methods = ["noisy-adam", "directional-adam"]
    parser.add_argument(
        "--methods", nargs="+", default=methods, metavar="NAME", help=f"of those below ({' '.join(methods)})"
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 3.0], help="targets (0.5 1 3)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each (3)")
    parser.epilog = _methods()


def _paper_arguments(parser: argparse.ArgumentParser) -> None:
    _study_arguments(parser, papers.TITLES, _FOLDER / "papers")


def _best_arguments(parser: argparse.ArgumentParser) -> None:
    _study_arguments(parser, best.TITLES, _FOLDER / "best")


def _study_arguments(parser: argparse.ArgumentParser, titles: dict[str, str], folder: Path) -> None:
    parser.add_argument("name", metavar="NAME", help="one of those below")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with NAME.npz of the data sets; --quick needs none")
    parser.add_argument(
        "--quick", action="store_true", help="a trial in under 3 minutes: embedded digits, few steps, one seed"
    )
    parser.add_argument("--seeds", type=int, help="runs of each setting (default: 5, in a trial 1)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="rows whose name contains one of these, such as mnist"
    )
    parser.add_argument("--folder", type=Path, default=folder, help=f"where results go ({folder})")
    width = max(map(len, titles))
    parser.epilog = "names:\n" + "\n".join(f"  {name:{width}}  {title}" for name, title in titles.items())


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="folder of a run, a sweep, or a paper's table or figure"
    )


def _audit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder of a finished run")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with NAME.npz of the run's data set")
    parser.add_argument("--attack", default="gradient", metavar="NAME", help="one of those below (gradient)")
    parser.add_argument("--canaries", type=int, default=1000, help="records whose coins are guessed (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the coins; noise and lots have none (0)")
    width = max(map(len, audit.ATTACKS))
    parser.epilog = "attacks:\n" + "\n".join(f"  {name:{width}}  {about}" for name, about in audit.ATTACKS.items())


def _methods() -> str:
    width = max(map(len, METHODS))
    return "methods:\n" + "\n".join(f"  {name:{width}}  {method.about}" for name, method in METHODS.items())


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
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _run(options: argparse.Namespace) -> None:
    own = {name: getattr(options, name) for name in ("epsilon", "noise_multiplier", "seed")}
    settings = RunSettings.of(**_given(options), method=options.method, **own)
    from experiments import one_run

    verbose = 2 if os.environ.get("CI") else "auto"
    folder = options.folder / (options.name or settings.name)
    one_run.execute(settings, folder, options.data_dir, options.command_line, options.tensorboard, verbose)


def _sweep(options: argparse.Namespace) -> None:
    from experiments import sweep, training
    from experiments.campaign import Campaign, TrainingRun
    from experiments.report.figures import check_can_draw

    if options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {options.seeds}.")
    settings = sweep.grid(_given(options), options.methods, options.epsilons, options.seeds)
    check_can_draw()
    for one in settings:
        if one.seed == 0:
            training.check(one, training.load(one, options.data_dir))
    folder = options.folder / (options.name or f"sweep-{options.dataset}")
    runs = [TrainingRun(one) for one in settings]
    records = Campaign(folder, "runs", options.data_dir).run_all(runs)
    _show(sweep.found(runs, records, options.command_line), folder)


def _paper(options: argparse.Namespace) -> None:
    _reproduce(papers.named(options.name), options)


def _best(options: argparse.Namespace) -> None:
    _reproduce(best.named(options.name), options)


def _reproduce(study: Any, options: argparse.Namespace) -> None:
    if options.seeds is not None and options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {options.seeds}.")
    from experiments.papers import reproduce
    from experiments.report.figures import check_can_draw

    check_can_draw()
    found = reproduce.reproduce(
        study, options.folder, options.data_dir, options.quick, options.seeds, options.only, options.command_line
    )
    _show(found, options.folder / reproduce.folder_name(study, options.quick))


def _show(found: Any, folder: Path) -> None:
    found.write(folder)
    print(f"\n{found.markdown}\nTable, figures and report are in {folder}: open {folder / 'report.html'}.")


def _report(options: argparse.Namespace) -> None:
    from experiments.report import found, run_report
    from experiments.report.figures import check_can_draw
    from experiments.run_folder import RunFolder

    check_can_draw()
    if (options.directory / found.FILE).is_file():
        found.read(options.directory).write(options.directory)
    else:
        folder = RunFolder(options.directory)
        if folder.begun and not folder.finished:
            raise ValueError(f"{folder.path} holds a run that is not finished. Go on with it: {folder.command}")
        run_report.write(folder)
    print(f"The report is {options.directory / 'report.html'}.")


def _audit(options: argparse.Namespace) -> None:
    audit.execute(options.directory, options.data_dir, options.attack, options.canaries, options.seed)
