"""A lot to per-example gradients, kept in factored form: norms, clipped sums, or materialised.

The way of the data: ``engine`` runs one forward and one backward pass and records what the layers saw (``recording``);
``rules`` turn records into per-example gradients of each weight (``factored``); ``losses`` makes the loss a sum of the
examples' own; ``plan`` says which layer answers for which weight and ``proof`` tests the plan on the model at hand before
the first step. Nothing here knows of privacy.
"""

from tfdp.gradients.engine import Ellipsoid, LotGradients, LotPass, lot_gradients
from tfdp.gradients.factored import Materialised, OuterSum, PerExampleGradient, Rows
from tfdp.gradients.plan import Plan
from tfdp.gradients.proof import MixesExamples, prove
from tfdp.gradients.rules.registry import at_output, at_pre_activation, rule
from tfdp.gradients.state import StateAssigned

__all__ = [
    "Ellipsoid",
    "LotGradients",
    "LotPass",
    "Materialised",
    "MixesExamples",
    "OuterSum",
    "PerExampleGradient",
    "Plan",
    "Rows",
    "StateAssigned",
    "at_output",
    "at_pre_activation",
    "lot_gradients",
    "prove",
    "rule",
]
