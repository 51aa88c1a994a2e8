"""One run as plain data: everything that decides what is run, checked before anything is created."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from typing import Any

from experiments.methods import METHODS, NOISES, ORDINARY, PRIVATE, RECORDS
from experiments.tasks import NETWORKS, TASKS


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """What `RunSettings.of(...)` fills from the task where nothing is said.

    Attributes:
        epsilon: with `noise_multiplier` None, the target from which the noise is found; with both, where training stops.
        clip: of gradients; for noise on records, of features.
        arguments: others of the optimizer.
        records: train on the first so many only.
        held_out: train without a tenth of the training records, and score on it: for choosing settings.
        training_loss: whether the final mean loss on the training records is measured (it is not private).
    """

    dataset: str
    model: str
    method: str
    epsilon: float | None
    noise_multiplier: float | None
    delta: float
    epochs: int
    batch_size: int
    learning_rate: float
    clip: float
    seed: int = 0
    momentum: float = 0.0
    ema: float | None = None
    noise: str | None = None
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    records: int | None = None
    max_physical_batch: int | None = None
    held_out: bool = False
    training_loss: bool = False

    def __post_init__(self) -> None:
        check(self)

    @classmethod
    def of(cls, dataset: str = "digits", method: str = "directional-adam", **given: Any) -> RunSettings:
        """Settings that are not given, or None, are the task's."""
        one_of("dataset", dataset, TASKS)
        one_of("method", method, METHODS)
        task, how = TASKS[dataset], METHODS[method]
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := set(given) - known:
            raise ValueError(f"There is no setting {sorted(unknown)[0]!r}. There are {', '.join(sorted(known))}.")
        said = {name: value for name, value in given.items() if value is not None}
        usual = {
            "model": task.model,
            "delta": task.delta,
            "epochs": task.epochs,
            "batch_size": task.batch_size,
            "learning_rate": task.learning_rates[how.inner],
            "clip": task.feature_norm if how.where == RECORDS else task.clip,
            "epsilon": None if how.where == ORDINARY or "noise_multiplier" in said else task.epsilon,
            "noise_multiplier": None,
        }
        return cls(dataset=dataset, method=method, **(usual | said))

    def replaced(self, **changes: Any) -> RunSettings:
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> RunSettings:
        try:
            return cls(**content)
        except TypeError as error:  # names that are not here, or none
            raise ValueError(f"These settings are of another version of train.py: {error}.") from None

    @property
    def name(self) -> str:
        """Of the run's folder: what it is, and a few digits that differ where any setting does."""
        digits = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:6]
        amount = [f"eps{self.epsilon:g}"] if self.epsilon is not None else []
        amount += [f"noise{self.noise_multiplier:g}"] if self.noise_multiplier is not None else []
        return "-".join([self.dataset, self.method, *amount, f"seed{self.seed}", digits])


def without_effect(method: str) -> tuple[str, ...]:
    """Settings that mean nothing to a method."""
    how = METHODS[method]
    if how.where == ORDINARY:
        return ("clip", "delta", "max_physical_batch")
    if how.where == RECORDS:
        return ("clip", "max_physical_batch") if how.published else ("max_physical_batch",)
    return ()


def check_effect(method: str, given: dict[str, Any]) -> None:
    """Raises a ValueError if something was given that means nothing to the method (a sweep says it to several)."""
    one_of("method", method, METHODS)
    for name in without_effect(method):
        if given.get(name) is not None:
            raise ValueError(f"{name} has no effect with {method}: leave it out.")


def check(settings: RunSettings) -> None:
    """Raises a ValueError that says what is allowed."""
    one_of("dataset", settings.dataset, TASKS)
    one_of("method", settings.method, METHODS)
    one_of("model", settings.model, NETWORKS)
    task, method = TASKS[settings.dataset], METHODS[settings.method]
    if settings.model not in task.networks:
        raise ValueError(
            f"model {settings.model} takes {' or '.join(NETWORKS[settings.model].kinds)}, and a record of {settings.dataset} is a "
            f"{task.kind}. For {settings.dataset}: {', '.join(task.networks)}."
        )
    for name in ("epochs", "batch_size", "records", "max_physical_batch"):
        _count(name, getattr(settings, name), 1)
    _count("seed", settings.seed, 0)
    for name in ("learning_rate", "clip", "epsilon"):
        _number(name, getattr(settings, name), 0, math.inf)
    _number("delta", settings.delta, 0, 1)
    _number("ema", settings.ema, 0, 1)
    noise = settings.noise_multiplier
    if noise is not None and not (_is_number(noise) and 0 <= noise < math.inf):
        raise ValueError(f"noise_multiplier must be 0 (no privacy) or a positive number, not {noise!r}.")
    _check_momentum(settings, method.inner)
    _check_privacy(settings, method)


def _check_momentum(settings: RunSettings, inner: str) -> None:
    if not (_is_number(settings.momentum) and 0 <= settings.momentum < 1):
        raise ValueError(f"momentum must be at least 0 and below 1, not {settings.momentum}.")
    if settings.momentum and inner != "sgd":
        fitting = ", ".join(name for name, one in METHODS.items() if one.inner == "sgd")
        raise ValueError(f"momentum goes with SGD, not with {settings.method}. Methods with SGD: {fitting}.")


def _check_privacy(settings: RunSettings, method: Any) -> None:
    if method.where == ORDINARY:
        given = [name for name in ("epsilon", "noise_multiplier") if getattr(settings, name) is not None]
        if given:
            raise ValueError(
                f"{settings.method} trains without privacy: leave out {given[0]}, or choose another method."
            )
    elif settings.epsilon is None and settings.noise_multiplier is None:
        raise ValueError(
            "Give epsilon (how much privacy), noise_multiplier (how much noise), or both (stop at epsilon)."
        )
    elif settings.epsilon is not None and settings.noise_multiplier == 0:
        raise ValueError(
            "noise_multiplier 0 trains without privacy, so there is no epsilon to stop at: leave out epsilon."
        )
    if method.where == RECORDS:
        if settings.noise_multiplier is not None:
            raise ValueError(f"{settings.method} finds its noise from epsilon: leave out noise_multiplier.")
        if TASKS[settings.dataset].score == "rmse" or "text" in TASKS[settings.dataset].kind:
            raise ValueError(
                f"{settings.method} adds noise to features, and those of {settings.dataset} are not numbers."
            )
    if method.where != PRIVATE and settings.arguments:
        raise ValueError(f"Optimizer arguments ({', '.join(settings.arguments)}) go with private optimizers only.")
    if owned := sorted(settings.arguments.keys() & method.arguments.keys()):
        raise ValueError(
            f"{settings.method} is what it is by its own {', '.join(owned)}: choose another method to set that."
        )
    if settings.noise is not None:
        one_of("noise", settings.noise, NOISES)
        if not method.encodes:
            raise ValueError(
                f"noise={settings.noise} goes with encoded-sgd and encoded-adam; {settings.method} has Gaussian noise."
            )


def one_of(name: str, value: str, allowed: Any) -> None:
    if value not in allowed:
        raise ValueError(f"There is no {name} {value!r}. There are {', '.join(allowed)}.")


def _count(name: str, value: int | None, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}.")


def _is_number(value: Any) -> bool:
    """Not a list, which an option such as --clip=-- gives."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not (_is_number(value) and low < value < high):
        bounds = "positive" if high == math.inf else f"between {low:g} and {high:g}"
        raise ValueError(f"{name} must be {bounds}, not {value!r}.")
