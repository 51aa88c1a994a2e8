"""The engine proves itself on the model at hand, before the first step.

``prove`` runs a few made-up examples through the model and compares:

* (a) coverage: the engine's gradient and norm of an example, weight by weight, with what ``tf.GradientTape`` says of that
  example's own loss. A weight that fails moves to a wider site of the plan (``gradients/plan.py``).
* (b) independence: an example's own loss and gradient alone, with those of the same example among others: other values,
  large ones, zeros, copies; other lot sizes. If they differ, examples meet inside the model, one record moves more than
  its own clipped gradient, and no epsilon holds: ``MixesExamples`` names the layer and the cure.

All seeds are pinned, so that dropout draws the same numbers for the first example every time. No weight, statistic, seed or
metric has moved when ``prove`` returns or raises. It is a test, not a proof: a layer that mixes examples only for inputs
that are never tried is not found.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients.engine import Forward, lot_gradients
from tfdp.gradients.layer_tree import all_layers, flat_tensors, map_tensors, seed_generators
from tfdp.gradients.made_up import made_up_records
from tfdp.gradients.per_example import MAP, XLA
from tfdp.gradients.plan import Plan, first_plan, widen
from tfdp.gradients.recording import Call, recording
from tfdp.gradients.state import StateAssigned

ROUNDING = {"float16": 3e-2, "bfloat16": 2e-1}
EXAMPLES = 3
MOST_ATTEMPTS = 64


class MixesExamples(ValueError):
    """An example's loss or gradient depends on the other examples of its lot."""


@dataclasses.dataclass
class Probe:
    """What one run says of one example of a lot: its own loss and gradient by tape, and the engine's."""

    loss: np.ndarray
    reference: list[np.ndarray]  # d L_row / d w, losses added for the whole lot left out
    whole_reference: list[np.ndarray]  # d sum_i L_i / d w, those losses included
    engine: list[np.ndarray]
    squared_norms: np.ndarray
    rows: np.ndarray  # of every site's call


def prove(model: keras.Model, record_spec: Any, sample: Any = None) -> Plan:
    """The plan by which the model's per-example gradients are right.

    Args:
        model: built and compiled.
        record_spec: ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)`` of ``tf.TensorSpec`` with a leading None.
        sample: a few real records, for models that don't run on made-up ones. No message quotes them.

    Raises:
        MixesExamples: examples meet in the model; names the layer.
        StateAssigned: the model assigns a statistic of its own in a training call.
    """
    state = _State(model)
    try:
        return _Prover(model, record_spec, sample, state).run()
    finally:
        state.restore()


class _State:
    """Seeds and metrics as they were: every probe starts from the same seeds, and nothing is left moved."""

    def __init__(self, model: keras.Model):
        self._variables = [g.state for g in seed_generators(model)] + list(model.metrics_variables)
        self._values = [v.numpy() for v in self._variables]

    def restore(self) -> None:
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(value)


class _Prover:
    def __init__(self, model, record_spec, sample, state):
        self.model, self.spec, self.state = model, record_spec, state
        self.tolerance = max([1e-3, *(ROUNDING.get(layer.compute_dtype, 0.0) for layer in all_layers(model))])
        self.records = made_up_records(record_spec, sample, self._runs)

    def run(self) -> Plan:
        plan = first_plan(self.model)
        calls = self._independence(plan)
        for _ in range(MOST_ATTEMPTS):
            if plan.whole:
                return self._whole(plan)
            failed = self._attempt(plan)
            if failed is None:
                return plan
            for variable in failed:
                if not widen(plan, self.model, variable, calls):
                    plan.whole = [XLA, MAP]
                    break
        raise ValueError(
            f"No way was found to compute the per-example gradients of the model {self.model.name!r}: tried "
            f"{', '.join(plan.describe())}."
        )

    # Independence: only tapes, no rules.

    def _independence(self, plan: Plan) -> list[Call]:
        calls: list[Call] = []

        @tf.function(input_signature=[self.spec], autograph=False)
        def first_example(record):
            x, y, sample_weight = _unpacked(record)
            with tf.GradientTape() as tape:
                forward = Forward(tape, self.model, Plan({}, shares=plan.shares), x, y, sample_weight)
                own = forward.losses.main[0] + forward.losses.activity[0]
            calls[:] = forward.record.calls
            plan.shares = ["mean"] * len(forward.losses.added)
            return own, _dense(tape.gradient(own, _values(self.model)), self.model)

        for lots in self.records.lots_of_one_among_others():
            alone, *others = [self._pinned(first_example, lot) for lot in lots]
            for lot, among in zip(lots[1:], others, strict=True):
                same = self._close([among[0]], [alone[0]]) and self._close(among[1], alone[1])
                if not same:
                    raise MixesExamples(self._mixing_message(lots[0], lot))
        return calls

    def _mixing_message(self, alone, lot) -> str:
        names: list[keras.Layer] = []

        @tf.function(input_signature=[self.spec], autograph=False)
        def outputs(record):
            x, _, _ = _unpacked(record)
            with recording(self.model, {}) as seen:
                self.model(x, training=True)
            pairs = [(c.layer, t) for c in seen.calls if c.in_step_graph for t in flat_tensors(c.output)]
            pairs = [(layer, t) for layer, t in pairs if len(t.shape) and t.shape[0] is None]
            names[:] = [layer for layer, _ in pairs]
            return [t[0] for _, t in pairs]

        first, among = self._pinned(outputs, alone), self._pinned(outputs, lot)
        for layer, a, b in zip(names, first, among, strict=True):
            if a.shape != b.shape or not self._close([a], [b]):
                what = "The model itself" if layer is self.model else f"The layer {layer.name!r}"
                return (
                    f"{what} ({type(layer).__name__}) mixes examples: its output for one example changes with the other "
                    f"examples of the lot. One record would then move more than its own clipped gradient, and no privacy "
                    f"claim would hold. {_cure(layer)}"
                )
        layers = ", ".join(repr(layer.name) for layer in all_layers(self.model)[1:6])
        return (
            f"The loss of the model {self.model.name!r} (layers {layers}, ...) mixes examples: an example's own loss or "
            f"gradient changes with the other examples of the lot though no layer's output does. Private training needs a "
            f"loss that is a mean over examples, each term a function of one example."
        )

    # Coverage.

    def _attempt(self, plan: Plan) -> list[keras.Variable] | None:
        """The weights that the plan does not cover, or None if it covers them all."""
        try:
            probe = self._probe(plan)
            alone, lot = self.records.coverage_lots()
            single = probe(alone, 0)
            several = [probe(lot, row) for row in range(self.records.size(lot))]
        except (StateAssigned, MixesExamples):
            raise
        except Exception:
            if not self._next_mode(plan):
                plan.whole = [XLA, MAP]
            return []
        folded = self._folded(plan, several[0], self.records.size(lot))
        if folded - plan.folded:
            plan.folded |= folded
            return []
        failed = self._uncovered(single, single.whole_reference)
        if not plan.shares:
            for found in several:
                failed |= self._uncovered(found, found.reference)
        elif not failed and not self._shares_hold(plan, probe, single):
            raise MixesExamples(self._added_loss_message())
        variables = self.model.trainable_variables
        return [variables[i] for i in sorted(failed)] or None

    def _probe(self, plan: Plan) -> Callable[[Any, int], Probe]:
        @tf.function(input_signature=[self.spec, tf.TensorSpec([], tf.int32)], autograph=False)
        def traced(record, row):
            x, y, sample_weight = _unpacked(record)
            with tf.GradientTape(persistent=True) as tape:
                forward = Forward(tape, self.model, plan, x, y, sample_weight)
                own = forward.losses.main[row] + forward.losses.activity[row]
                objective = forward.objective()
                unscaled = objective / forward.scale
            reference = _dense(tape.gradient(own, _values(self.model)), self.model)
            whole = reference  # of one example alone, unless there are losses added for the whole lot
            if plan.shares:
                whole = _dense(tape.gradient(unscaled, _values(self.model)), self.model)
            found = forward.book_keeping(objective).gradients
            engine = found.weighted_sum(tf.one_hot(row, forward.batch))
            norms = [norms[row] for norms in found.squared_norms_by_weight()]
            rows = [tf.shape(call.taps[0])[0] for call in forward.record.sites()]
            self._site_layers = [call.layer for call in forward.record.sites()]
            return own, reference, whole, engine, tf.stack(norms or [0.0]), tf.stack(rows or [0])

        return lambda record, row: Probe(*self._pinned(traced, record, tf.constant(row)))

    def _next_mode(self, plan: Plan) -> bool:
        """Another way for the universal sites; which of them failed can't be told from an exception."""
        left = [site for site in plan.sites.values() if site.family is None and len(site.modes) > 1]
        for site in left:
            site.modes = site.modes[1:]
        if left:
            return True
        with_rule = [site for site in plan.sites.values() if site.family is not None]
        for site in with_rule:  # a rule that does not run on this model: the universal rule of the same layer
            site.family, site.modes = None, [XLA, MAP]
        return bool(with_rule)

    def _folded(self, plan: Plan, probe: Probe, batch: int) -> set[int]:
        """Sites whose calls see several rows an example: [B * k, ...]."""
        calls = zip(self._site_layers, probe.rows.tolist(), strict=True) if self._site_layers else []
        return {id(layer) for layer, rows in calls if rows != batch and rows % batch == 0}

    def _uncovered(self, probe: Probe, reference: list[np.ndarray]) -> set[int]:
        overall = _norm(reference)
        failed = set()
        for i, (mine, true) in enumerate(zip(probe.engine, reference, strict=True)):
            size = np.linalg.norm(true)
            allowed = self.tolerance * (size + 1e-3 * overall) + 1e-12
            norm = np.sqrt(probe.squared_norms[i])
            if not np.linalg.norm(mine - true) <= allowed or not abs(norm - size) <= allowed:
                failed.add(i)
        return failed

    def _shares_hold(self, plan: Plan, probe, single: Probe) -> bool:
        """Whether losses added for the whole lot are the examples' mean or sum: found by trying, first all alike."""
        count = len(plan.shares)
        candidates = [["mean"] * count, ["sum"] * count]
        candidates += [["sum" if i == k else "mean" for i in range(count)] for k in range(count)]
        candidates += [["mean" if i == k else "sum" for i in range(count)] for k in range(count)]
        for shares in candidates:
            plan.shares = shares
            probe = self._probe(plan)
            alone, *lots = next(iter(self.records.lots_of_one_among_others()))
            single = probe(alone, 0)
            if not any(self._uncovered(probe(lot, 0), single.whole_reference) for lot in lots):
                return True
        return False

    def _added_loss_message(self) -> str:
        return (
            f"A loss given to add_loss in the model {self.model.name!r} mixes examples: it is neither the mean nor the sum "
            f"over the lot of terms that are functions of one example each. Give add_loss such a mean, for example "
            f"add_loss(ops.mean(term)) with one term an example."
        )

    def _whole(self, plan: Plan) -> Plan:
        while plan.whole:

            @tf.function(input_signature=[self.spec], autograph=False)
            def run(record):
                found = lot_gradients(self.model, plan, *_unpacked(record))
                return found.gradients.squared_norms()

            try:
                self._pinned(run, self.records.coverage_lots()[1])
                return plan
            except StateAssigned:
                raise
            except Exception:
                plan.whole = plan.whole[1:]
                if not plan.whole:
                    raise
        return plan

    def _runs(self, record: Any) -> None:
        """Run the model and its loss once on these records: whatever is wrong with them shows here."""
        x, y, sample_weight = _unpacked(map_tensors(tf.convert_to_tensor, record))
        y_pred = self.model(x, training=False)
        self.model._compute_loss(x, y, y_pred, sample_weight, training=False)
        self.model._clear_losses()

    def _pinned(self, function, *arguments):
        self.state.restore()
        return keras.tree.map_structure(lambda t: t.numpy(), function(*arguments))

    def _close(self, found, expected) -> bool:
        overall = _norm(expected)
        return all(
            np.linalg.norm(np.float64(a) - np.float64(b))
            <= self.tolerance * (np.linalg.norm(b) + 1e-3 * overall) + 1e-12
            for a, b in zip(found, expected, strict=True)
        )


def _unpacked(record):
    return (*record, None, None)[:3]


def _values(model):
    return [v.value for v in model.trainable_variables]


def _dense(gradients, model) -> list[tf.Tensor]:
    return [
        tf.zeros(v.shape) if g is None else tf.cast(tf.convert_to_tensor(g), tf.float32)
        for g, v in zip(gradients, model.trainable_variables, strict=True)
    ]


def _norm(arrays) -> float:
    return float(np.sqrt(sum(np.sum(np.square(np.float64(a))) for a in arrays)))


def _cure(layer: keras.Layer) -> str:
    if isinstance(layer, keras.layers.BatchNormalization):
        return (
            "Use keras.layers.GroupNormalization or LayerNormalization in its place, or freeze it "
            "(layer.trainable = False)."
        )
    return "Make it a function of one example: reduce over features or time, never over the first axis."
