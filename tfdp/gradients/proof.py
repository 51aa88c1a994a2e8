"""The engine proves itself on the model at hand, before the first step.

``prove`` runs a few made-up examples through the model and compares:

* (a) coverage: the engine's gradient and norm of an example, weight by weight, with what ``tf.GradientTape`` says of that
  example's own loss. A weight that fails moves to a wider site of the plan (``gradients/plan.py``).
* (b) independence: an example's own loss and gradient alone, with those of the same example among others: other values,
  large ones, zeros, copies; other lot sizes. If they differ, examples meet inside the model, one record moves more than
  its own clipped gradient, and no epsilon holds: ``MixesExamples`` names the layer and the cure.

All seeds are pinned, so that dropout draws the same numbers for the first example every time. No weight, statistic, seed or
metric has moved when ``prove`` returns or raises. It is a test, not a proof: a layer that mixes examples only for inputs,
or at values of its weights, that are never tried is not found.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients.engine import Forward, lot_gradients
from tfdp.gradients.layer_tree import all_layers, flat_tensors, map_tensors, own_weight, seed_generators
from tfdp.gradients.made_up import made_up_records
from tfdp.gradients.per_example import MAP, XLA
from tfdp.gradients.plan import Plan, first_plan, widen
from tfdp.gradients.recording import Call, recording
from tfdp.gradients.state import StateAssigned, no_state_assigned, refuse_assigning_ops

ROUNDING = {"float16": 3e-2, "bfloat16": 2e-1}
SAME_PLACE = 1e-5
OTHER_DRAWS = 12
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
    """Seeds, metrics and weights as they were: every probe starts from the same ones, and nothing is left moved."""

    def __init__(self, model: keras.Model):
        self._model = model
        self._seeds = [(v, v.numpy()) for v in (g.state for g in seed_generators(model))]
        metrics = {id(v): v for layer in all_layers(model) for m in layer._metrics for v in m.variables}
        metrics |= {id(v): v for v in model.metrics_variables}
        self._metrics = [(v, v.numpy()) for v in metrics.values()]
        self._weights: list = []

    def also(self, variables: Iterable[tf.Variable]) -> None:
        """Everything else that the traced graph reads, tracked by Keras or not."""
        fixed = {id(v.value) for v, _ in (*self._seeds, *self._metrics)}
        self._weights = [(v, v.numpy()) for v in variables if id(v) not in fixed and v.dtype.is_floating]

    def restore(self, metrics: bool = True, round_number: int = 0) -> None:
        for variable, value in (*self._seeds, *(self._metrics if metrics else ())):
            variable.assign(value)
        if round_number:  # other random numbers
            for variable, value in self._seeds:
                variable.assign(value + np.asarray([round_number, 0], value.dtype))

    @contextlib.contextmanager
    def other_weights(self) -> Iterator[None]:
        """Every weight moved a little off its value, upwards, so that variances stay positive and zeros don't stay."""
        with self._moved(self._weights):
            yield

    @contextlib.contextmanager
    def other_metrics(self) -> Iterator[None]:
        with self._moved([(v, value) for v, value in self._metrics if "float" in str(v.dtype)]):
            yield

    @contextlib.contextmanager
    def _moved(self, variables: list) -> Iterator[None]:
        rng = np.random.default_rng(7)
        try:
            for variable, value in variables:
                variable.assign(value + 0.1 * rng.uniform(0.5, 1.5, value.shape) * (1 + np.abs(value)))
            yield
        finally:
            for variable, value in variables:
                variable.assign(value)


class _Prover:
    def __init__(self, model, record_spec, sample, state):
        self.model, self.spec, self.state = model, record_spec, state
        self.round_number = 0  # of the random numbers every run is pinned to
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
        seen: dict = {}
        example = self._own_loss_and_gradient(plan, seen, training=True)
        traced = example.get_concrete_function().graph
        refuse_assigning_ops(self.model, traced)
        self.state.also(traced.variables)
        lot = self.records.coverage_lots()[1]
        if self._pinned(example, lot, tf.constant(0))[3].shape[0] != self.records.size(lot):
            plan.alone = True  # a loss that flattens (B, T) to (B * T): it must be asked about each example alone
            example = self._own_loss_and_gradient(plan, seen, training=True)
        self._compare_sizes(example, seen)
        self._compare_companies(example)
        for round_number in range(1, OTHER_DRAWS + 1) if seen["draws"] else ():  # MixUp spares an example now and then
            self._compare_companies(example, round_number)
        # Random numbers belong to a place in the lot: what places do to an example shows only without them.
        inference: dict = {}
        drawless = self._own_loss_and_gradient(plan, inference, training=False) if seen["draws"] else example
        self._compare_places(drawless, inference)
        with self.state.other_metrics():
            self._refuse_metrics_that_are_read(example)
        with self.state.other_weights():  # what a weight that is 0 at the start hides shows at another value
            self._compare_companies(example)
        self.added_by = seen["added_by"]
        return seen["calls"]

    def _own_loss_and_gradient(self, plan: Plan, seen: dict, training: bool):
        """A function of a lot and a place in it."""

        @tf.function(input_signature=[self.spec, tf.TensorSpec([], tf.int32)], autograph=False)
        def example(record, row):
            x, y, sample_weight = _unpacked(record)
            with tf.GradientTape() as tape:
                bare = Plan({}, shares=plan.shares, alone=plan.alone)
                forward = Forward(tape, self.model, bare, x, y, sample_weight, training=training)
                losses = forward.losses
                own = losses.main[row] + losses.activity[row]
            plan.shares = ["mean"] * len(losses.added)
            seen.update(added_by=losses.added_by, draws=forward.record.draws, alone=losses.reduces_by_itself)
            seen["calls"] = forward.record.calls
            arguments = (x, y, forward.y_pred, sample_weight)
            of_the_lot = losses.of_the_lot(self.model, *arguments) if losses.reduces_by_itself else losses.main[:1]
            return (
                own,
                _dense(tape.gradient(own, _values(self.model)), self.model),
                of_the_lot,
                losses.main,
                losses.activity_of_the_lot,
            )

        return example

    def _compare_sizes(self, example, seen: dict) -> None:
        """The first example alone and in lots of several sizes: dropout draws the same numbers for the first."""
        first = tf.constant(0)
        for lots in self.records.lots_of_one_among_others():
            alone, *others = [self._pinned(example, lot, first) for lot in lots]
            for number, (lot, among) in enumerate(zip(lots[1:], others, strict=True)):
                if not self._same(alone, among, self.tolerance):
                    raise MixesExamples(self._mixing_message(lots[0], lot, (0, 0), alone, among))
                ordinary = number < 3  # the others are large, or all zeros, which may be padding to the model
                if seen["alone"] and ordinary and not self._adds_up(among[2], among[3]):
                    raise MixesExamples(self._loss_message())
                if ordinary and not all(self._adds_up(whole, own) for whole, own in among[4]):
                    raise MixesExamples(
                        f"An activity regulariser of the model {self.model.name!r} mixes examples: it is neither the mean nor "
                        f"the sum over the lot of what it says of each example alone."
                    )

    def _compare_companies(self, example, round_number: int = 0) -> None:
        """Lots of one size: random numbers and rounding are those of the place, so nearly nothing may differ."""
        self.round_number = round_number
        for place, lots in self.records.lots_in_changing_company():
            lots = lots if round_number == 0 else lots[:2]
            one, *others = [self._pinned(example, lot, tf.constant(place)) for lot in lots]
            for lot, other in zip(lots[1:], others, strict=True):
                if not self._same(one, other, SAME_PLACE):
                    raise MixesExamples(self._mixing_message(lots[0], lot, (place, place), one, other))
        self.round_number = 0

    def _compare_places(self, example, seen: dict) -> None:
        for (place, here), (elsewhere, there) in itertools.pairwise(self.records.lots_in_changing_company()):
            if place == 0:
                one = self._pinned(example, here[0], tf.constant(place))
                other = self._pinned(example, there[0], tf.constant(elsewhere))
                if seen.get("draws"):
                    return  # random in inference as well: nothing can be told
                if not self._same(one, other, self.tolerance):
                    raise MixesExamples(self._mixing_message(here[0], there[0], (place, elsewhere), one, other))

    def _refuse_metrics_that_are_read(self, example) -> None:
        """A metric is an average over earlier records: a loss that depends on one carries them past clip and noise."""
        alone, first = self.records.coverage_lots()[0], tf.constant(0)
        moved = self._pinned(example, alone, first, metrics=False)
        if not self._same(self._pinned(example, alone, first), moved, SAME_PLACE):
            raise StateAssigned(
                f"The loss of the model {self.model.name!r} depends on the state of a metric, an average over earlier records: "
                f"data would reach the weights without clipping and noise. Let metrics be updated, never read, in training."
            )

    def _same(self, alone, among, tolerance: float) -> bool:
        """Others whose gradient is NaN (all their tokens masked, say) make a tape's gradient NaN: 0 * NaN."""
        blind = not np.isfinite(_norm(among[1])) and np.isfinite(among[0])
        return self._close([among[0]], [alone[0]], tolerance) and (blind or self._close(among[1], alone[1], tolerance))

    def _adds_up(self, of_the_lot: np.ndarray, own: np.ndarray) -> bool:
        """A loss that makes one number of a lot must be the mean or the sum of what it says of each example alone."""
        found = [np.sum(of_the_lot)]
        return self._close(found, [np.mean(own)]) or self._close(found, [np.sum(own)])

    def _mixing_message(self, one_lot, other_lot, places: tuple[int, int], one, other) -> str:
        layer = self._first_mixing_layer(one_lot, other_lot, places)
        if layer is None and self._close([other[0]], [one[0]]):
            # Nothing shows in a value yet (a gate at 0): the gradient of the layer's own weight betrays it.
            moved = [
                v
                for v, a, b in zip(self.model.trainable_variables, other[1], one[1], strict=True)
                if not self._close([a], [b])
            ]
            layer = next((part for v in moved for part in all_layers(self.model) if own_weight(part, v)), None)
        if layer is None:
            return self._loss_message()
        what = "The model" if layer is self.model else "The layer"
        return (
            f"{what} {layer.name!r} ({type(layer).__name__}) mixes examples: its output for one example, or its gradient, changes "
            f"with the other examples of the lot. One record would then move more than its own clipped gradient, and no "
            f"privacy claim would hold. {_cure(layer)}"
        )

    def _first_mixing_layer(self, one_lot, other_lot, places: tuple[int, int]) -> keras.Layer | None:
        """The layer that gives one example another output though it was given the same input."""
        seen_by: list[keras.Layer] = []
        rounding = SAME_PLACE if self.records.size(one_lot) == self.records.size(other_lot) else self.tolerance

        @tf.function(input_signature=[self.spec, tf.TensorSpec([], tf.int32)], autograph=False)
        def calls_of(record, row):
            x, _, _ = _unpacked(record)
            with recording(self.model, {}) as seen:
                self.model(x, training=True)
            inside = [call for call in seen.calls if call.in_step_graph]
            seen_by[:] = [call.layer for call in inside]
            return [(_rows_of((c.args, c.kwargs), row), _rows_of(c.output, row)) for c in inside]

        first, among = (
            self._pinned(calls_of, lot, tf.constant(place))
            for lot, place in zip((one_lot, other_lot), places, strict=True)
        )
        for layer, (inputs, outputs), (other_inputs, other_outputs) in zip(seen_by, first, among, strict=True):
            if self._all_equal(inputs, other_inputs, rounding) and not self._all_equal(
                outputs, other_outputs, rounding
            ):
                return layer
        return None

    def _loss_message(self) -> str:
        return (
            f"The loss of the model {self.model.name!r} mixes examples: an example's own loss or gradient changes with the "
            f"other examples of the lot though no layer's output does. Private training needs a loss that is a mean over "
            f"examples, each term a function of one example."
        )

    def _all_equal(self, found, expected, rounding: float) -> bool:
        return len(found) == len(expected) and all(
            a.shape == b.shape and self._close([a], [b], rounding) for a, b in zip(found, expected, strict=True)
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
        layers = ", ".join(repr(name) for name in dict.fromkeys(self.added_by))
        return (
            f"A loss given to add_loss (by {layers}) mixes examples: it is neither the mean nor the sum over the lot of terms "
            f"that are functions of one example each. Give add_loss such a mean, for example add_loss(ops.mean(term)) with "
            f"one term an example."
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
        with no_state_assigned(self.model):
            y_pred = self.model(x, training=False)
        self.model._compute_loss(x, y, y_pred, sample_weight, training=False)
        self.model._clear_losses()

    def _pinned(self, function, *arguments, metrics: bool = True):
        self.state.restore(metrics, self.round_number)
        return keras.tree.map_structure(lambda t: t.numpy(), function(*arguments))

    def _close(self, found, expected, tolerance: float | None = None) -> bool:
        """Equal to rounding. Where the example alone is not finite already, nothing can be told."""
        tolerance = self.tolerance if tolerance is None else tolerance
        overall = _norm(expected)
        if not np.isfinite(overall):
            return True
        return all(
            np.linalg.norm(np.float64(a) - np.float64(b)) <= tolerance * (np.linalg.norm(b) + 1e-3 * overall) + 1e-12
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


def _rows_of(structure, row: tf.Tensor) -> list[tf.Tensor]:
    """What belongs to one example, as far as the first dimension tells."""
    return [t[row] for t in flat_tensors(structure) if len(t.shape) and t.shape[0] is None]


def _cure(layer: keras.Layer) -> str:
    if isinstance(layer, keras.layers.BatchNormalization):
        return (
            "Use keras.layers.GroupNormalization or LayerNormalization in its place, or freeze it "
            "(layer.trainable = False)."
        )
    return "Make it a function of one example: reduce over features or time, never over the first axis."
