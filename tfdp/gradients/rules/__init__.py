"""One rule a layer family: from what a layer saw and the gradient at its output to per-example gradients of its weights.

``registry`` is how a family announces its rule, ``universal`` serves every other layer.
"""

from tfdp.gradients.rules import convolution, convolutional_lstm, dense, elementwise, embedding, lora, recurrent
from tfdp.gradients.rules.registry import Rule, find_rule, rule

__all__ = [
    "Rule",
    "convolution",
    "convolutional_lstm",
    "dense",
    "elementwise",
    "embedding",
    "find_rule",
    "lora",
    "recurrent",
    "rule",
]
