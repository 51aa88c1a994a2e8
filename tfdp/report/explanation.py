"""What the engine does with a model: for each weight where its per-example gradients are taken, by which rule, at which cost."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data import PoissonBatches
from tfdp.gradients import Materialised, OuterSum, Plan, Rows, lot_gradients, prove
from tfdp.gradients.factored import cheaper_form
from tfdp.gradients.forms import GRAM
from tfdp.gradients.layer_tree import all_layers, differentiable, instance_attribute, map_tensors, own_weight
from tfdp.gradients.losses import overrides_the_loss

_KEPT = "where it meets the examples"
_ADVICE = "make it of Keras's own layers, or give it a rule: tfdp.gradients.rule"
_REPEATS = 3


@dataclasses.dataclass(frozen=True)
class Row:
    """One trainable weight.

    Attributes:
        weight: its path.
        shape: its shape.
        site: the layer at which its gradients are taken; the model's name where the whole model is run an example at a time.
        rule: how.
        fast: whether nothing is run a second time for it.
        cost: of its norms, in multiplications, as a multiple of those of its ordinary gradient; derived from shapes. None
            where that can't be said: layers that are run again, sequences of unknown length.
        why: why a faster way was left; empty where there is none.
        advice: what would help.
    """

    weight: str
    shape: tuple[int, ...]
    site: str
    rule: str
    fast: bool
    cost: float | None
    why: str = ""
    advice: str = ""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A row for each trainable weight, and what a lot costs.

    Attributes:
        rows: the weights, in the model's order.
        time: of per-example gradients, norms and clipped sum, in CPU seconds a lot, measured here.
        ordinary_time: of the ordinary gradient of the same lot.
        lot_size: examples in that lot.
        made_up_targets: whether no targets were given, and a loss was made up.
    """

    rows: tuple[Row, ...]
    time: float
    ordinary_time: float
    lot_size: int
    made_up_targets: bool

    @property
    def slow(self) -> tuple[Row, ...]:
        """The weights for which layers are run a second time."""
        return tuple(row for row in self.rows if not row.fast)

    def __str__(self) -> str:
        head = ("weight", "shape", "taken at", "by", "cost of its norm")
        table = [head, *((r.weight, str(r.shape), r.site, r.rule, _cost(r.cost)) for r in self.rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
        ]
        lines += ["", "Cost: multiplications, as a multiple of those of the weight's ordinary gradient, from shapes."]
        ratio = self.time / self.ordinary_time if self.ordinary_time else float("nan")
        lines += [
            f"A lot of {self.lot_size}, clipped and summed: {self.time:.3f} s of CPU time, {ratio:.1f} times the ordinary gradient (measured)."
        ]
        if any(row.cost is None for row in self.rows):
            lines += [
                "Not counted: the cost does not follow from shapes (convolutions, layers run again). The time above holds it."
            ]
        lines += [f"Slow: {row.weight}: {row.why}. What helps: {row.advice}." for row in self.slow]
        if self.made_up_targets:
            lines += [
                "No targets were given, so a squared error took the place of the loss: pass y to see the loss itself."
            ]
        return "\n".join(lines)


def explain(model: keras.Model, x: Any = None, y: Any = None, batch_size: int = 32) -> Explanation:
    """What training this model privately will do, found by the very check that ``fit`` makes before its first step.

    The model may be compiled or not, privately or not; nothing of it changes, but that it is built.

    Args:
        model: any model.
        x: records as ``fit`` takes them, at least a few.
        y: their targets. Without them, or with a model that was not compiled, a squared error takes the place of the loss.
        batch_size: the lot size.

    Raises:
        What ``fit`` raises of a model that can't be trained privately.
    """
    if x is None:
        raise ValueError("explain runs the model on records: tfdp.explain(model, x, y). A few of them are enough.")
    if not model.built:
        model(map_tensors(lambda array: tf.convert_to_tensor(array[:2]), x))
    if overrides_the_loss(model) and y is None:
        raise ValueError(f"The model {model.name!r} has a compute_loss of its own: pass y, the targets it wants.")
    made_up = not overrides_the_loss(model) and (y is None or model._compile_loss is None)
    size = min(batch_size, len(keras.tree.flatten(x)[0]))
    with _squared_error(model, x) if made_up else contextlib.nullcontext(y) as targets:
        lots = PoissonBatches(x, targets, batch_size=size)
        plan = prove(model, lots.record_spec, lots.head(8), size)
        return _explained(model, plan, lots, size, made_up)


@contextlib.contextmanager
def _squared_error(model: keras.Model, x: Any) -> Iterator[Any]:
    """In place of the model's loss, for a while. Gives targets."""
    found = model(map_tensors(lambda array: tf.convert_to_tensor(array[:2]), x), training=False)
    model._clear_losses()
    count, random = len(keras.tree.flatten(x)[0]), np.random.default_rng(0)
    targets = keras.tree.map_structure(lambda t: random.normal(size=(count, *t.shape[1:])).astype("float32"), found)
    loss = keras.src.trainers.compile_utils.CompileLoss(keras.tree.map_structure(lambda t: "mean_squared_error", found))
    loss.build(keras.tree.map_structure(lambda t: tf.zeros(t.shape), found), found)
    with instance_attribute(model, "_compile_loss", loss):
        yield targets


def _explained(model: keras.Model, plan: Plan, lots: PoissonBatches, size: int, made_up: bool) -> Explanation:
    record = map_tensors(tf.convert_to_tensor, lots.head(size))
    costs = []

    @tf.function(input_signature=[lots.record_spec, tf.TensorSpec([2], tf.int64)], autograph=False)
    def private(record, secret):
        found = lot_gradients(model, plan, *(*record, None, None)[:3], secret=secret).gradients
        costs[:] = [_relative_cost(gradient) for gradient in found.by_weight]
        norms = found.squared_norms()
        return found.weighted_sum(tf.math.rsqrt(tf.maximum(norms, 1.0)))

    @tf.function(input_signature=[lots.record_spec], autograph=False)
    def ordinary(record):
        x, y, sample_weight = (*record, None, None)[:3]
        with tf.GradientTape() as tape:
            loss = model._compute_loss(x, y, model(x, training=True), sample_weight, training=True)
        model._clear_losses()
        found = tape.gradient(loss, differentiable(model.trainable_variables))
        return [tf.zeros([]) if g is None else tf.convert_to_tensor(g) for g in found]

    state = [(v, v.numpy()) for v in model.non_trainable_variables + model.metrics_variables]
    try:
        times = _seconds(lambda: private(record, tf.constant([1, 2], tf.int64))), _seconds(lambda: ordinary(record))
    finally:
        for variable, value in state:
            variable.assign(value)
    rows = [_row(model, plan, v, cost) for v, cost in zip(model.trainable_variables, costs, strict=True)]
    return Explanation(tuple(rows), *times, len(keras.tree.flatten(record)[0]), made_up)


def _row(model: keras.Model, plan: Plan, variable: keras.Variable, cost: float | None) -> Row:
    shape = tuple(variable.shape)
    if plan.whole:
        why = plan.reasons.get(None, "")
        return Row(variable.path, shape, model.name, "the whole model, an example at a time", False, None, why, _ADVICE)
    sites = [site for site in plan.sites.values() if any(v is variable for v in site.variables)]
    site, again = sites[0], any(site.runs_again for site in sites)
    owners = [layer for layer in all_layers(model) if own_weight(layer, variable)]
    reasons = [plan.reasons[id(layer)] for layer in (*owners, site.layer) if id(layer) in plan.reasons]
    rule = "the layer, run an example at a time" if again else _KEPT if site.family is None else site.way
    why = (reasons[0].rstrip(".") if reasons else "its layer has no rule") if again else ""
    cost = None if again else cost
    return Row(variable.path, shape, site.layer.name, rule, not again, cost, why, _ADVICE if again else "")


def _relative_cost(gradient: Any) -> float | None:
    """Of norms, in multiplications, beside those of the sum over the lot."""
    if gradient is None:
        return 0.0
    if isinstance(gradient, OuterSum):
        (_, _, places, p), q = gradient.a.shape, gradient.d.shape[3]
        if places is None:
            return None
        inner_products = places > 1 and cheaper_form(places, p, q) == GRAM
        return round(places * (p + q) / (p * q), 2) if inner_products or places == 1 else 1.0
    return 1.0 if isinstance(gradient, Rows | Materialised) else None


def _cost(cost: float | None) -> str:
    return "not counted" if cost is None else f"{cost:g}"


def _seconds(run) -> float:
    run()
    times = []
    for _ in range(_REPEATS):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return float(np.median(times))
