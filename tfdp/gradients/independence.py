"""Whether anything that an example's gradient is made of depends on the other examples of its lot.

If it does, one record moves more than its own clipped gradient, and no epsilon holds. Lots of made-up examples are run as a
step runs them, and seen row by row (``gradients/rows.py``); a row must show the same

* in another order, its random numbers moved along (``_orders``);
* in lots of other sizes, and of the size that training will have (``_sizes``, ``_large_lots``);
* in other company: large, padded, not finite, marked, all alike (``_companies``);
* whatever the losses of the others count in the joint objective (``_scales``);
* with other random numbers, and at other values of the weights.

A row that shows something else is moved out of the layer where it was seen: rows there may be no examples (a layer may sort,
dispatch or fold them). Where the example's own loss changes, or where nothing wider is left, the model is refused.
"""

import contextlib
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from tfdp.gradients.blame import (
    MixesExamples,
    Situation,
    added_loss_message,
    drawn_in_python_message,
    failure_message,
    first_mixing_layer,
    known_to_mix,
    mixing_message,
    regulariser_message,
)
from tfdp.gradients.extent import is_large
from tfdp.gradients.losses import overrides_the_loss
from tfdp.gradients.made_up import ROWS, all_moved, in_order, larger_than, size_of
from tfdp.gradients.plan import Plan, move_out, replace_rule
from tfdp.gradients.recording import RuleFailed
from tfdp.gradients.rounding import persisting
from tfdp.gradients.rows import Sight, View
from tfdp.gradients.state import KnownDraws, StateAssigned, check_model
from tfdp.gradients.traced import compared_with
from tfdp.gradients.trial import Trial

SAME_PLACE = 1e-5  # rounding where neither the size of the lot nor the place in it changes
KEPT = 3  # examples that stay in changing company
OTHER_DRAWS = 3
MEDIUM = (16, 32)  # sizes of lots
SWITCHES = (0.0, 1.0, 1e3)  # values of variables that are no weights, and may decide what a layer does
SCALES = (0.0, 1e4, -1e12)  # of the others' losses


class _Misplaced(Exception):
    """Rows of these layers' calls are not the examples."""

    def __init__(self, layers: list[keras.Layer], mixing_layer: Callable[[], keras.Layer | None]):
        super().__init__()
        self.layers, self.mixing_layer = layers, mixing_layer


class Independence:
    """The check of one model, at the lot size that it will be trained with."""

    def __init__(self, trial: Trial, lot_size: int):
        self.trial, self.lot_size = trial, lot_size
        self.misplaced: _Misplaced | None = None  # the last one
        self._knows_the_integers = False

    def settle(self, plan: Plan, view: View | None = None) -> View:
        """Raises where examples meet. Moves weights out of layers whose rows are not the examples. ``view`` is of this plan, if there
        is one already."""
        if layer := known_to_mix(self.trial.model):
            raise MixesExamples(mixing_message(self.trial.model, layer))
        view = self._first_view(plan) if view is None else view
        if not self._knows_the_integers:
            self.trial.state.also(view.graph.variables)
            self.trial.records.learn(lambda lot: self._bears(view, lot), self._ends(), compared_with(view.graph))
            self._knows_the_integers = True
        while True:
            try:
                self._compare(view)
                return view
            except _Misplaced as misplaced:
                self.misplaced = misplaced
                self._move_out(plan, view, misplaced.layers)
                view = self.view(plan)
            finally:
                self.trial.round_number = 0

    def misplaced_message(self) -> str:
        """Where a row was last seen to be no example, said as mixing."""
        return mixing_message(self.trial.model, self.misplaced.mixing_layer())

    def _move_out(self, plan: Plan, view: View, layers: list[keras.Layer]) -> None:
        for layer in layers:
            site = plan.sites.get(id(layer))
            for variable in [] if site is None else site.variables:
                if not move_out(plan, self.trial.model, variable, view.calls):
                    plan.sites = {}
                    plan.take_whole(f"rows inside of {layer.name!r} are not the examples")
                    return

    # Views.

    def _first_view(self, plan: Plan) -> View:
        view = self.view(plan)
        try:
            if len(view(self.trial.records.base).own) == ROWS:
                return view
        except Exception as error:
            if plan.alone:
                raise self._failure(error, "a lot of ordinary examples") from None
        plan.alone = True  # a loss that flattens (B, T) to (B * T): it must be asked about each example alone
        return self._first_view(plan)

    def view(self, plan: Plan) -> View:
        """Traced and read, and not compared yet."""
        view = View(self.trial, plan)
        before = random.getstate(), np.random.get_state()[1].tobytes(), np.random.get_state()[2]
        try:
            graph = view.graph
        except (StateAssigned, KnownDraws, MixesExamples):
            raise
        except RuleFailed as failure:
            site = plan.sites[id(failure.layer)]
            if not replace_rule(plan, self.trial.model, site, view.calls, str(failure.error)):
                self._move_out(plan, view, [site.layer])
            return self.view(plan)
        except Exception as error:
            raise self._failure(error, "a lot of unknown size") from None
        if (random.getstate(), np.random.get_state()[1].tobytes(), np.random.get_state()[2]) != before:
            raise KnownDraws(drawn_in_python_message(self.trial.model))
        secret = next(tensor for tensor in graph.inputs if tensor.op.name == "secret")
        check_model(self.trial.model, graph, secret)
        return view

    def _bears(self, view: View, lot: Any) -> bool:
        """Whether the model can be run on these examples, and each has a loss."""
        try:
            return bool(np.all(np.isfinite(view(lot).own)))
        except Exception:
            return False

    def _ends(self) -> set[int]:
        """Where tables of tokens and sets of classes may end."""
        found = set()
        for layer in self.trial.model._flatten_layers():
            sizes = (getattr(layer, name, None) for name in ("input_dim", "num_tokens", "vocabulary_size", "units"))
            found |= {size - 1 for size in sizes if isinstance(size, int) and size > 2}
        return found

    def _failure(self, error: Exception, what: str) -> Exception:
        return (
            error
            if isinstance(error, StateAssigned | KnownDraws | MixesExamples)
            else MixesExamples(failure_message(self.trial, error, what))
        )

    # Comparisons.

    def _compare(self, view: View) -> None:
        base = _Base(self, view)
        if view.added_by:
            self._find_shares(view)
            base = _Base(self, view)
        if overrides_the_loss(self.trial.model) or view.reduces_by_itself or base.sight.of_the_lot:
            self._check_sums(view, base.sight)
        self._orders(base)
        self._sizes(base)
        self._companies(base, unusual=True)
        self._scales(base)
        self._large_lots(base)
        view.plan.shared_draws = view.draws_for_all
        for self.trial.round_number in range(1, OTHER_DRAWS + 1) if view.draws else ():
            drawn = _Base(self, view)  # MixUp spares an example now and then
            self._orders(drawn, [self.trial.round_number])
            self._companies(drawn, unusual=False, most=2)
        self.trial.round_number = 0
        with self.trial.state.other_weights():  # what a weight that is 0 at the start hides shows at another value
            moved = _Base(self, view)
            self._orders(moved, [OTHER_DRAWS + 1])
            self._companies(moved, unusual=False, most=5)
            self._scales(moved)
        for value in SWITCHES if self.trial.state.has_switches else ():
            with self.trial.state.switched(value):
                self._where_it_runs(view)

    def _where_it_runs(self, view: View) -> None:
        """With variables at values that the model need not bear."""
        base = _Base(self, view)
        if np.all(np.isfinite(base.sight.own)):
            self._orders(base)
            self._companies(base, unusual=False, most=5)

    def _orders(self, base: "_Base", seeds: Sequence[int] = (1, 2)) -> None:
        for seed in seeds:
            order = all_moved(ROWS, seed)
            base.compare(in_order(self.trial.records.base, order), order=order)

    def _sizes(self, base: "_Base") -> None:
        for size in (1, 3, 5):
            sight = base.compare(self.trial.records.rows(range(size)), np.arange(size))
            if size > 1:
                self._check_sums(base.view, sight)
        self._all_alike(base, ROWS)

    def _companies(self, base: "_Base", unusual: bool, most: int | None = None) -> None:
        waiting = [c for c in list(self.trial.records.companies(KEPT))[:most] if c.ordinary or unusual]
        while waiting:
            company = waiting.pop(0)
            if base.compare(company.lot, np.arange(KEPT), company.name, must_run=company.ordinary) is None:
                waiting = [*company.instead, *waiting]

    def _scales(self, base: "_Base") -> None:
        for scale in SCALES:
            scales = np.full(ROWS, scale)
            scales[:KEPT] = 1
            base.compare(self.trial.records.base, np.arange(KEPT), scales=scales)

    def _all_alike(self, base: "_Base", size: int) -> None:
        """Copies of one example: the last of them has the first one's random numbers."""
        lot, first, backwards = self.trial.records.rows([0] * size), np.zeros(1, int), np.arange(size)[::-1]
        base.compare(lot, np.array([size - 1]), "copies of one example", backwards, expected=first)

    def _large_lots(self, base: "_Base") -> None:
        """The base's examples anywhere among others: at sizes that a layer may treat in its own way, of the expected size, half
        of it copies, and of the largest there will be, with others of all kinds."""
        records, expected = self.trial.records, max(self.lot_size, 2 * ROWS)
        lots = [(records.among(size), True) for size in MEDIUM if size < expected]
        lots.append((records.among(expected, copies=expected // 2 - ROWS // 2), True))
        over = larger_than(expected)
        base.view.plan.most_at_once = self.lot_size if self._runs_in_parts(base.view) else None
        largest = over - over % -MEDIUM[-1] if base.view.plan.most_at_once is None else expected
        lots.append((records.among(largest, all_kinds=True), False))
        for seed, (lot, must_run) in enumerate(lots):
            order = np.random.default_rng(seed).permutation(size_of(lot))
            base.compare(in_order(lot, order), order=order, what="a lot of the size of training's", must_run=must_run)
        self._all_alike(base, expected)

    def _runs_in_parts(self, view: View) -> bool:
        """Whether lots above the expected size are worth running in parts. Not where rows have something in common that parts
        would not have: random numbers drawn once for all, or a loss of the whole lot."""
        model = self.trial.model
        if view.draws_for_all or view.draws_hidden or view.plan.shares or overrides_the_loss(model):
            return False
        weights = sum(math.prod(v.shape) for v in model.trainable_variables)
        return is_large(view.graph, self.lot_size, weights)

    def _check_sums(self, view: View, sight: Sight) -> None:
        """What makes one number of a lot must be the mean or the sum of what it says of each example alone."""
        activities = sight.of_the_lot[:-1] if view.reduces_by_itself else sight.of_the_lot
        for whole, own in activities:
            if not self._adds_up(whole, own):
                raise MixesExamples(regulariser_message(self.trial.model))
        if view.reduces_by_itself and not self._adds_up(*sight.of_the_lot[-1]):
            raise MixesExamples(mixing_message(self.trial.model, None))

    def _adds_up(self, of_the_lot: np.ndarray, own: np.ndarray) -> bool:
        found = [np.sum(of_the_lot)]
        return self.trial.close(found, [np.mean(own)]) or self.trial.close(found, [np.sum(own)])

    def _find_shares(self, view: View) -> None:
        """Whether losses added for the whole lot are the examples' mean or sum, each of them by itself. What they seem to be,
        then all alike, until rows show the same in any company."""
        count, plan = len(view.added_by), view.plan
        for plan.shares in (self._apparent_shares(view), ["mean"] * count, ["sum"] * count):
            with contextlib.suppress(_Misplaced):
                self._rows_show_the_same(view, unusual=True)
                with self.trial.state.other_weights():  # a loss that is 0 at the start may be either
                    self._rows_show_the_same(view, unusual=False)
                return
        plan.shares = ["none"] * count
        self._rows_show_the_same(view, unusual=True)  # rows that are not the examples, whatever is added
        raise MixesExamples(added_loss_message(view.added_by))

    def _rows_show_the_same(self, view: View, unusual: bool) -> None:
        base = _Base(self, view)
        self._sizes(base)
        self._companies(base, unusual)

    def _apparent_shares(self, view: View) -> list[str]:
        """By what each loss makes of copies of one example: as much as of the example alone, or so many times that."""
        sizes = np.zeros([2, len(view.added_by)])
        for weights in (contextlib.nullcontext(), self.trial.state.other_weights()):
            with weights:
                for row in range(KEPT):
                    lots = [row], [row] * ROWS
                    sizes += [np.abs(np.stack(view(self.trial.records.rows(lot)).added)) for lot in lots]
        return ["sum" if many > np.sqrt(ROWS) * one else "mean" for one, many in sizes.T]


class _Base:
    """The base's examples as they are seen now, to be compared with themselves elsewhere."""

    def __init__(self, check: Independence, view: View):
        self.check, self.view, self.trial = check, view, check.trial
        self.sight = self._seen(self.trial.records.base, "a lot of ordinary examples")

    def compare(
        self,
        lot: Any,
        rows: np.ndarray | None = None,
        what: str = "other examples",
        order: np.ndarray | None = None,
        scales: np.ndarray | None = None,
        must_run: bool = True,
        expected: np.ndarray | None = None,
    ) -> Sight | None:
        """Look at a lot in which ``rows`` of the base stand first, or in the places that ``order`` says. ``rows`` are others
        of the base where these are ``expected``.

        Raises:
            MixesExamples: an example's own loss is another one here.
            _Misplaced: what a call was given for it, or gets back, is.
        """
        try:
            sight = self._seen(lot, what, order, scales)
        except MixesExamples:
            if must_run:
                raise
            return None
        places = np.flatnonzero(order < ROWS) if rows is None else rows
        if expected is None:
            expected = order[places] if rows is None else rows
        moved = order is not None or size_of(lot) != ROWS
        tolerance = self.trial.tolerance if moved else SAME_PLACE
        apart = self._apart(sight.rows(places), self.sight.rows(expected), tolerance)
        if not apart:
            return sight

        def differences() -> list[np.ndarray]:
            here = self.view(self.trial.records.base)
            there = self.view(lot, order, scales)
            found = self._differences(there.rows(places), here.rows(expected), tolerance, here)
            return [found[number].ravel() for number in apart]

        if 0 not in apart:
            apart = [apart[i] for i in persisting(self.trial.state.nearby_weights, differences)]
        if not apart:
            return sight
        worst = self._worst_row(sight.rows(places), self.sight.rows(expected), tolerance, apart)

        def mixing_layer() -> keras.Layer | None:
            return self._mixing_layer(lot, int(places[worst]), int(expected[worst]), order, scales, tolerance)

        if 0 in apart:
            raise MixesExamples(mixing_message(self.trial.model, mixing_layer()))
        layers = {id(layer): layer for layer in (self.view.layers[number - 1] for number in apart)}
        raise _Misplaced(list(layers.values()), mixing_layer)

    def _seen(self, lot: Any, what: str, order=None, scales=None) -> Sight:
        try:
            return self.view(lot, order, scales)
        except Exception as error:
            raise self.check._failure(error, what) from None

    def _apart(self, found: Sight, expected: Sight, tolerance: float) -> list[int]:
        """The numbers of what differs: 0 is the own loss, then come the tensors."""
        differences = self._differences(found, expected, tolerance, self.sight)
        return [i for i, d in enumerate(differences) if not np.all(np.sqrt(np.mean(np.square(d), -1)) <= 1)]

    def _differences(self, found: Sight, expected: Sight, tolerance: float, scale: Sight) -> list[np.ndarray]:
        """In units of what is tolerated. Where the expected is not finite, nothing can be told."""
        result = []
        for a, b, whole in zip(found.values, expected.values, scale.values, strict=True):
            sizes = np.abs(whole[np.isfinite(whole)])
            unit = tolerance * (np.abs(b[:, :1]) + 1e-3 * (sizes.max() if sizes.size else 0.0)) + 1e-30
            with np.errstate(all="ignore"):
                difference = (np.float64(a) - np.float64(b)) / unit
            difference = np.where(np.isfinite(a) | ~np.isfinite(b), difference, np.inf)
            result.append(np.where(np.all(np.isfinite(b), -1, keepdims=True), difference, 0.0))
        return result

    def _worst_row(self, found: Sight, expected: Sight, tolerance: float, apart: list[int]) -> int:
        differences = self._differences(found, expected, tolerance, self.sight)
        return int(np.argmax(sum(np.sum(np.minimum(np.square(differences[n]), 1e30), -1) for n in apart)))

    def _mixing_layer(self, lot, place: int, expected: int, order, scales, tolerance: float) -> keras.Layer | None:
        size = size_of(lot)
        order = np.arange(size) if order is None else order
        scales = np.ones(size) if scales is None else scales
        here = Situation(self.trial.records.base, expected, np.arange(ROWS), np.ones(ROWS))
        return first_mixing_layer(self.trial, here, Situation(lot, place, order, scales), tolerance)
