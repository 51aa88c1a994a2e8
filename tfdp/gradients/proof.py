"""The engine proves itself on the model at hand, before the first step.

``prove`` runs a few made-up examples through the model and checks

* independence (``gradients/independence.py``): no example's loss or gradient depends on the others;
* coverage, here: the engine's gradient and norm of an example are, weight by weight, what ``tf.GradientTape`` says of that
  example's own loss. A weight that fails moves to a wider site of the plan (``gradients/plan.py``).

No weight, statistic, seed or metric has moved when ``prove`` returns or raises. It is a test, not a proof: a layer that
mixes examples only for inputs, or at values of its weights, that are never tried is not found.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients.engine import Forward, lot_gradients
from tfdp.gradients.forms import without_allowances
from tfdp.gradients.independence import Independence, MixesExamples
from tfdp.gradients.losses import losses_of_one_device, overrides_the_loss
from tfdp.gradients.overridden_loss import weighting
from tfdp.gradients.per_example import MAP, XLA
from tfdp.gradients.plan import Plan, Site, first_plan, move_out, widen
from tfdp.gradients.recording import RuleFailed
from tfdp.gradients.remat import without_rematerialisation
from tfdp.gradients.reuse import used_elsewhere
from tfdp.gradients.state import StateAssigned
from tfdp.gradients.trial import PinnedState, Trial, dense, unpacked, values

MOST_ATTEMPTS = 64
ALLOWANCE = 1e-2  # of a norm: the most that it may allow for rounding, which shows where terms cancel by three digits


@without_rematerialisation()
@losses_of_one_device()
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
    state = PinnedState(model)
    try:
        return _Coverage(Trial(model, record_spec, sample, state)).plan()
    finally:
        state.restore()


@dataclasses.dataclass
class Probe:
    """What one run says of one example of a lot: its own loss and gradient by tape, and the engine's."""

    loss: np.ndarray
    reference: list[np.ndarray]  # d L_row / d w, losses added for the whole lot left out
    whole_reference: list[np.ndarray]  # d sum_i L_i / d w, those losses included
    engine: list[np.ndarray]
    squared_norms: np.ndarray
    bare_squared_norms: np.ndarray  # without what they allow for rounding
    rows: np.ndarray  # of every site's call


def _beside_own(probe: Probe) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return probe.engine, probe.reference


def _beside_whole(probe: Probe) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return probe.engine, probe.whole_reference


class _Coverage:
    """The search for a plan that covers every weight."""

    def __init__(self, trial: Trial):
        self.trial = trial

    def plan(self) -> Plan:
        plan = first_plan(self.trial.model)
        calls, self.added_by = Independence(self.trial).check(plan)
        if overrides_the_loss(self.trial.model):
            as_keras, plan.penalties = weighting(self.trial)
            plan.whole = [] if as_keras else [XLA, MAP]
        if not plan.whole:
            for use in used_elsewhere(self.trial, plan, calls):
                if use.in_loss or not move_out(plan, self.trial.model, use.variable, calls + use.calls):
                    plan.whole = [XLA, MAP]
        for _ in range(MOST_ATTEMPTS):
            if plan.whole:
                return self._whole(plan)
            failed = self._attempt(plan)
            if failed is None:
                return plan
            for variable in failed:
                if not widen(plan, self.trial.model, variable, calls):
                    plan.whole = [XLA, MAP]
                    break
        raise ValueError(
            f"No way was found to compute the per-example gradients of the model {self.trial.model.name!r}: tried "
            f"{', '.join(plan.describe())}."
        )

    def _attempt(self, plan: Plan) -> list[keras.Variable] | None:
        """The weights that the plan does not cover, or None if it covers them all."""
        alone, lot = self.trial.records.coverage_lots()
        while True:
            try:
                probe = self._probe(plan)
                single, first = probe(alone, 0), probe(lot, 0)
                break
            except (StateAssigned, MixesExamples):
                raise
            except RuleFailed as failure:  # again, without counting: there are only so many rules to replace
                site = plan.sites[id(failure.layer)]
                if not self._next_mode([site]):
                    return site.variables
            except Exception:  # in the middle of a run: which site it was can't be told
                if not self._next_mode(list(plan.sites.values())):
                    plan.whole = [XLA, MAP]
                return []
        if self._replays_random_numbers:  # it would draw others the second time
            plan.whole = [XLA, MAP]
            return []
        folded = self._folded(plan, first, self.trial.records.size(lot))
        if folded - plan.folded:
            plan.folded |= folded
            return []
        failed = self._uncovered(single, single.whole_reference, lambda: _beside_whole(probe(alone, 0)), set())
        if not plan.shares:
            for row in range(self.trial.records.size(lot)):
                found = probe(lot, row) if row else first
                failed |= self._uncovered(found, found.reference, lambda row=row: _beside_own(probe(lot, row)), failed)
        elif not failed and not self._shares_hold(plan, probe, single):
            raise MixesExamples(self._added_loss_message())
        variables = self.trial.model.trainable_variables
        return [variables[i] for i in sorted(failed)] or None

    def _probe(self, plan: Plan) -> Callable[[Any, int], Probe]:
        @self.trial.function
        def traced(record, row):
            x, y, sample_weight = unpacked(record)
            with tf.GradientTape(persistent=True) as tape:
                forward = Forward(tape, self.trial.model, plan, x, y, sample_weight)
                own = forward.losses.main[row] + forward.losses.activity[row]
                objective = forward.objective()
                unscaled = objective / forward.scale
            reference = dense(tape.gradient(own, values(self.trial.model)), self.trial.model)
            whole = []
            if plan.shares:
                whole = dense(tape.gradient(unscaled, values(self.trial.model)), self.trial.model)
            found = forward.book_keeping(objective).gradients
            engine = found.weighted_sum(tf.one_hot(row, forward.batch))
            norms = [norms[row] for norms in found.squared_norms_by_weight()]
            with without_allowances():
                bare = [norms[row] for norms in found.squared_norms_by_weight()]
            rows = [tf.shape(call.taps[0])[0] for call in forward.record.sites()]
            sites = forward.record.sites()
            self._site_layers = [call.layer for call in sites]
            self._replays_random_numbers = any(
                call.drew_random_numbers and plan.sites[id(call.layer)].family is None for call in sites
            )
            norms, bare = (tf.stack(one or [0.0]) for one in (norms, bare))
            return own, reference, whole, engine, norms, bare, tf.stack(rows or [0])

        def probe(record, row) -> Probe:
            found = Probe(*self.trial.run(traced, record, row))
            found.whole_reference = found.whole_reference or found.reference
            return found

        return probe

    def _next_mode(self, sites: list[Site]) -> bool:
        """Another way for sites of which one or all failed: of the universal ones first."""
        left = [site for site in sites if site.family is None and len(site.modes) > 1]
        for site in left:
            site.modes = site.modes[1:]
        if left:
            return True
        with_rule = [site for site in sites if site.family is not None]
        for site in with_rule:  # a rule that does not run on this model: the universal rule of the same layer
            site.family, site.modes = None, [XLA, MAP]
        return bool(with_rule)

    def _folded(self, plan: Plan, probe: Probe, batch: int) -> set[int]:
        """Sites whose calls see several rows an example: [B * k, ...]."""
        calls = zip(self._site_layers, probe.rows.tolist(), strict=True) if self._site_layers else []
        return {id(layer) for layer, rows in calls if rows != batch and rows % batch == 0}

    def _uncovered(self, probe: Probe, reference: list[np.ndarray], again: Callable, known: set[int]) -> set[int]:
        """The weights, beside those known, where the engine's gradient is not the reference or its norm not its own.

        What norms allow for rounding is left out where they are compared, and must be little. ``again`` finds (gradient,
        reference) anew: where the engine runs a layer a second time, kinks may fall otherwise.
        """
        sizes = [np.linalg.norm(gradient) for gradient in probe.engine]
        failed = set(self.trial.apart(np.sqrt(probe.bare_squared_norms), sizes)) - known
        failed |= (
            set(self.trial.apart(np.sqrt(probe.squared_norms), sizes, max(ALLOWANCE, self.trial.tolerance))) - known
        )
        apart = [i for i in self.trial.apart(probe.engine, reference) if i not in failed | known]
        return failed | set(self.trial.persisting(again, apart))

    def _shares_hold(self, plan: Plan, probe, single: Probe) -> bool:
        """Whether losses added for the whole lot are the examples' mean or sum: found by trying, first all alike."""
        count = len(plan.shares)
        candidates = [["mean"] * count, ["sum"] * count]
        candidates += [["sum" if i == k else "mean" for i in range(count)] for k in range(count)]
        candidates += [["mean" if i == k else "sum" for i in range(count)] for k in range(count)]
        for shares in candidates:
            plan.shares = shares
            probe = self._probe(plan)
            alone, *lots = next(iter(self.trial.records.lots_of_one_among_others()))
            single = probe(alone, 0)
            if not any(self._differs_in_company(probe, alone, lot, single) for lot in lots):
                return True
        return False

    def _differs_in_company(self, probe, alone, lot, single: Probe) -> bool:
        def again():
            return probe(lot, 0).engine, probe(alone, 0).whole_reference

        return bool(self._uncovered(probe(lot, 0), single.whole_reference, again, set()))

    def _added_loss_message(self) -> str:
        layers = ", ".join(repr(name) for name in dict.fromkeys(self.added_by))
        return (
            f"A loss given to add_loss (by {layers}) mixes examples: it is neither the mean nor the sum over the lot of terms "
            f"that are functions of one example each. Give add_loss such a mean, for example add_loss(ops.mean(term)) with "
            f"one term an example."
        )

    def _whole(self, plan: Plan) -> Plan:
        while plan.whole:

            @self.trial.function
            def run(record, _):
                return lot_gradients(self.trial.model, plan, *unpacked(record)).gradients.squared_norms()

            try:
                self.trial.run(run, self.trial.records.coverage_lots()[1])
                return plan
            except StateAssigned:
                raise
            except Exception:
                plan.whole = plan.whole[1:]
                if not plan.whole:
                    raise
        return plan
