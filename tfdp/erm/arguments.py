"""What a caller may write in ``PrivateLogisticRegression``: each check says what to write in its place."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfdp.accounting import Relation, checks
from tfdp.mechanisms.denoising import check_denoise

_ZERO_OUT, _REPLACE_ONE = Relation.ZERO_OUT, Relation.REPLACE_ONE

_LEAST, _MOST = 1e-30, 1e30
_MOST_OFTEN = 10**12

# Of each method: the relations its cost is known for, the usual one first; and the arguments that only it takes.
NEIGHBOURS = {
    "objective": (_ZERO_OUT, _REPLACE_ONE),
    "output": (_ZERO_OUT, _REPLACE_ONE),
    "gradient": (_ZERO_OUT,),
    "input": (_REPLACE_ONE,),
    "dbdp": (_REPLACE_ONE,),
}
_OWN = {
    "objective": {"noise_seed": None},
    "output": {"noise_seed": None, "passes": None, "batch_size": 50, "gradient_steps": None},
    "gradient": {"epochs": 20, "batch_size": 256, "learning_rate": 1.0, "denoise": None},
    "input": {"randomized_response": 0.0, "as_published": False, "steps": 100, "learning_rate": 1.0},
    "dbdp": {"steps": 1000, "learning_rate": 0.1},
}


def check_arguments(given: dict[str, Any]) -> None:
    method = given["method"]
    if not checks.is_one_of(method, NEIGHBOURS):
        raise ValueError(f"method must be one of {', '.join(map(repr, NEIGHBOURS))}, not {method!r}.")
    _check_common(given)
    known = NEIGHBOURS[method]
    if given["neighbours"] is not None and not checks.is_one_of(given["neighbours"], known):
        raise ValueError(
            f"neighbours must be {' or '.join(repr(str(relation)) for relation in known)} with method={method!r}, not "
            f"{given['neighbours']!r}."
        )
    for name in sorted({name for own in _OWN.values() for name in own} - set(_OWN[method])):
        if given[name] is not None:
            takers = " or ".join(repr(other) for other, own in _OWN.items() if name in own)
            raise ValueError(f"{name} is an argument of method={takers}. Leave it out of method={method!r}.")
    for name, value in own_arguments(given).items():
        _CHECKS[name](value)
    if method == "output":
        _check_output(given)
    if method == "input" and not given["as_published"]:
        for name in ("steps", "learning_rate"):
            if given[name] is not None:
                raise ValueError(
                    f"{name} goes with as_published=True: the fit on records that are private themselves is exact."
                )


def own_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Those of the method alone, with the usual value in place of None."""
    return {name: usual if given[name] is None else given[name] for name, usual in _OWN[given["method"]].items()}


def _check_common(given: dict[str, Any]) -> None:
    _check_amount("epsilon", given["epsilon"], "write what the fit may cost, such as 1.0")
    if given["delta"] is not None:
        checks.delta(given["delta"])
    _check_amount("regularization", given["regularization"], "write lambda of the mean loss, such as 1e-3")
    _check_amount("clip_norm", given["clip_norm"], "write the l2 norm that features are clipped to, such as 1.0")
    _check_amount("tol", given["tol"], "write the gradient norm to stop at, such as 1e-6")
    _check_bool("fit_intercept", given["fit_intercept"])
    if given["fit_intercept"]:
        _check_amount("intercept_scaling", given["intercept_scaling"], "write 1.0, or fit_intercept=False")


def _check_output(given: dict[str, Any]) -> None:
    if given["passes"] is None and given["batch_size"] is not None:
        raise ValueError("batch_size goes with passes=, bolt-on SGD: without it all records are used at once.")
    if given["passes"] is not None and given["gradient_steps"] is not None:
        raise ValueError("Give passes= (bolt-on SGD) or gradient_steps= (gradient descent), not both.")


def _check_amount(name: str, value: Any, advice: str) -> None:
    """Positive, and so that products and squares of all amounts together are still floats."""
    number = checks.positive(name, value, advice)
    if not _LEAST <= number <= _MOST:
        raise ValueError(f"{name} must lie between {_LEAST:g} and {_MOST:g}, got {value!r}: {advice}")


def _check_count(name: str, value: Any, advice: str) -> None:
    if checks.count(name, value, advice, at_least=1) > _MOST_OFTEN:
        raise ValueError(f"{name} must be at most {_MOST_OFTEN:,}: {advice}")


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, not {value!r}.")


def _check_share(value: Any) -> None:
    number = checks.non_negative("randomized_response", value, "write the share of labels drawn anew, such as 0.1")
    if number > 1:
        raise ValueError(f"randomized_response must not exceed 1, got {value!r}: write the share of labels drawn anew.")


_CHECKS = {
    "noise_seed": lambda value: (
        value is None or checks.count("noise_seed", value, "write a whole number, or None for secret noise")
    ),
    "passes": lambda value: value is None or _check_count("passes", value, "write how often SGD sees the records"),
    "gradient_steps": lambda value: (
        value is None or _check_count("gradient_steps", value, "write how many steps of gradient descent, such as 100")
    ),
    "epochs": lambda value: _check_count("epochs", value, "write how many passes over the data, such as 20"),
    "batch_size": lambda value: _check_count("batch_size", value, "write the expected lot size, such as 256"),
    "learning_rate": lambda value: _check_amount("learning_rate", value, "write a step's size, such as 1.0"),
    "denoise": check_denoise,
    "randomized_response": _check_share,
    "as_published": lambda value: _check_bool("as_published", value),
    "steps": lambda value: _check_count("steps", value, "write how many gradient steps, such as 100"),
}
