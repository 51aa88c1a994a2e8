"""What a private optimizer is given, checked before anything is made of it."""

import difflib
import inspect
from collections.abc import Iterable

import numpy as np

from tfdp.accounting import Budget, checks
from tfdp.mechanisms import GaussianMechanism
from tfdp.mechanisms.denoising import KS, check_denoise

_PARTS_OF_A_MECHANISM = (
    "bounded_sum",
    "release",
    "event",
    "initial_state",
    "ellipsoid",
    "check_target",
    "full_gradient",
    "settled",
    "microbatch_size",
)


def check_mechanism(mechanism: GaussianMechanism, max_physical_batch: int | None, denoise: str | None) -> None:
    """A mechanism, physical batches that it can be run in, and denoising that goes with its releases."""
    _check_physical_batch(max_physical_batch)
    if not all(hasattr(mechanism, part) for part in _PARTS_OF_A_MECHANISM):
        raise ValueError(
            f"mechanism must be what makes a private gradient, such as tfdp.mechanisms.GaussianMechanism(l2_norm_clip=1.0, "
            f"noise_multiplier=1.1), not {mechanism!r}."
        )
    size = mechanism.microbatch_size
    if max_physical_batch is not None and max_physical_batch % size:
        raise ValueError(
            f"max_physical_batch={max_physical_batch} would cut microbatches of {size} in two: give a multiple of {size}."
        )
    if check_denoise(denoise) == KS and not mechanism.is_a_noised_sum:
        raise ValueError(
            f'denoise="ks" compares all coordinates of a release with one noise, but those of a {type(mechanism).__name__} are '
            f'not a sum with noise alone. Leave it out, or take denoise="laplacian".'
        )


def _check_physical_batch(examples: int | None) -> None:
    if examples is None:
        return
    if not isinstance(examples, int | np.integer) or isinstance(examples, bool) or examples < 1:
        raise ValueError(f"max_physical_batch must be a positive whole number or None, not {examples!r}.")


def check_known(name: str, given: Iterable[str], takers: Iterable[type], others: Iterable[str]) -> None:
    """Every argument is one of the takers', or among the others: none is misspelt."""
    parameters = (inspect.signature(taker.__init__).parameters for taker in takers)
    known = {argument for of_one in parameters for argument in of_one}.union(others) - {"self", "kwargs", "arguments"}
    for argument in given:
        if argument not in known:
            near = difflib.get_close_matches(argument, known, 1)
            meant = f" Did you mean {near[0]}=?" if near else ""
            raise ValueError(f"{name} takes no argument called {argument}=.{meant}")


def check_privacy(noise_multiplier, target_epsilon, delta, accountant, noise_seed) -> None:
    """Exactly one of noise_multiplier and target_epsilon, and for a target a delta and secret noise."""
    if (noise_multiplier is None) == (target_epsilon is None):
        given = "neither of the two was" if noise_multiplier is None else "both were"
        raise ValueError(
            f"Give exactly one of noise_multiplier= (how much noise) and target_epsilon= with delta= (how much privacy); "
            f"{given} given."
        )
    if delta is not None:
        checks.delta(delta)
    if noise_seed is not None:
        checks.count("noise_seed", noise_seed, "write a whole number, or None for noise that is secret")
    if target_epsilon is None:
        if not isinstance(accountant, str) or accountant != "pld":
            raise ValueError(
                "accountant= goes with target_epsilon=. An epsilon of the ledger names its own accountant."
            )
        return
    if delta is None:
        raise ValueError(
            f"target_epsilon={target_epsilon!r} needs delta=, well below 1 / (number of records): delta=1e-5, for example."
        )
    Budget(target_epsilon, delta, accountant)  # checks the numbers
    if noise_seed is not None:
        raise ValueError(
            f"noise_seed={noise_seed!r} can't go with target_epsilon={target_epsilon!r}: whoever knows the seed can subtract the "
            "noise, so no target can be kept, however much noise there is. Leave out noise_seed, or for a test give "
            "noise_multiplier= in place of target_epsilon=."
        )
