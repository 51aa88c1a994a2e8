"""`train.py audit`: attacks on a finished run's settings, by canaries, and on its model, by membership."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.folder_lock import alone_in
from experiments.methods import METHODS, PRIVATE
from experiments.run_folder import MODEL, RunFolder, read_json
from experiments.settings import RunSettings, one_of
from experiments.tasks import NETWORKS

if TYPE_CHECKING:
    import keras

    from tfdp.audit import OneRun
    from tfdp.data.datasets import TrainAndTest

FILE = "audit.json"
ATTACKS = {
    "gradient": "white box: canaries with a gradient of their own; plain SGD in place of the run's update rule",
    "mislabelled": "white box: training records with wrong labels, found in the gradients that were released",
    "black-box": "the same records, found by their loss under the final model",
}
_SPREAD_OVER = 4096
# What fits in memory with room to spare: a canary is a record more, and with a spread gradient thousands of numbers more.
MOST_CANARIES, MOST_SPREAD = 100_000, 5_000


def execute(path: Path, data_dir: str | os.PathLike | None, attack: str, canaries: int, seed: int) -> None:
    """Audits, or says what an earlier audit with these arguments found. Results are kept as they come."""
    one_of("attack", attack, ATTACKS)
    for name, value, least in (("canaries", canaries, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}.")
    folder = RunFolder(path)
    if folder.begun and not folder.finished:
        raise ValueError(f"{path} holds a run that is not finished. Go on with it: {folder.command}")
    record, settings = folder.record, folder.settings
    print(_run_in_words(record))
    content, key = _read(path / FILE, settings), {"attack": attack, "canaries": canaries, "seed": seed}
    if content["membership"] is None or _lacks_canaries(content, key, settings):
        most = MOST_SPREAD if attack == "gradient" and METHODS[settings.method].encodes else MOST_CANARIES
        if canaries > most:
            raise ValueError(f"canaries must be at most {most:,} here, not {canaries:,}: more may not fit in memory.")
        with alone_in(path):  # of two, each would write over what the other found
            content = _completed(folder, data_dir, key)
    if METHODS[settings.method].where == PRIVATE:
        print(_canaries_in_words(next(one for one in content["canaries"] if _is_of(one, key))))
    else:
        print(f"{settings.method} has no noise on gradients, which canaries would audit: membership alone is told.")
    print(f"{content['membership']['said']}\nAll results are in {path / FILE}.")


def _lacks_canaries(content: dict[str, Any], key: dict[str, Any], settings: RunSettings) -> bool:
    return METHODS[settings.method].where == PRIVATE and not any(_is_of(one, key) for one in content["canaries"])


def _completed(folder: RunFolder, data_dir: str | os.PathLike | None, key: dict[str, Any]) -> dict[str, Any]:
    """The file's content and what it lacks, which is written as it comes."""
    from experiments import training

    path, settings = folder.path, folder.settings
    data, content = training.load(settings, data_dir), _read(path / FILE, settings)
    if _lacks_canaries(content, key, settings):
        content["canaries"].append(key | _canaries(settings, data, **key))
        _write(path / FILE, content)
    if content["membership"] is None:
        content["membership"] = _membership(path, settings, data)
        _write(path / FILE, content)
    return content


def _canaries(settings: RunSettings, data: TrainAndTest, attack: str, canaries: int, seed: int) -> dict[str, Any]:
    """Trains once more, by the run's settings, with canaries among the records."""
    import tfdp
    from experiments import training

    x, y = data.train

    def make_model() -> keras.Model:
        model = training.compiled(settings, data)
        if attack == "gradient":
            model.compile(optimizer=_with_plain_sgd(model.optimizer), loss=model.loss)
        return model

    if attack != "gradient":
        kind, rate = tfdp.audit.MislabelledCanaries(canaries), 1.0
    else:
        rate = 1 + canaries / len(y)
        kind = tfdp.audit.GradientCanaries(canaries)
        if METHODS[settings.method].encodes:
            kind = tfdp.audit.SpreadCanaries(canaries, max(_SPREAD_OVER, 4 * canaries))
    found = tfdp.audit.one_run(
        make_model,
        x,
        y,
        canaries=kind,
        batch_size=round(settings.batch_size * rate),  # canaries that are records more leave the sampling rate as it is
        epochs=settings.epochs,
        delta=settings.delta,
        attack="black_box" if attack == "black-box" else "white_box",
        seed=seed,
    )
    return _numbers(found)


def _numbers(found: OneRun) -> dict[str, Any]:
    from tfdp.accounting import epsilon

    proven = epsilon(found.ledger, delta=found.delta)
    finite = math.isfinite(proven)
    return {
        "guesses": found.guesses,
        "correct": found.correct,
        "delta": found.delta,
        "confidence": found.confidence,
        "proven_epsilon": proven if finite else None,
        "epsilon_lower_bound": found.epsilon_lower_bound,
        "p_value_of_proven": found.p_value(proven) if finite else 1.0,
        "said": str(found),
    }


def _with_plain_sgd(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The same releases, read off the weights most easily: what is claimed is the same for every update rule."""
    import keras

    import tfdp

    budget = optimizer.budget
    target = {} if budget is None else {"target_epsilon": budget.target_epsilon, "accountant": budget.accountant}
    return tfdp.PrivateOptimizer(
        keras.optimizers.SGD(0.1),
        optimizer.mechanism,
        delta=optimizer.delta,
        max_physical_batch=optimizer.max_physical_batch,
        denoise=optimizer.denoise,
        **target,
    )


def _membership(path: Path, settings: RunSettings, data: TrainAndTest) -> dict[str, Any]:
    """Of the finished model: its training records among the records that it was tested on."""
    import tfdp

    model = NETWORKS[settings.model].saved(path / MODEL)
    found = tfdp.audit.membership_inference(model, data.train, data.test)
    bounds = found.largest_true_positive_rates
    return {
        "members": found.members,
        "others": found.others,
        "auc": found.auc,
        "true_positive_rates": {f"{rate:g}": value for rate, value in found.true_positive_rates.items()},
        "largest_true_positive_rates": None if bounds is None else {f"{rate:g}": v for rate, v in bounds.items()},
        "said": str(found),
    }


def _run_in_words(record: dict[str, Any]) -> str:
    """What is claimed of the finished run."""
    from tfdp.accounting.claims import MEMBERSHIP, RECORD, rounded_up

    statement = record["statement"]
    proven = statement["epsilon"]
    said = "nothing is proven" if proven is None else f"epsilon {rounded_up(proven)} is proven"
    of_records = [claim for claim in statement["claims"] if claim["protects"] in (MEMBERSHIP, RECORD)]
    published = [claim["epsilon"] for claim in of_records if claim["status"] == "as published"]
    claimed = f", epsilon {rounded_up(published[0])} is claimed as published" if published else ""
    return f"Of the finished run {said}{claimed}, at delta = {record['settings']['delta']:g}."


def _canaries_in_words(found: dict[str, Any]) -> str:
    from tfdp.accounting.claims import rounded_up

    proven = found["proven_epsilon"]
    said = "nothing is proven" if proven is None else f"epsilon {rounded_up(proven)} is proven"
    refuted = found["p_value_of_proven"] < 1 - found["confidence"]
    verdict = "It REFUTES that: claim or code is wrong" if refuted else "It does not refute that"
    level = f"{verdict} (at {100 * found['confidence']:g} %, for this audit alone)."
    return f"Of the audited run, by the same settings and with canaries, {said}. {found['said']} {level}"


def _is_of(found: dict[str, Any], key: dict[str, Any]) -> bool:
    return all(found[name] == value for name, value in key.items())


def _read(file: Path, settings: RunSettings) -> dict[str, Any]:
    if not file.exists():
        return {"settings": settings.to_json(), "canaries": [], "membership": None}
    content = read_json(file, ("settings", "canaries", "membership"))
    if content["settings"] != settings.to_json():
        raise ValueError(f"{file} is of a run of other settings. Delete it.")
    return content


def _write(file: Path, content: dict[str, Any]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(file)
