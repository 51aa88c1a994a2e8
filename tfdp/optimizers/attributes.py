"""What may be set on a private optimizer that was made, and where all else belongs.

An attribute that nothing reads would be a silent mistake: who writes ``optimizer.noise_multiplier = 2.0`` believes in more noise.
"""

import difflib
from typing import Any

_SETTABLE = {"built", "denoise", "learning_rate", "max_physical_batch", "mechanism", "name", "private_logs", "use_ema"}
_SETTLED = {"accountant", "delta", "inner_optimizer", "noise_seed", "target_epsilon"}


def check_settable(optimizer: Any, name: str, value: Any) -> None:
    """Raises an AttributeError with the right place for an attribute that would change nothing here."""
    if name.startswith("_") or name in _SETTABLE or getattr(optimizer, name, optimizer) is value:
        return
    kind = type(optimizer).__name__
    if hasattr(optimizer.mechanism, name):
        raise AttributeError(
            f"{name} can't be set on a {kind}: it is the mechanism's, and settled while fit runs. Before the next fit write "
            f"optimizer.mechanism.{name} = ...; the ledger then has a line for each of the two settings."
        )
    if name in _SETTLED or (name in vars(optimizer) and not hasattr(optimizer.inner_optimizer, name)):
        raise AttributeError(
            f"{name} is settled when a {kind} is made. Make a new one, and compile the model with it: the model keeps its ledger."
        )
    if hasattr(optimizer.inner_optimizer, name):
        raise AttributeError(
            f"{name} can't be set on a {kind}: its inner optimizer moves the weights. Write optimizer.inner_optimizer.{name} = ..., and "
            "compile again."
        )
    near = difflib.get_close_matches(name, sorted(_SETTABLE - {"built"}), 1)
    hint = (
        f"Did you mean {near[0]}?"
        if near
        else f"What can be set: {', '.join(sorted(_SETTABLE - {'built', 'use_ema'}))}."
    )
    raise AttributeError(f"A {kind} has no attribute {name}. {hint}")
