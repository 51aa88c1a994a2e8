"""Records to lots: which records take part in which step.

Sampling is half of the privacy of a training run, so this room draws the lots and says how they were drawn:

* `PoissonBatches`: every record joins every lot on its own, with probability batch_size / size. Reads arrays,
  nested structures of them, and random-access sources larger than memory.
* `declare_sampling`: a `tf.data.Dataset` of the user's own, with what the user says about it, checked where that is possible.
* `understood`: any other `tf.data.Dataset`, as far as its transformations show how it samples.
* `InputPerturbation`, `InfluencePerturbation`: noise on the records themselves, before any training.
* `load`: the papers' data sets by name.

The first three give a `tf.data.Dataset` of `(record, present)` and a `.sampling` description for the ledger.
"""

from tfdp.data.datasets import NAMES, load
from tfdp.data.declared import DeclaredDataset, declare_sampling
from tfdp.data.perturbation import (
    Influence,
    InfluencePerturbation,
    InputPerturbation,
    PerturbationStatement,
    PerturbedTraining,
)
from tfdp.data.poisson import PoissonBatches
from tfdp.data.undeclared import Understood, understood

__all__ = [
    "NAMES",
    "DeclaredDataset",
    "Influence",
    "InfluencePerturbation",
    "InputPerturbation",
    "PerturbationStatement",
    "PerturbedTraining",
    "PoissonBatches",
    "Understood",
    "declare_sampling",
    "load",
    "understood",
]
