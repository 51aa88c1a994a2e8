"""What each command of `train.py` takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments import audit, best, papers
from experiments.methods import METHODS, NOISES
from experiments.tasks import NETWORKS, TASKS

FOLDER = Path("saved_models")


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
    _how_arguments(parser.add_argument_group("how (default: what is usual for the data set)"))
    parser.add_argument("--delta", type=float, help="at which epsilon is meant")
    parser.add_argument(
        "--name", help="of the folder inside --folder; default: made from the settings, of a sweep sweep-DATASET"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where folders are written (saved_models)")


def _how_arguments(how: argparse._ArgumentGroup) -> None:
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


def of_run(parser: argparse.ArgumentParser) -> None:
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


def of_sweep(parser: argparse.ArgumentParser) -> None:
    _training_arguments(parser)
    methods = ["noisy-adam", "directional-adam"]
    parser.add_argument(
        "--methods", nargs="+", default=methods, metavar="NAME", help=f"of those below ({' '.join(methods)})"
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 3.0], help="targets (0.5 1 3)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each (3)")
    parser.epilog = _methods()


def of_paper(parser: argparse.ArgumentParser) -> None:
    _study_arguments(parser, papers.TITLES, FOLDER / "papers")


def of_best(parser: argparse.ArgumentParser) -> None:
    _study_arguments(parser, best.TITLES, FOLDER / "best")


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


def of_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        help="folder of a run, of sweeps, or of papers' tables and figures",
    )


def of_audit(parser: argparse.ArgumentParser) -> None:
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
