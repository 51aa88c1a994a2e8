"""Whether an example's own loss and gradient depend on the other examples of its lot.

If they do, one record moves more than its own clipped gradient, and no epsilon holds. An example is compared with itself
alone and among others: ordinary ones, large ones, zeros, copies; in lots of other sizes; at other places; with other random
numbers, where any are drawn; with every weight at another value. Only tapes are used here, no rules of the engine.
"""

import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.gradients.engine import Forward
from tfdp.gradients.layer_tree import all_layers, flat_tensors, own_weight
from tfdp.gradients.plan import Plan
from tfdp.gradients.recording import Call, recording
from tfdp.gradients.state import StateAssigned, refuse_assigning_ops
from tfdp.gradients.trial import Trial, dense, total_norm, unpacked, values

SAME_PLACE = 1e-5  # rounding where neither the size of the lot nor the place in it changes
OTHER_DRAWS = 12

Place = tuple[Any, int]  # a lot, and a row of it


class MixesExamples(ValueError):
    """An example's loss or gradient depends on the other examples of its lot."""


class Independence:
    """The check of one model."""

    def __init__(self, trial: Trial):
        self.trial = trial

    def check(self, plan: Plan) -> tuple[list[Call], list[str]]:
        """Raises where examples meet. Returns the calls of the forward pass and the names of layers that add losses."""
        seen: dict = {}
        example = self._own_loss_and_gradient(plan, seen, training=True)
        traced = example.get_concrete_function().graph
        refuse_assigning_ops(self.trial.model, traced)
        self.trial.state.also(traced.variables)
        lot = self.trial.records.coverage_lots()[1]
        if self.trial.run(example, lot)[3].shape[0] != self.trial.records.size(lot):
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
        with self.trial.state.other_metrics():
            self._refuse_metrics_that_are_read(example)
        with self.trial.state.other_weights():  # what a weight that is 0 at the start hides shows at another value
            self._compare_companies(example)
        return seen["calls"], seen["added_by"]

    def _own_loss_and_gradient(self, plan: Plan, seen: dict, training: bool):
        """A function of a lot and a place in it."""

        @self.trial.function
        def example(record, row):
            x, y, sample_weight = unpacked(record)
            with tf.GradientTape() as tape:
                bare = Plan({}, shares=plan.shares, alone=plan.alone)
                forward = Forward(tape, self.trial.model, bare, x, y, sample_weight, training=training)
                losses = forward.losses
                own = losses.main[row] + losses.activity[row]
            plan.shares = ["mean"] * len(losses.added)
            seen.update(added_by=losses.added_by, draws=forward.record.draws, alone=losses.reduces_by_itself)
            seen["calls"] = forward.record.calls
            arguments = (x, y, forward.y_pred, sample_weight)
            of_the_lot = (
                losses.of_the_lot(self.trial.model, *arguments) if losses.reduces_by_itself else losses.main[:1]
            )
            return (
                own,
                dense(tape.gradient(own, values(self.trial.model)), self.trial.model),
                of_the_lot,
                losses.main,
                losses.activity_of_the_lot,
            )

        return example

    def _compare_sizes(self, example, seen: dict) -> None:
        """The first example alone and in lots of several sizes: dropout draws the same numbers for the first."""
        for lots in self.trial.records.lots_of_one_among_others():
            alone = self.trial.run(example, lots[0])
            cleared: list = []  # the same units are at their kinks whatever the company
            for number, lot in enumerate(lots[1:]):
                among, pair = self.trial.run(example, lot), ((lots[0], 0), (lot, 0))
                same = self._same(alone, among, self.trial.tolerance)
                if not same and not any(self._same(earlier, among, SAME_PLACE) for earlier in cleared):
                    self._refuse_more_than_rounding(example, pair, alone, among, self.trial.tolerance)
                    cleared.append(among)
                ordinary = number < 3  # the others are large, or all zeros, which may be padding to the model
                if seen["alone"] and ordinary and not self._adds_up(among[2], among[3]):
                    raise MixesExamples(self._loss_message())
                if ordinary and not all(self._adds_up(whole, own) for whole, own in among[4]):
                    raise MixesExamples(
                        f"An activity regulariser of the model {self.trial.model.name!r} mixes examples: it is neither the mean nor "
                        f"the sum over the lot of what it says of each example alone."
                    )

    def _compare_companies(self, example, round_number: int = 0) -> None:
        """Lots of one size: random numbers and rounding are those of the place, so nearly nothing may differ."""
        self.trial.round_number = round_number
        for place, lots in self.trial.records.lots_in_changing_company():
            lots = lots if round_number == 0 else lots[:2]
            one = self.trial.run(example, lots[0], place)
            for lot in lots[1:]:
                other, pair = self.trial.run(example, lot, place), ((lots[0], place), (lot, place))
                if not self._same(one, other, SAME_PLACE):
                    self._refuse_more_than_rounding(example, pair, one, other, SAME_PLACE)
        self.trial.round_number = 0

    def _compare_places(self, example, seen: dict) -> None:
        for (place, here), (elsewhere, there) in itertools.pairwise(self.trial.records.lots_in_changing_company()):
            if place == 0:
                one = self.trial.run(example, here[0], place)
                other = self.trial.run(example, there[0], elsewhere)
                if seen.get("draws"):
                    return  # random in inference as well: nothing can be told
                pair = ((here[0], place), (there[0], elsewhere))
                if not self._same(one, other, self.trial.tolerance):
                    self._refuse_more_than_rounding(example, pair, one, other, self.trial.tolerance)

    def _refuse_metrics_that_are_read(self, example) -> None:
        """A metric is an average over earlier records: a loss that depends on one carries them past clip and noise."""
        alone = self.trial.records.coverage_lots()[0]
        moved = self.trial.run(example, alone, metrics=False)
        if not self._same(self.trial.run(example, alone), moved, SAME_PLACE):
            raise StateAssigned(
                f"The loss of the model {self.trial.model.name!r} depends on the state of a metric, an average over earlier records: "
                f"data would reach the weights without clipping and noise. Let metrics be updated, never read, in training."
            )

    def _same(self, alone, among, tolerance: float) -> bool:
        """Others whose gradient is NaN (all their tokens masked, say) make a tape's gradient NaN: 0 * NaN."""
        blind = not np.isfinite(total_norm(among[1])) and np.isfinite(among[0])
        return self.trial.close([among[0]], [alone[0]], tolerance) and (
            blind or self.trial.close(among[1], alone[1], tolerance)
        )

    def _refuse_more_than_rounding(self, example, pair: tuple[Place, Place], one, other, tolerance: float) -> None:
        """Two results that are not the same: their losses must be, and their gradients may differ at kinks alone."""

        def gradients():
            here, there = (self.trial.run(example, *place)[1] for place in pair)
            return there, here

        if not self.trial.close([other[0]], [one[0]], tolerance) or self.trial.persisting(
            gradients, self.trial.apart(other[1], one[1], tolerance), tolerance
        ):
            raise MixesExamples(self._mixing_message(*pair, one, other))

    def _adds_up(self, of_the_lot: np.ndarray, own: np.ndarray) -> bool:
        """A loss that makes one number of a lot must be the mean or the sum of what it says of each example alone."""
        found = [np.sum(of_the_lot)]
        return self.trial.close(found, [np.mean(own)]) or self.trial.close(found, [np.sum(own)])

    def _mixing_message(self, one_place: Place, other_place: Place, one, other) -> str:
        layer = self._first_mixing_layer(one_place, other_place)
        if layer is None and self.trial.close([other[0]], [one[0]]):
            # Nothing shows in a value yet (a gate at 0): the gradient of the layer's own weight betrays it.
            moved = [
                v
                for v, a, b in zip(self.trial.model.trainable_variables, other[1], one[1], strict=True)
                if not self.trial.close([a], [b])
            ]
            layer = next((part for v in moved for part in all_layers(self.trial.model) if own_weight(part, v)), None)
        if layer is None:
            return self._loss_message()
        what = "The model" if layer is self.trial.model else "The layer"
        return (
            f"{what} {layer.name!r} ({type(layer).__name__}) mixes examples: its output for one example, or its gradient, changes "
            f"with the other examples of the lot. One record would then move more than its own clipped gradient, and no "
            f"privacy claim would hold. {_cure(layer)}"
        )

    def _first_mixing_layer(self, one_place: Place, other_place: Place) -> keras.Layer | None:
        """The layer that gives one example another output though it was given the same input."""
        seen_by: list[keras.Layer] = []
        rounding = (
            SAME_PLACE
            if self.trial.records.size(one_place[0]) == self.trial.records.size(other_place[0])
            else self.trial.tolerance
        )

        @self.trial.function
        def calls_of(record, row):
            x, _, _ = unpacked(record)
            with recording(self.trial.model, {}) as seen:
                self.trial.model(x, training=True)
            inside = [call for call in seen.calls if call.in_step_graph]
            seen_by[:] = [call.layer for call in inside]
            return [(_rows_of((c.args, c.kwargs), row), _rows_of(c.output, row)) for c in inside]

        first, among = (self.trial.run(calls_of, *place) for place in (one_place, other_place))
        for layer, (inputs, outputs), (other_inputs, other_outputs) in zip(seen_by, first, among, strict=True):
            if self._all_equal(inputs, other_inputs, rounding) and not self._all_equal(
                outputs, other_outputs, rounding
            ):
                return layer
        return None

    def _loss_message(self) -> str:
        return (
            f"The loss of the model {self.trial.model.name!r} mixes examples: an example's own loss or gradient changes with the "
            f"other examples of the lot though no layer's output does. Private training needs a loss that is a mean over "
            f"examples, each term a function of one example."
        )

    def _all_equal(self, found, expected, rounding: float) -> bool:
        return len(found) == len(expected) and all(
            a.shape == b.shape and self.trial.close([a], [b], rounding) for a, b in zip(found, expected, strict=True)
        )


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
