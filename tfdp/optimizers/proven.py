"""A proof that was made before ``compile`` was called again holds for what is the same still.

Another learning rate, another amount of noise, other metrics or callbacks change nothing that a proof is about. That is one function:
from records and weights to the sum of clipped gradients. So that function is traced by the plan which was proven, and compared with
the one that was proven. A single operation, constant, variable or captured tensor that is not the same asks for a new proof; so do
other records, another expected lot size, another clip, other values of variables that are not trained. Other processes prove anew: what a model's Python and its kernels do is in no
key that one process could hand to another.
"""

import hashlib
from typing import Any

import keras
import numpy as np

from tfdp.gradients import Plan
from tfdp.gradients.layer_tree import all_layers
from tfdp.optimizers.core import Core


class Proven:
    """What was proven of a model: ``about`` what, and with which ``sample`` of records."""

    def __init__(self, about: list, sample: Any, plan: Plan, core: Core):
        self._about, self._sample = about, digest_of(sample)
        self.plan, self._core = plan, core
        self._untrained = digest_of(core.untrained_values())

    def covers(self, about: list, sample: Any) -> bool:
        return same(self._about, about) and self._sample == digest_of(sample)

    def holds_for(self, core: Core) -> bool:
        """Weights that are trained had other values in the proof than they have now; others may decide what a layer does."""
        return core.is_same_as(self._core) and self._untrained == digest_of(core.untrained_values())


def given_to_proof(model: keras.Model, record_spec: Any, rows: int) -> list:
    """Layers and weights by themselves, the rest by value."""
    layers = all_layers(model)
    settings = [str(record_spec), rows, bool(model.jit_compile)]
    settings += [(layer.trainable, layer.compute_dtype) for layer in layers]
    return [*settings, *layers, *model.variables, *model.trainable_variables]


def same(one: list, other: list) -> bool:
    """Names and numbers are compared; all else must be the very same object."""
    plain = (str, int, float, tuple)
    return len(one) == len(other) and all(
        a is b or (isinstance(a, plain) and isinstance(b, plain) and a == b) for a, b in zip(one, other, strict=True)
    )


def digest_of(sample: Any) -> str:
    """Of records: they are not kept."""
    found = hashlib.blake2b()
    for leaf in map(np.asarray, keras.tree.flatten(sample)):
        found.update(repr((leaf.shape, leaf.dtype)).encode())
        found.update(repr(leaf.tolist()).encode() if leaf.dtype == object else np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()
