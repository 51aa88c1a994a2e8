"""The engine proves itself on the model at hand, before the first step.

``prove`` runs made-up examples through the model and checks

* independence (``gradients/independence.py``): nothing that an example's gradient is made of depends on the others;
* coverage, here: the engine's gradient and norm of an example are, weight by weight, what ``tf.GradientTape`` says of that
  example's own loss. A weight that fails moves to a wider site of the plan (``gradients/plan.py``).

No weight, statistic, seed or metric has moved when ``prove`` returns or raises. It is a test, not a proof: a layer that
mixes examples only for inputs, or at values of its weights, that are never tried is not found.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients.blame import MixesExamples, added_loss_message
from tfdp.gradients.draws import SEED
from tfdp.gradients.engine import Forward, lot_gradients
from tfdp.gradients.independence import KEPT, SCALES, Independence
from tfdp.gradients.losses import losses_of_one_device, overrides_the_loss
from tfdp.gradients.made_up import ROWS, in_order, size_of
from tfdp.gradients.overridden_loss import weighting
from tfdp.gradients.plan import Plan, first_plan, move_out, replace_rule, widen
from tfdp.gradients.probe import Found, Probe
from tfdp.gradients.recording import RuleFailed
from tfdp.gradients.remat import without_rematerialisation
from tfdp.gradients.rows import View
from tfdp.gradients.state import KnownDraws, StateAssigned
from tfdp.gradients.taps_of_users import check_taps_of_users
from tfdp.gradients.trial import PinnedState, Trial, dense, total_norm, unpacked, values
from tfdp.gradients.unoptimized import as_traced

MOST_ATTEMPTS = 64
WAYS = 6  # at most, of one site: each may fail once
ALLOWANCE = 1e-2  # of a norm: the most that it may allow for rounding, which shows where terms cancel by three digits
LOT_SIZE = 256  # that is tried where none is given
_CLEAR = (StateAssigned, KnownDraws, MixesExamples)  # refusals that say what to do
_COVERED = (0, 3, 6)  # the base's examples whose gradients are compared with a tape's


@without_rematerialisation()
@losses_of_one_device()
def prove(model: keras.Model, record_spec: Any, sample: Any = None, lot_size: int = LOT_SIZE) -> Plan:
    """The plan by which the model's per-example gradients are right.

    Args:
        model: built and compiled.
        record_spec: ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)`` of ``tf.TensorSpec`` with a leading None.
        sample: a few real records, for models that don't run on made-up ones. No message quotes them.
        lot_size: how many examples are expected to be run at once.

    Raises:
        MixesExamples: examples meet in the model; names the layer.
        StateAssigned: the model keeps something of a lot, or may do so.
        KnownDraws: its random numbers are not secret, or not of one example each.
    """
    state = PinnedState(model)
    try:
        with as_traced():
            return _Coverage(Trial(model, record_spec, sample, state), lot_size).plan()
    except TypeError as error:
        if "out of scope" not in str(error):
            raise
        raise KnownDraws(
            f"A layer of the model {model.name!r} draws random numbers in a tf.function of its own. Such a function is traced once, with the "
            "seed of that time. Leave out its decorator: a step is compiled as a whole."
        ) from None
    finally:
        state.restore()


def _beside_tape(found: Found) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return found.engine, found.by_tape


class _Coverage:
    """The search for a plan that covers every weight."""

    def __init__(self, trial: Trial, lot_size: int):
        self.trial, self.independence = trial, Independence(trial, lot_size)

    def plan(self) -> Plan:
        plan = first_plan(self.trial.model)
        check_taps_of_users(self.trial, plan)
        view = self.independence.settle(plan)
        settled = plan.taps
        if not plan.whole:
            self._move_what_is_used_elsewhere(plan, view)
        for _ in range(MOST_ATTEMPTS + WAYS * len(plan.sites)):
            plan.folded |= view.folded
            if plan.whole:
                return self._whole(plan, view)
            if plan.rules_in_use != view.rules:
                view = self.independence.view(plan)
            failed = self._attempt(plan, view)
            if failed is None:
                if plan.taps != settled:  # sites that were not looked at yet
                    view = self.independence.settle(plan, view)
                    settled = plan.taps
                    continue
                if self.independence.misplaced:
                    self._check_that_examples_add_up(plan, view)
                return plan
            for variable in failed:
                if not widen(plan, self.trial.model, variable, view.calls):
                    plan.take_whole("no layer's rule gave its gradients")
                    break
        raise ValueError(
            f"No way was found to compute the per-example gradients of the model {self.trial.model.name!r}: tried "
            f"{', '.join(plan.describe())}."
        )

    def _move_what_is_used_elsewhere(self, plan: Plan, view: View) -> None:
        if overrides_the_loss(self.trial.model):
            as_keras, plan.penalties = weighting(self.trial)
            if not as_keras:
                plan.take_whole("compute_loss of the model's own counts what layers add in a way of its own")
        if not plan.whole:
            for use in view.uses:
                if use.in_loss or not move_out(plan, self.trial.model, use.variable, view.calls + use.calls):
                    plan.take_whole(
                        f"the weight {use.variable.path!r} is used in the loss, or in a loop of another layer"
                    )

    def _attempt(self, plan: Plan, view: View) -> list[keras.Variable] | None:
        """The weights that the plan does not cover, or None if it covers them all."""
        records = self.trial.records
        alone, lot = records.rows([0]), records.rows(_COVERED)
        try:
            probe = Probe(view)
            single = probe(alone, 0)
            probe(lot, 0)
        except _CLEAR:
            raise
        except RuleFailed as failure:
            site = plan.sites[id(failure.layer)]
            replaced = replace_rule(plan, self.trial.model, site, view.calls, str(failure.error))
            return [] if replaced else site.variables
        except Exception:  # in the middle of a run: which site it was can't be told
            if not self._replace_all(plan, view):
                plan.take_whole("the model did not run with any rule")
            return []
        if view.replays_random_numbers:
            plan.take_whole("a layer without a rule draws random numbers: run again, it would draw others")
            return []
        view(lot)
        if view.folded - plan.folded:  # known before the next attempt
            return []
        failed = self._uncovered(single, single.by_tape, lambda: _beside_tape(probe(alone, 0)), set())
        failed = self._uncovered_in_a_lot(plan, probe, failed)
        with self.trial.state.other_weights():  # behind a weight that is 0 at the start, every gradient is 0
            failed = self._uncovered_in_a_lot(plan, probe, failed)
        variables = self.trial.model.trainable_variables
        return [variables[i] for i in sorted(failed)] or None

    def _uncovered_in_a_lot(self, plan: Plan, probe: Probe, failed: set[int]) -> set[int]:
        """With those that are known to have failed."""
        if plan.shares:  # the share of one example in a loss of the whole lot: what that loss says of it alone
            for row in range(ROWS):
                failed = failed | self._uncovered_in_company(probe, row, failed)
            return failed
        lot = self.trial.records.rows(_COVERED)
        for row in range(size_of(lot)):

            def pair(row=row) -> tuple:
                return probe(lot, row).engine, probe.of_example(lot, row)

            failed = failed | self._uncovered(probe(lot, row), probe.of_example(lot, row), pair, failed)
        return failed

    def _uncovered_in_company(self, probe: Probe, row: int, known: set[int]) -> set[int]:
        records = self.trial.records
        alone, lot = records.rows([row]), in_order(records.base, np.roll(np.arange(ROWS), -row))

        def again() -> tuple:
            return probe(lot, 0).engine, probe(alone, 0).by_tape

        return self._uncovered(probe(lot, 0), probe(alone, 0).by_tape, again, known)

    def _replace_all(self, plan: Plan, view: View) -> bool:
        """Another way for sites of which one failed: of those without a rule first."""
        sites = list(plan.sites.values())
        left = [site for site in sites if site.family is None and len(site.modes) > 1] or sites
        why = "the model did not run with it"
        replaced = [replace_rule(plan, self.trial.model, site, view.calls, why) for site in left]
        return any(replaced)

    def _uncovered(self, found: Found, reference: list[np.ndarray], again: Callable, known: set[int]) -> set[int]:
        """The weights, beside those known, where the engine's gradient is not the reference or its norm not its own.

        What norms allow for rounding is left out where they are compared, and must be little. ``again`` finds (gradient,
        reference) anew: where the engine runs a layer a second time, kinks may fall otherwise.
        """
        if not np.isfinite(total_norm(reference)):
            return set()
        sizes = [np.linalg.norm(gradient) for gradient in found.engine]
        failed = set(self.trial.apart(np.sqrt(found.bare_squared_norms), sizes)) - known
        failed |= (
            set(self.trial.apart(np.sqrt(found.squared_norms), sizes, max(ALLOWANCE, self.trial.tolerance))) - known
        )
        apart = [i for i in self.trial.apart(found.engine, reference) if i not in failed | known]
        return failed | set(self.trial.persisting(again, apart))

    def _whole(self, plan: Plan, view: View) -> Plan:
        while True:

            @self.trial.function
            def run(record, place, secret):
                return lot_gradients(self.trial.model, plan, *unpacked(record), secret=secret).gradients.squared_norms()

            try:
                self.trial.run(run, self.trial.records.rows(_COVERED), 0, self.trial.secret)
                break
            except _CLEAR:
                raise
            except Exception:
                if len(plan.whole) == 1:
                    raise
                plan.whole = plan.whole[1:]
        if self.independence.misplaced:
            self._check_that_examples_add_up(plan, view)
        return plan

    def _check_that_examples_add_up(self, plan: Plan, view: View) -> None:
        """Where a layer's rows are not the examples: the gradient of the joint loss must still be the sum of the examples' own, or
        they meet on the way back."""
        model, records = self.trial.model, self.trial.records
        spec = (self.trial.spec, tf.TensorSpec([None]), SEED)

        def both(record, scales, secret):
            arguments = unpacked(record)
            with tf.GradientTape() as tape:
                forward = Forward(tape, model, plan, *arguments, secret)
                objective = tf.reduce_sum(scales * forward.losses.own()) * forward.scale
                for loss in forward.losses.added:
                    objective += loss * tf.cast(forward.batch, tf.float32) * forward.scale
            joint = [g / forward.scale for g in dense(tape.gradient(objective, values(model)), model)]
            alone = lot_gradients(model, plan, *arguments, secret=secret).gradients.weighted_sum(scales)
            return joint, alone

        function = tf.function(both, input_signature=spec, autograph=False)
        scales = [np.ones(ROWS)] + ([] if view.added_by else [np.resize([1.0, abs(scale)], ROWS) for scale in SCALES])
        lots = [records.base, *(company.lot for company in records.companies(KEPT) if company.ordinary)]
        for lot in lots:
            for one in scales if not view.draws else ():  # alone an example draws other numbers

                def pair(lot=lot, one=one) -> tuple:
                    joint, alone = self.trial.run(function, lot, np.float32(one), self.trial.secret)
                    return joint, alone

                joint, alone = pair()
                if self.trial.persisting(pair, self.trial.apart(joint, alone)):
                    message = (
                        added_loss_message(view.added_by) if view.added_by else self.independence.misplaced_message()
                    )
                    raise MixesExamples(message)
