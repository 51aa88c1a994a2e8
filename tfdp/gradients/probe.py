"""What the engine makes of one example of a lot, beside what a tape says of the weights themselves."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.gradients.forms import without_allowances
from tfdp.gradients.made_up import size_of
from tfdp.gradients.rows import Pass, View
from tfdp.gradients.trial import dense


@dataclasses.dataclass
class Found:
    """Of one example, weight by weight."""

    engine: list[np.ndarray]
    squared_norms: np.ndarray
    bare_squared_norms: np.ndarray  # without what they allow for rounding
    by_tape: list[np.ndarray]  # the gradient of the joint objective


class Probe:
    """It runs on the trace of a view, whose pass and backward pass it shares."""

    def __init__(self, view: View):
        self._model = view.trial.model
        self._run = view.further(self._engine_and_tape)

    def __call__(self, lot: Any, row: int) -> Found:
        """The engine's gradient of an example, taken from the joint objective as a step takes it, and that objective's own gradient."""
        return Found(*self._run(lot, row=row))

    def of_example(self, lot: Any, row: int) -> list[np.ndarray]:
        """``d L_row / d w`` by tape: the others count nothing."""
        return Found(*self._run(lot, np.eye(size_of(lot))[row], row)).by_tape

    def _engine_and_tape(self, seen: Pass):
        forward = seen.forward
        found = forward.by_the_rules(seen.calls, seen.at_taps).gradients
        norms = [norms[seen.row] for norms in found.squared_norms_by_weight()]
        with without_allowances():
            bare = [norms[seen.row] for norms in found.squared_norms_by_weight()]
        engine = found.weighted_sum(tf.one_hot(seen.row, forward.batch))
        by_tape = [gradient / forward.scale for gradient in dense(seen.at_weights, self._model)]
        return engine, tf.stack(norms or [0.0]), tf.stack(bare or [0.0]), by_tape
