"""The zoo: every family of layers, losses and model structures that training must get right.

`CASE_NAMES` lists the cases, `get(name)` makes one. The cases are in `tests/zoo`, a file for each family.
"""

from tests.zoo import (  # noqa: F401  (importing a family registers its cases)
    attention,
    convolution,
    custom_layers,
    dense,
    embedding,
    losses,
    masked_and_weighted,
    normalisation,
    recurrent,
    several_uses,
    structures,
)
from tests.zoo.cases import REGISTRY, REPRESENTATIVES, Case

CASE_NAMES: tuple[str, ...] = tuple(REGISTRY)
REPRESENTATIVE_NAMES: frozenset[str] = frozenset(REPRESENTATIVES)


def get(name: str) -> Case:
    """The case of this name, its data drawn and its model not yet built."""
    return REGISTRY[name]()
