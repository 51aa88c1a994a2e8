"""Per-example gradients of a lot, in one forward and one backward pass.

``lot_gradients`` runs the model on a lot, differentiates the sum of the examples' own losses once, with respect to the
outputs of the layers in the plan, and hands back the gradients of every example in factored form ("book-keeping", Bu et
al. 2022, arXiv:2210.00038). Nothing here knows of privacy: what is clipped and noised is up to ``tfdp.mechanisms``.
"""

import dataclasses
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfdp.gradients.draws import drawing_from
from tfdp.gradients.factored import SUMMATION, PerExampleGradient, total
from tfdp.gradients.layer_tree import all_layers, flat_tensors
from tfdp.gradients.losses import OwnLosses, calls_of_the_loss, losses_of_one_device
from tfdp.gradients.once import nothing_shared
from tfdp.gradients.plan import Plan
from tfdp.gradients.reads import noted_reads
from tfdp.gradients.recording import Call, Recording, RuleFailed, by_the_rule_of, recording
from tfdp.gradients.remat import without_rematerialisation
from tfdp.gradients.sites import Read, with_examples
from tfdp.gradients.state import no_state_assigned

FLOAT16_LOSS_SCALE = 1024.0
UNDERFLOW = 2.0**-100  # more than squares of float32 numbers can lose to underflow in a sum over 10^7 weights


class Ellipsoid(NamedTuple):
    """All g with ``||(g - centre) / scales|| <= radius``: a tensor for each weight in its shape; scales are positive.

    Where a scale is infinite, g may be anything: that coordinate has no part in a norm.
    """

    scales: list[tf.Tensor]
    centre: list[tf.Tensor] | None = None


class LotGradients:
    """The gradients of every example of a lot in every trainable weight.

    Coefficients are per example; an example with coefficient 0 has no influence whatsoever on a weighted sum.
    """

    def __init__(self, gradients: list[PerExampleGradient | None], variables, batch: tf.Tensor, scale: float):
        self._gradients = gradients
        self._scale = scale  # every stored gradient carries this factor
        self._finite: tf.Tensor | None = None  # which examples' norms are finite; None before anyone asked for norms
        self.variables = variables
        self.batch = batch

    @property
    def by_weight(self) -> list[PerExampleGradient | None]:
        """Of each weight by itself, in the form it was found in, and scaled; None where the loss does not depend on it."""
        return self._gradients

    def squared_norms(self, ellipsoid: Ellipsoid | None = None) -> tf.Tensor:
        """Upper bounds of the squared l2 norms over all weights jointly, float32 ``[B]``; NaN or Inf where not finite.

        With an ``ellipsoid``, of ``(g - centre) / scales``.
        """
        stretches = [None] * len(self._gradients) if ellipsoid is None else [1 / s for s in ellipsoid.scales]
        pairs = zip(self._gradients, stretches, strict=True)
        parts = [g.squared_norms(stretch) for g, stretch in pairs if g is not None]
        squared = self._unscaled(tf.add_n(parts) + UNDERFLOW if parts else tf.fill([self.batch], UNDERFLOW), 2)
        if ellipsoid is not None and ellipsoid.centre is not None:
            squared = self._from_centre(squared, ellipsoid.centre, stretches)
        self._finite = tf.math.is_finite(squared)
        return squared

    def _from_centre(self, squared: tf.Tensor, centre: list[tf.Tensor], stretches: list[tf.Tensor]) -> tf.Tensor:
        """``|g - c|^2 = |g|^2 - 2 g . c + |c|^2`` in stretched coordinates, each term by its upper bound. What rounding of the
        three leaves where they cancel is allowed for as well."""
        own = tf.add_n([tf.reduce_sum(tf.square(c * t)) for c, t in zip(centre, stretches, strict=True)])
        triples = zip(self._gradients, centre, stretches, strict=True)
        inner = [g.inner_products(c * tf.square(t)) for g, c, t in triples if g is not None]
        inner = self._unscaled(tf.add_n([tf.zeros([self.batch]), *inner]))
        return tf.maximum(squared - 2 * inner + own, 0.0) + SUMMATION * (squared + own)

    def squared_norms_by_weight(self) -> list[tf.Tensor]:
        """The same for every weight by itself."""
        return [tf.zeros([self.batch]) if g is None else self._unscaled(g.squared_norms(), 2) for g in self._gradients]

    def weighted_sum(self, coefficients: tf.Tensor) -> list[tf.Tensor]:
        """``sum_i coefficients[i] * g_i`` for every weight, float32."""
        coefficients = self._unscaled(tf.cast(coefficients, tf.float32))
        return [
            tf.zeros(v.shape) if g is None else g.weighted_sum(coefficients, keep=self._finite)
            for g, v in zip(self._gradients, self.variables, strict=True)
        ]

    def _unscaled(self, values: tf.Tensor, power: int = 1) -> tf.Tensor:
        return values if self._scale == 1.0 else values / self._scale**power

    def some(self, rows: tf.Tensor) -> "LotGradients":
        """Those of some of the examples, by their numbers in the lot."""

        def cut(values: tf.Tensor) -> tf.Tensor:
            return tf.gather(values, rows)

        gradients = [None if g is None else g.some(cut) for g in self._gradients]
        return LotGradients(gradients, self.variables, tf.shape(rows)[0], self._scale)

    def materialise(self) -> list[tf.Tensor]:
        """Every example's gradient in every weight, ``[B, *shape]``: for few examples or small models."""
        return [
            tf.zeros([self.batch, *v.shape]) if g is None else self._unscaled(g.materialise())
            for g, v in zip(self._gradients, self.variables, strict=True)
        ]


@dataclasses.dataclass
class LotPass:
    """What one pass over a lot gives: gradients, and what Keras's metrics want."""

    gradients: LotGradients
    y_pred: Any
    losses: OwnLosses
    seeds: list[tf.Variable]  # of Keras, that layers drew from


def loss_scale(model: keras.Model) -> float:
    """float16 gradients below 6e-8 vanish: the sum of losses is scaled by a fixed number (one that reacted to the data
    would be a release of its own) and the gradients are scaled back in float32."""
    return FLOAT16_LOSS_SCALE if any(layer.compute_dtype == "float16" for layer in all_layers(model)) else 1.0


@without_rematerialisation()
@losses_of_one_device()
def lot_gradients(model: keras.Model, plan: Plan, x, y=None, sample_weight=None, secret=None) -> LotPass:
    """The gradients of a lot of at least one example.

    Layers draw their random numbers from ``secret``, two whole numbers; without it from their own seeds, which anybody may know.
    """
    if plan.whole:
        from tfdp.gradients.whole import whole_model_gradients

        return whole_model_gradients(model, plan, x, y, sample_weight, secret)
    try:
        with tf.GradientTape(watch_accessed_variables=False) as tape:  # sites watch where they are tapped
            forward = Forward(tape, model, plan, x, y, sample_weight, secret)
            objective = forward.objective()
        return forward.book_keeping(objective)
    except RuleFailed as failure:  # whose layer it was matters to the self-proof alone
        raise failure.error from None


class Forward:
    """A recorded forward pass, run inside the caller's tape."""

    def __init__(self, tape: tf.GradientTape, model: keras.Model, plan: Plan, x, y, sample_weight, secret=None):
        self.tape, self.model, self.plan = tape, model, plan
        self.batch = tf.shape(flat_tensors(x)[0])[0]
        self.scale = loss_scale(model)
        self.record, self._reads = Recording(), []
        with no_state_assigned(model) as watched, drawing_from(secret) as self.drawn, noted_reads(model, self._note):
            with nothing_shared(), recording(model, plan.rules(self.scale), tape.watch, self.drawn) as self.record:
                self.y_pred = model(x, training=True)
                arguments = (x, y, self.y_pred, sample_weight)
                calls = None if plan.alone else calls_of_the_loss(model, self.record, *arguments)
            self.losses = OwnLosses(model, self.record, *arguments, plan.alone, calls)
        self.seeds = watched.seeds

    def _note(self, variable: keras.Variable, value: tf.Tensor) -> None:
        layer = self.plan.follows(variable, self.record.running)
        if layer is not None:
            self.tape.watch(value)
            self._reads.append(Read(layer, variable, value))

    def objective(self) -> tf.Tensor:
        objective = self.losses.objective(self.plan.shares)
        return objective if self.scale == 1.0 else objective * self.scale

    def sites(self, objective: tf.Tensor) -> list[Call]:
        """The calls at whose taps each example's gradient is taken."""
        return with_examples(self.record.sites(), self._reads, objective, self.batch)

    def book_keeping(self, objective: tf.Tensor) -> LotPass:
        """One backward pass to the taps; from there each rule finds its weights' gradients."""
        calls = self.sites(objective)
        return self.by_the_rules(calls, self.tape.gradient(objective, [tap for call in calls for tap in call.taps]))

    def by_the_rules(self, calls: list[Call], found: list) -> LotPass:
        """From the gradients at the taps of all calls."""
        cotangents = iter([None if d is None else tf.convert_to_tensor(d) for d in found])
        parts: dict[int, list[PerExampleGradient]] = {}
        for call in calls:
            d = [next(cotangents) for _ in call.taps]
            reached = [cotangent for cotangent in d if cotangent is not None]
            if not reached:
                continue  # the loss does not depend on this call
            wanted = {id(v) for v in self.plan.sites[id(call.layer)].variables}
            with by_the_rule_of(call.layer):
                own = call.rule.gradients(call.held_until(reached), d)
            for variable, gradient in own:
                if id(variable) in wanted:
                    if call.rows_of_its_own and id(call.layer) in self.plan.folded:
                        gradient = gradient.fold(self.batch)
                    parts.setdefault(id(variable), []).append(gradient)
        variables = self.model.trainable_variables
        gradients = [total(parts[id(v)], v.shape) if id(v) in parts else None for v in variables]
        lot = LotGradients(gradients, variables, self.batch, self.scale)
        return LotPass(lot, self.y_pred, self.losses, self.seeds)
