"""Per-example gradients of one variable, kept in factored form.

Every class here stands for the tensor ``g[i]``, the gradient of example ``i``'s own loss in one variable, and answers
four questions without building that tensor where it can avoid it:

* ``squared_norms()``: a float32 vector, **at least** ``||g[i]||^2`` (see below), one entry an example; or ``||g[i] * t||^2``
  for a ``stretch`` t, a tensor of positive numbers shaped like the variable;
* ``weighted_sum(c)``: ``sum_i c[i] g[i]``, shaped like the variable, with examples of ``c[i] = 0`` left out *before*
  any product (0 * NaN is NaN: a record with a NaN must not reach the sum), or only those that a mask ``keep`` says:
  where an example's norm is finite, so are its factors, and 0 times them is 0;
* ``inner_products(v)``: **at most** ``g[i] . v`` (see below) for a tensor ``v`` shaped like the variable, one entry an example;
* ``materialise()``: ``g`` itself, ``[B, *variable.shape]``;

and can be asked for ``some(cut)`` of the examples.

Norms are upper bounds. The clip's guarantee needs ``c[i] * ||g[i]|| <= C`` for the vector that is really summed. Where ``g[i]``
is built for its norm and kept, the sum is made of the very same numbers, and there is nothing to allow for. Where the sum is
computed by other floating-point operations than the norm, and terms of ``g[i]`` cancel, the computed norm may be far too
small, or a little where equal terms are rounded alike. Either computation errs by at most a share of
``S = sum_t ||a_t|| ||d_t||`` that grows with the number of places (``gradients/allowances.py``), so the norms returned carry that
allowance, and inner products are smaller by ``||v||`` times it (they are taken from norms). Likewise for squares that underflow.
Norms that overflow are infinite, and such an example is left out.
"""

import abc
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfdp.gradients.allowances import (
    SUMMATION,
    TINY,
    of_product,
    of_reduction,
    of_sum,
    raised,
    squared_norm_of_grams,
)
from tfdp.gradients.compilation import under_xla
from tfdp.gradients.forms import GRAM, MATERIALISED, form_of_norms

MANY_PLACES = 1024  # with more, allowances that grow with them would be seen
_WORTH_KEEPING = 2**14  # numbers an example: gradients of that size, once built for their norms, are kept for the sum
_TRAFFIC = 16  # multiplications in the time of writing a number and reading it twice
_FEW_SQUARES = 4096  # whose sum errs by less than 4e-6
_WORTH_A_BRANCH = 1024  # numbers an example: with fewer, copying them costs less than a branch


def rows(values: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """``values`` with the rows (examples) where ``keep`` is False replaced by zeros, whatever was in them."""

    column = _column(keep, values)

    def cleared() -> tf.Tensor:
        return tf.where(column, values, tf.zeros([], values.dtype))

    size = values.shape[1:].num_elements()
    if under_xla() or (size is not None and size < _WORTH_A_BRANCH):
        return cleared()
    return tf.cond(tf.reduce_all(keep), lambda: tf.identity(values), cleared)  # almost always nothing is left out


def in_shape(values: tf.Tensor, *sizes: int | tf.Tensor) -> tf.Tensor:
    """``values``, ``[B, ...]``, as ``[B, *sizes]``. -1 stands for a size that is not known."""
    if all(isinstance(size, int) and size > 0 for size in sizes):
        return tf.reshape(values, [-1, *sizes])
    return tf.reshape(values, tf.stack([tf.shape(values)[0], *sizes]))


def weighted(values: tf.Tensor, coefficients: tf.Tensor) -> tf.Tensor:
    """Each row times its coefficient; 0 where that is 0, whatever was in the row."""
    return tf.math.multiply_no_nan(values, _column(coefficients, values))


def weighted_sum_of(
    gradients: tf.Tensor, coefficients: tf.Tensor, keep: tf.Tensor | None, flat: bool = False
) -> tf.Tensor:
    """``sum_i c[i] g[i]`` of gradients that are built, ``[B, ...]``; as one row if ``flat``."""
    values = gradients if len(gradients.shape) == 2 else in_shape(gradients, math.prod(gradients.shape[1:]))
    kept = rows(values, tf.not_equal(coefficients, 0) if keep is None else keep)
    summed = tf.matmul(coefficients[None], kept)
    return summed if flat else tf.reshape(summed, gradients.shape[1:])


def sum_of_squares(values: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Reads the values once, where ``reduce_sum(square(values))`` writes their squares and reads those."""
    return sum_of_squares_of([values], axes)


def sum_of_squares_of(parts: Sequence[tf.Tensor], axes: Sequence[int]) -> tf.Tensor:
    """Of several tensors, all of one size along these axes, that are ``[B, ...]``."""
    if under_xla():  # has no such operation, and needs none
        squared = tf.add_n([tf.reduce_sum(tf.square(part), axes) for part in parts])
    else:
        lengths = [tf.raw_ops.EuclideanNorm(input=part, axis=list(axes)) for part in parts]
        squared = tf.square(lengths[0] if len(lengths) == 1 else tf.stack(lengths))
        squared = squared if len(lengths) == 1 else tf.reduce_sum(squared, 0)
    count = tf.TensorShape([parts[0].shape[axis] for axis in axes]).num_elements()
    return squared if count is not None and count <= _FEW_SQUARES else (1 + of_reduction(count)) * squared


def largest_stretch(stretch: tf.Tensor) -> tf.Tensor:
    """What an allowance for rounding grows by; not below 1, or allowances for underflow would underflow themselves."""
    return tf.maximum(tf.reduce_max(stretch), 1.0)


def worth_keeping(size: int, factors: int | None = None) -> bool:
    """Whether so many numbers an example may stay in memory between norms and sum: they are few, or no more than there are
    in the factors, which need not stay then."""
    return size <= _WORTH_KEEPING or (factors is not None and size <= factors)


def cheaper_form(places: int, p: int, q: int) -> str:
    """How the norms of ``sum_t a_t (x) d_t`` cost least, with ``p`` and ``q`` numbers in ``a_t`` and ``d_t``.

    Multiplications: ``T^2 (p + q)`` for inner products and ``T p q`` for the sum over the examples that comes after them;
    ``T p q`` for gradients, which, where they are kept, the sum only reads. Reading and writing them costs as much as
    some multiplications of each of their numbers.
    """
    if worth_keeping(p * q):
        return GRAM if places**2 * (p + q) < _TRAFFIC * p * q else MATERIALISED
    return GRAM if places * (p + q) < p * q else MATERIALISED


def _column(one_a_row: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    return tf.reshape(one_a_row, [-1, *([1] * (len(values.shape) - 1))])


class PerExampleGradient(abc.ABC):
    """The gradients of every example in one variable."""

    @abc.abstractmethod
    def squared_norms(self, stretch: tf.Tensor | None = None) -> tf.Tensor:
        """Upper bounds of the squared l2 norms, of ``g`` or of ``g * stretch``, float32 ``[B]``."""

    @abc.abstractmethod
    def weighted_sum(self, coefficients: tf.Tensor, keep: tf.Tensor | None = None) -> tf.Tensor:
        """``sum_i coefficients[i] * g[i]``, float32, over the examples to keep: those whose coefficient is not 0, if no
        mask ``[B]`` is given. It must leave out every example whose norm is not finite."""

    @abc.abstractmethod
    def inner_products(self, v: tf.Tensor) -> tf.Tensor:
        """Lower bounds of ``sum(g[i] * v)``, float32 ``[B]``."""

    @abc.abstractmethod
    def materialise(self) -> tf.Tensor:
        """All of ``g``, float32 ``[B, *shape]``."""

    @abc.abstractmethod
    def fold(self, batch: tf.Tensor) -> "PerExampleGradient":
        """The same for ``batch`` examples where every example has several consecutive rows (a reshape to [B * k, ...])."""

    @abc.abstractmethod
    def some(self, cut: Callable[[tf.Tensor], tf.Tensor]) -> "PerExampleGradient":
        """The same for some of the examples: ``cut`` takes their rows out of any tensor ``[B, ...]``."""

    def as_products(self) -> "PerExampleGradient":
        """In the form in which it can be joined with that of another use of the variable."""
        return self


class Materialised(PerExampleGradient):
    """Per-example gradients that exist as a tensor: small variables, sums of several uses, the universal rule."""

    def __init__(self, gradients: tf.Tensor, shape: Sequence[int]):
        self.shape = tuple(shape)
        self.size = 1
        for dimension in self.shape:
            self.size *= dimension
        gradients = tf.cast(gradients, tf.float32)
        rows_already = len(gradients.shape) == 2 and gradients.shape[1] == self.size
        self._flat = gradients if rows_already else tf.reshape(gradients, [-1, self.size])

    def squared_norms(self, stretch=None):
        return sum_of_squares(self._flat if stretch is None else self._flat * tf.reshape(stretch, [1, -1]), [1])

    def weighted_sum(self, coefficients, keep=None):
        return tf.reshape(weighted_sum_of(self._flat, coefficients, keep, flat=True), self.shape)

    def inner_products(self, v):
        # Not by a matvec, which adds up one after the other: over 10^5 terms it errs by a thousandth.
        inner = tf.reduce_sum(self._flat * tf.reshape(v, [1, -1]), 1)
        return inner - SUMMATION * tf.sqrt(self.squared_norms()) * tf.norm(v)

    def materialise(self):
        return tf.reshape(self._flat, [-1, *self.shape])

    def fold(self, batch):
        self._flat = tf.reduce_sum(tf.reshape(self._flat, tf.stack([batch, -1, self.size])), 1)
        return self

    def some(self, cut):
        return Materialised(cut(self._flat), self.shape)


class OuterSum(PerExampleGradient):
    """``g[i] = sum_t a[i, :, t, :] (x) d[i, :, t, :]``: every weight that multiplies, at ``t`` places an example.

    ``a`` is ``[B, G, T, p]`` and ``d`` is ``[B, G, T, q]`` with G independent groups (1 for a plain matrix product), so
    ``g[i]`` is ``[G, p, q]``. Where the variable keeps its dimensions in another order, ``layout = (unfolded, order)``
    says so: reshape to ``unfolded``, transpose by ``order``, reshape to the variable's shape. Where there is one group and
    one place, ``a`` may be ``[B, p]`` and ``d`` ``[B, q]``.

    ``form`` chooses how norms are computed: ``"gram"`` costs ``G T^2 (p + q)`` an example and never builds ``g``,
    ``"materialised"`` costs ``G T p q`` and builds it; ``None`` takes the cheaper one.
    """

    def __init__(self, a, d, shape, layout=None, form=None):
        a, d = tf.cast(a, tf.float32), tf.cast(d, tf.float32)
        self._flat = (a, d) if len(a.shape) == 2 else None
        self._factors = (a, d) if len(a.shape) != 2 else None
        self.shape = tuple(shape)
        self.layout = layout
        self.form = form
        self._built: tf.Tensor | None = None

    @property
    def a(self) -> tf.Tensor:
        return self._with_places()[0]

    @property
    def d(self) -> tf.Tensor:
        return self._with_places()[1]

    def _with_places(self) -> tuple[tf.Tensor, tf.Tensor]:
        if self._factors is None:
            self._factors = tuple(in_shape(values, 1, 1, values.shape[-1]) for values in self._flat)
        return self._factors

    @property
    def _at_one_place(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        """``[B, p]`` and ``[B, q]``, if there is one group and one place."""
        if self._flat is None and self.a.shape[1] == self.a.shape[2] == 1:
            self._flat = tuple(_flatten_places(values) for values in (self.a, self.d))
        return self._flat

    def fold(self, batch):
        self._factors, self._flat = tuple(_fold_places(v, batch) for v in (self.a, self.d)), None
        return self

    def some(self, cut):
        return OuterSum(cut(self.a), cut(self.d), self.shape, self.layout, self.form)

    def squared_norms(self, stretch=None):
        if stretch is not None:
            return self._stretched_norms(self._taken_apart(stretch))
        if form_of_norms() is None:  # a form that is forced is taken at one place as well
            if self._at_one_place is not None:  # ||a (x) d|| = ||a|| ||d||: nothing can cancel
                return tf.multiply(*_squares(*self._at_one_place))
            if self.a.shape[2] == 1:
                return tf.reduce_sum(tf.multiply(*_squares(self.a, self.d)), [1, 2])
        if self._form() == GRAM:
            squared = self._gram()
        else:
            squared = sum_of_squares(self._products(), [2, 3])
            if not self._kept():  # T terms are added up here, and in the vector that is summed later
                squared = raised(squared, 2 * self._of_places() * tf.reduce_sum(self._lengths(), 2))
        return tf.reduce_sum(squared, 1)

    def _stretched_norms(self, stretch: tf.Tensor) -> tf.Tensor:
        """Of ``g * stretch``, ``[G, p, q]``: one more product where there is one place. Inner products of several places
        know nothing of single coordinates, so ``g`` is built, at most for so many examples at once."""
        p, q = self.a.shape[3], self.d.shape[3]
        largest = largest_stretch(stretch)
        if self.a.shape[2] == 1:
            short, long, equation = self.a, self.d, "bgp,gpq->bgq"
            if p > q:  # the fewer terms a product adds up, the less it errs by
                short, long, equation = self.d, self.a, "bgq,gpq->bgp"
            few = min(p, q)
            seen = tf.einsum(equation, tf.square(short[:, :, 0]), tf.square(stretch)) + few * TINY * tf.square(largest)
            share = of_sum(few) + SUMMATION
            return (1 + share) * tf.reduce_sum(seen * (tf.square(long[:, :, 0]) + TINY), [1, 2])
        if self._kept():
            return tf.reduce_sum(sum_of_squares(self._products() * stretch, [2, 3]), 1)

        def built(a, d):
            return sum_of_squares(tf.matmul(a, d, transpose_a=True) * stretch, [2, 3])

        squared = _some_at_once(built, (self.a, self.d), self.a.shape[1] * p * q)
        slack = 2 * self._of_places() * largest * tf.reduce_sum(self._lengths(), 2)
        return tf.reduce_sum(raised(squared, slack), 1)

    def _lengths(self) -> tf.Tensor:
        """``||a_t|| ||d_t||`` of each place, ``[B, G, T]``."""
        a2, d2 = _squares(self.a, self.d)
        return tf.sqrt(a2) * tf.sqrt(d2)

    def _of_places(self) -> float | tf.Tensor:
        """What a sum over all places errs by, as a share of the sum of their lengths."""
        return of_product(self._places(), self.a.shape[3], self.d.shape[3])

    def _places(self) -> int | tf.Tensor:
        return self.a.shape[2] if self.a.shape[2] is not None else tf.shape(self.a)[2]

    def _kept(self) -> bool:
        """Whether gradients, once built for their norms, are kept for the sum: with at least as many places as rows or
        columns there are no more numbers in them than in one of the factors."""
        (_, groups, places, p), q = self.a.shape, self.d.shape[3]
        return worth_keeping(groups * p * q, groups * (places or 1) * max(p, q))

    def weighted_sum(self, coefficients, keep=None):
        if self._built is not None and self._kept():
            summed = weighted_sum_of(self._built, coefficients, keep, flat=True)
            return tf.reshape(summed if self.layout is None else self._arranged(summed), self.shape)
        keep = tf.not_equal(coefficients, 0) if keep is None else keep
        if self._at_one_place is not None:
            a, d = self._at_one_place
            total = tf.matmul(rows(a, keep), weighted(d, coefficients), transpose_a=True)
        elif self.a.shape[1] == 1:
            a, d = (_flatten_places(values) for values in (rows(self.a, keep), weighted(self.d, coefficients)))
            total = tf.matmul(a, d, transpose_a=True)
        else:
            total = tf.einsum("bgtp,bgtq->gpq", rows(self.a, keep), weighted(self.d, coefficients))
        return total if total.shape == self.shape else tf.reshape(self._arranged(total[None]), self.shape)

    def inner_products(self, v):
        # Not by a matmul that broadcasts: TensorFlow 2.21 reads beyond its operand where a batch dimension is 1.
        p, q, v = self.a.shape[3], self.d.shape[3], self._taken_apart(v)
        if p <= q:
            products = tf.einsum("bgtp,gpq->bgtq", self.a, v) * self.d
        else:  # the fewer terms a product adds up, the less it errs by
            products = tf.einsum("bgtq,gpq->bgtp", self.d, v) * self.a
        inner = tf.reduce_sum(products, [1, 2, 3])
        share = SUMMATION + of_sum(min(p, q)) + self._of_places()
        return inner - share * tf.norm(v) * tf.reduce_sum(self._lengths(), [1, 2])

    def materialise(self):
        return self._arranged(self._products())

    def _arranged(self, g: tf.Tensor) -> tf.Tensor:
        """``[N, G, p, q]`` in the variable's own order of dimensions."""
        if self.layout is not None:
            unfolded, order = self.layout
            g = tf.transpose(tf.reshape(g, [-1, *unfolded]), [0, *(1 + axis for axis in order)])
        return tf.reshape(g, [-1, *self.shape])

    def _taken_apart(self, values: tf.Tensor) -> tf.Tensor:
        """A tensor in the variable's shape as ``[G, p, q]``: the way back from ``_arranged``."""
        if self.layout is not None:
            unfolded, order = self.layout
            back = sorted(range(len(order)), key=order.__getitem__)
            values = tf.transpose(tf.reshape(values, [unfolded[axis] for axis in order]), back)
        return tf.reshape(values, [self.a.shape[1], self.a.shape[3], self.d.shape[3]])

    def _products(self) -> tf.Tensor:
        if self._built is None:
            self._built = tf.matmul(self.a, self.d, transpose_a=True)
        return self._built

    def _gram(self) -> tf.Tensor:
        """Squared norms of each group, from inner products of places."""
        a, d = (tf.matmul(v, v, transpose_b=True) for v in (self.a, self.d))
        return squared_norm_of_grams(a, d, self.a.shape[3], self.d.shape[3], self._of_places())

    def _form(self) -> str:
        form = self.form or form_of_norms()
        if form is not None:
            return form
        places, p, q = self.a.shape[2], self.a.shape[3], self.d.shape[3]
        if places is None:  # a sequence of unknown length: its square is the risk, not p * q
            return MATERIALISED
        return cheaper_form(places, p, q)


class Rows(PerExampleGradient):
    """``g[i][r] = sum over t with ids[i, t] = r of d[i, t]``: rows looked up in a table, ``[B, T]`` and ``[B, T, q]``."""

    def __init__(self, ids, d, shape):
        self.ids = tf.cast(ids, tf.int64)
        self.d = tf.cast(d, tf.float32)
        self.shape = tuple(shape)
        self._built: tf.Tensor | None = None

    def fold(self, batch):
        self.ids = tf.reshape(self.ids, tf.stack([batch, -1]))
        self.d = tf.reshape(self.d, tf.stack([batch, -1, self.shape[-1]]))
        return self

    def some(self, cut):
        return Rows(cut(self.ids), cut(self.d), self.shape)

    def squared_norms(self, stretch=None):
        form = form_of_norms()
        if form == MATERIALISED or (form is None and self._kept()):
            self._built = self.materialise()
            return sum_of_squares(self._built if stretch is None else self._built * stretch, [1, 2])
        if stretch is not None:  # all places of a row are stretched alike: their sum is
            return Rows(self.ids, self.d * tf.gather(stretch, self.ids), self.shape).squared_norms()
        if self.d.shape[1] == 1 and form is None:
            return sum_of_squares(self.d, [1, 2])
        if form == GRAM:
            return self._gram()
        # A token that occurs several times in an example is one row of its gradient: its places are summed first.
        return self._sums_of_all_places() if under_xla() else self._sums_of_repeated_places()

    def _kept(self) -> bool:
        """Whether gradients are built and kept for the sum: with so many places, where there are more of them than rows."""
        places = self.d.shape[1]
        return places is not None and places > MANY_PLACES and places >= self.shape[0]

    def _gram(self) -> tf.Tensor:
        """From ``sum over t, u with ids[t] = ids[u] of d_t . d_u``: an OuterSum with a_t the unit vector of a token."""
        same = tf.cast(tf.equal(self.ids[:, :, None], self.ids[:, None, :]), tf.float32)
        places = tf.shape(self.ids)[1]
        return squared_norm_of_grams(
            same, tf.matmul(self.d, self.d, transpose_b=True), 1, self.d.shape[2], of_sum(places)
        )

    def _sorted(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Each example's tokens, equal ones side by side, and the places they come from."""
        places = self.ids.shape[1] if self.ids.shape[1] is not None else tf.shape(self.ids)[1]
        ids = tf.cast(self.ids, tf.int32) if self.shape[0] < 2**31 else self.ids
        return tuple(tf.math.top_k(ids, places))

    def _sums_of_repeated_places(self) -> tf.Tensor:
        """Only places whose token the example repeats are summed; every other one is a row by itself."""
        tokens, place = self._sorted()
        batch, places = tf.shape(tokens)[0], tf.shape(tokens)[1]
        same = tf.equal(tokens[:, 1:], tokens[:, :-1])
        as_before, as_after = tf.pad(same, [[0, 0], [1, 0]]), tf.pad(same, [[0, 0], [0, 1]])
        repeated = as_before | as_after
        source = tf.reshape(place + tf.range(batch)[:, None] * places, [-1])
        squares = tf.gather(tf.reshape(sum_of_squares(self.d, [2]), [-1]), source)
        where = tf.where(tf.reshape(repeated, [-1]))[:, 0]
        # Places of one token follow one another.
        begins = ~tf.gather(tf.reshape(as_before, [-1]), where)
        run = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        d = tf.gather(tf.reshape(self.d, [-1, self.shape[-1]]), tf.gather(source, where))
        squared = sum_of_squares(tf.math.segment_sum(d, run), [1])
        slack = self._of_runs(tf.gather(squares, where), run, tf.math.segment_sum)
        owner = tf.cast(tf.gather(where, tf.where(begins)[:, 0]), tf.int32) // places
        squared, slack = (tf.math.unsorted_segment_sum(of_runs, owner, batch) for of_runs in (squared, slack))
        alone = tf.reduce_sum(tf.where(repeated, 0.0, tf.reshape(squares, tf.shape(repeated))), 1)
        return alone + raised((1 + of_sum(places)) * squared, tf.sqrt(slack))

    def _sums_of_all_places(self) -> tf.Tensor:
        """The same with shapes that do not depend on the tokens."""
        tokens, place = self._sorted()
        d = tf.gather(self.d, place, batch_dims=1)
        change = tf.cast(tf.not_equal(tokens[:, 1:], tokens[:, :-1]), tf.int32)
        rank = tf.pad(tf.cumsum(change, axis=1), [[0, 0], [1, 0]])
        batch, places = tf.shape(tokens)[0], tf.shape(tokens)[1]
        segment = tf.reshape(tf.range(batch)[:, None] * places + rank, [-1])

        def summed(values, run):
            return tf.math.unsorted_segment_sum(values, run, batch * places)

        sums = summed(tf.reshape(d, [-1, self.shape[-1]]), segment)
        squared = tf.reduce_sum(tf.reshape(tf.square(sums), tf.stack([batch, places * self.shape[-1]])), 1)
        slack = self._of_runs(tf.reshape(sum_of_squares(d, [2]), [-1]), segment, summed)
        slack = tf.reduce_sum(tf.reshape(slack, tf.stack([batch, places])), 1)
        return raised((1 + of_reduction(places * self.shape[-1])) * squared, tf.sqrt(slack))

    def _of_runs(self, squares: tf.Tensor, run: tf.Tensor, summed: Callable) -> tf.Tensor:
        """Squares of what rows that are sums of several places err by, here and in the vector that is summed later, one after
        the other: a share of their places' lengths."""
        lengths = tf.sqrt(squares + self.shape[-1] * TINY)
        length, count = summed(lengths, run), summed(tf.ones_like(lengths), run)
        return tf.square(2 * of_sum(count) * length)

    def weighted_sum(self, coefficients, keep=None):
        if self._built is not None:
            return weighted_sum_of(self._built, coefficients, keep)
        d = weighted(self.d, coefficients)
        return tf.math.unsorted_segment_sum(
            tf.reshape(d, [-1, self.shape[-1]]), tf.reshape(self.ids, [-1]), self.shape[0]
        )

    def inner_products(self, v):
        inner = tf.reduce_sum(tf.gather(v, self.ids) * self.d, [1, 2])
        lengths = tf.sqrt(sum_of_squares(self.d, [2]) + self.d.shape[2] * TINY)
        share = SUMMATION + of_sum(tf.shape(self.ids)[1])
        return inner - share * tf.norm(v) * tf.reduce_sum(lengths, 1)

    def materialise(self):
        batch = tf.shape(self.ids)[0]
        rows_of_batch = tf.cast(tf.range(batch), tf.int64)[:, None] * self.shape[0] + self.ids
        sums = tf.math.unsorted_segment_sum(
            tf.reshape(self.d, [-1, self.shape[-1]]),
            tf.reshape(rows_of_batch, [-1]),
            tf.cast(batch, tf.int64) * self.shape[0],
        )
        return tf.reshape(sums, [-1, *self.shape])


def total(parts: Sequence[PerExampleGradient], shape: Sequence[int]) -> PerExampleGradient:
    """The gradient of a variable that was used several times: the sum of its uses' gradients, example by example.

    Norms are not additive over uses, so the uses must become one gradient first: products with the same number of
    groups are joined along their places (a shared layer costs what a longer sequence costs), look-ups likewise, both kinds by
    ``gradients/tied.py``; anything else is built.
    """
    parts = _joined([part.as_products() for part in parts] if len(parts) > 1 else list(parts), shape)
    if len(parts) == 1:
        return parts[0]
    looked_up, multiplied = sorted(parts, key=lambda part: not isinstance(part, Rows))[:2]
    plain = isinstance(multiplied, OuterSum) and multiplied.layout is None and multiplied.a.shape[1] == 1
    if len(parts) == 2 and isinstance(looked_up, Rows) and plain and len(shape) == 2:
        from tfdp.gradients.tied import joined

        return joined(looked_up, multiplied)
    return Materialised(tf.add_n([part.materialise() for part in parts]), shape)


def _joined(parts: Sequence[PerExampleGradient], shape: Sequence[int]) -> list[PerExampleGradient]:
    """Those of a kind as one."""
    looked_up = [part for part in parts if type(part) is Rows]
    products = [part for part in parts if type(part) is OuterSum]
    rest = [part for part in parts if type(part) not in (Rows, OuterSum)]
    if len(looked_up) > 1:
        looked_up = [Rows(tf.concat([p.ids for p in looked_up], 1), tf.concat([p.d for p in looked_up], 1), shape)]
    if len(products) > 1 and all(part.layout == products[0].layout for part in products):
        a, d = tf.concat([part.a for part in products], 2), tf.concat([part.d for part in products], 2)
        products = [OuterSum(a, d, shape, products[0].layout, products[0].form)]
    return [*looked_up, *products, *rest]


def _some_at_once(function: Callable, tensors: Sequence[tf.Tensor], numbers: int) -> tf.Tensor:
    """``function(*tensors)``, of as many examples at once as make about 4 million of its ``numbers`` each."""
    batch, some = tf.shape(tensors[0])[0], max(1, 2**22 // numbers)
    parts = -(-batch // some)

    def cut(values):
        padded = tf.pad(values, [[0, parts * some - batch], *([[0, 0]] * (len(values.shape) - 1))])
        return tf.reshape(padded, tf.concat([[parts, some], tf.shape(values)[1:]], 0))

    pieces = [cut(values) for values in tensors]
    for piece, values in zip(pieces, tensors, strict=True):
        piece.set_shape([None, some, *values.shape[1:]])
    found = tf.map_fn(lambda piece: function(*piece), pieces, parallel_iterations=1, fn_output_signature=tf.float32)
    return tf.reshape(found, tf.concat([[parts * some], tf.shape(found)[2:]], 0))[:batch]


def _fold_places(values: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """``[B * k, G, T, c]`` to ``[B, G, k * T, c]``."""
    groups, width = values.shape[1], values.shape[3]
    values = tf.reshape(values, tf.stack([batch, -1, groups, tf.shape(values)[2], width]))
    return tf.reshape(tf.transpose(values, [0, 2, 1, 3, 4]), tf.stack([batch, groups, -1, width]))


def _squares(a: tf.Tensor, d: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """``||a_t||^2`` and ``||d_t||^2``. Squares below TINY read as 0, yet the other factor may be large: each sum of squares
    is raised by what it lost."""
    return tuple(sum_of_squares(v, [len(v.shape) - 1]) + v.shape[-1] * TINY for v in (a, d))


def _flatten_places(values: tf.Tensor) -> tf.Tensor:
    return tf.reshape(values, [-1, values.shape[-1]])
