"""How a layer family announces its rule.

A rule says where the output's gradient is taken (``tap``) and how a recorded call and that gradient become per-example
gradients. It serves a layer only if the layer runs the family's own ``call``: a subclass with a ``call`` of its own gets
the universal rule. What a rule assumes beyond that is checked on every model by the self-proof (``gradients/proof.py``).
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

if TYPE_CHECKING:
    from tfdp.gradients.factored import PerExampleGradient
    from tfdp.gradients.recording import Call

Gradients = list[tuple[keras.Variable, "PerExampleGradient"]]


@dataclasses.dataclass(frozen=True)
class Rule:
    """``gradients(call, d)`` gives (weight, per-example gradient) pairs from the gradients ``d`` at the call's taps."""

    name: str
    gradients: Callable[["Call", list[tf.Tensor | None]], Gradients]
    tap: Callable[..., "Tapped"]
    applies: Callable[[keras.Layer], bool] = lambda layer: True
    adapted: bool = False  # whether it serves layers with LoRA, or those without


@dataclasses.dataclass(frozen=True)
class Tapped:
    """A layer's output, the tensors at which the loss's gradient is wanted, and what else the rule will need."""

    output: Any
    taps: list[tf.Tensor]
    kept: Any = None


_rules: list[tuple[type[keras.Layer], Rule]] = []


def rule(*families: type[keras.Layer], tap, applies=lambda layer: True, adapted=False):
    """Register the decorated ``gradients`` function for these layer classes.

    The self-proof checks every rule on every model, a user's as well::

        @tfdp.gradients.rule(Scale, tap=tfdp.gradients.at_output)
        def scale(call, d):  # y = x * w
            return [(call.layer.w, tfdp.gradients.Materialised(tf.reduce_sum(d[0] * call.inputs, 1), call.layer.w.shape))]

    Args:
        families: they serve layers that run these classes' own ``call``.
        tap: ``at_output``, or ``at_pre_activation`` for a layer with an attribute ``activation`` that its ``call`` ends with.
        applies: to which layers of the class.
        adapted: to layers with LoRA, in place of those without.
    """

    def register(function):
        for family in families:
            _rules.append((family, Rule(function.__name__, function, tap, applies, adapted)))
        return function

    return register


def find_rule(layer: keras.Layer) -> Rule | None:
    """The rule of the layer's family, or None where it has none."""
    adapted = getattr(layer, "lora_enabled", False)
    if not adapted and getattr(layer, "quantization_mode", None) is not None:
        return None
    for family, candidate in reversed(_rules):  # a user's rule comes before ours
        own_call = isinstance(layer, family) and type(layer).call is family.call
        if own_call and candidate.adapted == adapted and candidate.applies(layer):
            return candidate
    return None


def tapped(output: Any) -> list[tf.Tensor]:
    """The tensors of an output through which a loss can depend on it: Keras's losses look behind a softmax."""
    found = []
    for leaf in keras.tree.flatten(output):
        if tf.is_tensor(leaf) and leaf.dtype.is_floating:
            found.append(leaf)
            if getattr(leaf, "_keras_logits", None) is not None:
                found.append(leaf._keras_logits)
    return found


def copied(value: Any) -> Any:
    """A tensor that is this use's own, with the marks that Keras put on it."""
    if not tf.is_tensor(value) or isinstance(value, keras.Variable) or not value.dtype.is_floating:
        return value
    copy = tf.identity(value)
    if getattr(value, "_keras_mask", None) is not None:
        copy._keras_mask = value._keras_mask
    if getattr(value, "_keras_logits", None) is not None:
        copy._keras_logits = tf.identity(value._keras_logits)
    return copy


def at_output(layer: keras.Layer, call: Callable, watch: Callable, args: tuple, kwargs: dict) -> Tapped:
    """Taps at the layer's outputs (copies: a layer may hand on its input)."""
    output = keras.tree.map_structure(copied, call(*args, **kwargs))
    taps = tapped(output)
    for tap in taps:
        watch(tap)
    return Tapped(output, taps)


def at_pre_activation(layer: keras.Layer, call: Callable, watch: Callable, args: tuple, kwargs: dict) -> Tapped:
    """A tap between the layer's linear part and its activation."""
    activation = layer.__dict__["activation"]
    layer.__dict__["activation"] = keras.activations.linear
    try:
        z = call(*args, **kwargs)
    finally:
        layer.__dict__["activation"] = activation
    watch(z)
    return Tapped(z if activation is None else activation(z), [z])
