"""What a caller may write in ``PrivateLogisticRegression``: each check says what to write in its place."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfdp.accounting import Relation, checks
from tfdp.mechanisms.denoising import check_denoise

METHODS = ("objective", "output", "gradient")
OF_GRADIENT = {"epochs": 20, "batch_size": 256, "learning_rate": 1.0, "denoise": None}
_NEIGHBOURS = (Relation.ZERO_OUT, Relation.REPLACE_ONE)


def check_arguments(given: dict[str, Any]) -> None:
    method = given["method"]
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, not {method!r}.")
    _check_numbers(given)
    if not isinstance(given["fit_intercept"], bool | np.bool_):
        raise ValueError(f"fit_intercept must be True or False, not {given['fit_intercept']!r}.")
    if given["fit_intercept"]:
        checks.positive("intercept_scaling", given["intercept_scaling"], "write 1.0, or fit_intercept=False")
    if given["neighbours"] not in list(_NEIGHBOURS):
        raise ValueError(f'neighbours must be "zero_out" or "replace_one", not {given["neighbours"]!r}.')
    if given["noise_seed"] is not None:
        checks.count("noise_seed", given["noise_seed"], "write a whole number, or None for secret noise")
    if method == "gradient":
        _check_gradient(given)
        return
    for name in OF_GRADIENT:
        if given[name] is not None:
            raise ValueError(f'{name} is an argument of method="gradient". Leave it out of method={method!r}.')


def _check_numbers(given: dict[str, Any]) -> None:
    checks.positive("epsilon", given["epsilon"], "write what the fit may cost, such as 1.0")
    if given["delta"] is not None:
        checks.delta(given["delta"])
    checks.positive("regularization", given["regularization"], "write lambda of the mean loss, such as 1e-3")
    checks.positive("clip_norm", given["clip_norm"], "write the l2 norm that features are clipped to, such as 1.0")
    checks.positive("tol", given["tol"], "write the gradient norm to stop at, such as 1e-6")
    checks.count("max_iter", given["max_iter"], "write the most Newton steps, such as 200", at_least=1)


def _check_gradient(given: dict[str, Any]) -> None:
    if Relation(given["neighbours"]) is not Relation.ZERO_OUT:
        raise ValueError('method="gradient" draws Poisson lots, whose cost is known for neighbours="zero_out" only.')
    if given["noise_seed"] is not None:
        raise ValueError(
            'method="gradient" takes no noise_seed: its noise is found from epsilon, and seeded noise has none.'
        )
    values = of_gradient(given)
    checks.count("epochs", values["epochs"], "write how many passes over the data, such as 20", at_least=1)
    checks.count("batch_size", values["batch_size"], "write the expected lot size, such as 256", at_least=1)
    checks.positive("learning_rate", values["learning_rate"], "write a step's size, such as 1.0")
    check_denoise(values["denoise"])


def of_gradient(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of "gradient", with the usual value in place of None."""
    return {name: usual if given[name] is None else given[name] for name, usual in OF_GRADIENT.items()}
