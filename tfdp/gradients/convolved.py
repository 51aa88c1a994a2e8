"""Per-example kernel gradients of convolutions, without all patches in memory.

At the kernel's offset ``o`` (one of the places under it), with stride ``s`` and dilation ``r``, the gradient is

    g[i][o] = sum_t x[i, s t + r o] (x) d[i, t],

a matrix product over the output's places ``t`` for each offset. So norms need one shifted view of ``x`` at a time, and a
weighted sum is the gradient of an ordinary convolution.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from tfdp.gradients.allowances import (
    SUMMATION,
    TINY,
    of_sum,
    raised,
    squared_norm_of_grams,
)
from tfdp.gradients.factored import (
    MANY_PLACES,
    OuterSum,
    PerExampleGradient,
    cheaper_form,
    in_shape,
    largest_stretch,
    rows,
    sum_of_squares,
    sum_of_squares_of,
    weighted,
    weighted_sum_of,
    worth_keeping,
)
from tfdp.gradients.forms import GRAM, MATERIALISED, form_of_norms

_CHANNELS_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
_WORTH_JOINING = 1024  # numbers an example: to copy so few costs less than to treat each part by itself
_FEW_CHANNELS = 32  # with fewer, one step makes a thin matrix: a row of the kernel's steps is taken together


@dataclasses.dataclass(frozen=True)
class Window:
    """What a convolution sees: one number a spatial dimension; ``padding`` is "valid" or "same"."""

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: str

    @property
    def block(self) -> tuple[int, ...]:
        """What of the input is seen at once. Where the strides divide the kernel, it is made of whole blocks that long:
        with their values as channels there are no strides."""
        sizes = zip(self.kernel_size, self.strides, self.dilation, strict=True)
        return self.strides if all(r == 1 and k % s == 0 for k, s, r in sizes) else (1,) * len(self.strides)

    @property
    def spans(self) -> list[int]:
        return [(k - 1) * r + 1 for k, r in zip(self.kernel_size, self.dilation, strict=True)]

    @property
    def cover(self) -> int:
        """The most windows that hold one value of the input: offsets o with r o = position modulo s."""
        apart = (s // math.gcd(s, r) for s, r in zip(self.strides, self.dilation, strict=True))
        return math.prod(-(-k // step) for k, step in zip(self.kernel_size, apart, strict=True))

    @property
    def sees_everything(self) -> bool:
        """Whether no value of the input lies between two windows."""
        return all(r == 1 and s <= k for k, s, r in zip(self.kernel_size, self.strides, self.dilation, strict=True))


class Views:
    """``x`` shifted by each of the window's offsets, strides taken.

    A slice with a stride is an element-by-element copy in TensorFlow, many times slower than one without. So each spatial
    dimension is cut into blocks of ``s`` once, ``[.., n, s, ..]``, and offset ``r o = q s + p`` is the slice of blocks from
    ``q`` on at place ``p``. Where the kernel is made of whole blocks, all their places are seen at once, as channels
    (``Window.block``): one view then shows b values for each channel of ``x``.
    """

    def __init__(self, x: tf.Tensor, window: Window, counts: Sequence, block: tuple[int, ...] | None = None):
        self.window, self.counts, self.rank = window, counts, len(counts)
        self.block = block or window.block
        self.steps = [k // b for k, b in zip(window.kernel_size, self.block, strict=True)]
        self._whole_blocks = self.block == window.strides
        x = self._x = self._padded(x)
        blocks = [_size(x, 1 + axis) // s for axis, s in enumerate(window.strides)]
        cut = [dimension for n, s in zip(blocks, window.strides, strict=True) for dimension in (n, s)]
        self._sizes = (*cut, x.shape[-1])
        self._blocks, self._within = range(1, 2 * self.rank, 2), range(2, 2 * self.rank + 1, 2)

    def _padded(self, x: tf.Tensor) -> tf.Tensor:
        """Zeros around, as the padding says; after that as many whole blocks as the windows reach into."""
        cuts, pads = [slice(None)], [[0, 0]]
        window = self.window
        for axis, (count, s, span) in enumerate(zip(self.counts, window.strides, window.spans, strict=True)):
            size = _size(x, 1 + axis)
            missing = _largest((count - 1) * s + span - size, 0) if window.padding == "same" else 0
            before, reached = missing // 2, (count + (span - 1) // s) * s
            kept = size - _largest(size - (reached - before), 0)
            cuts.append(slice(0, kept))
            pads.append([before, reached - before - kept])
        if any(cut != slice(0, size) for cut, size in zip(cuts[1:], x.shape[1:], strict=False)):
            x = x[tuple(cuts)]
        if not any(isinstance(n, tf.Tensor) or n for pad in pads for n in pad):
            return x
        channels = x.shape[-1]
        if channels >= _FEW_CHANNELS:
            return tf.pad(x, [*pads, [0, 0]])
        # TensorFlow pads runs of the last dimension: of few channels, together with the places along it.
        size = [_size(x, 1 + axis) for axis in range(self.rank)]
        x = in_shape(x, *size[:-1], size[-1] * channels)
        x = tf.pad(x, [*pads[:-1], [n * channels for n in pads[-1]]])
        size = [_size(x, 1 + axis) for axis in range(self.rank)]
        return in_shape(x, *size[:-1], size[-1] // channels, channels)

    def _where(self, axis: int, step: int) -> tuple[int, slice]:
        """(place in its block, blocks) of the values that a step over the kernel shows along a dimension."""
        block, place = divmod(step * self.block[axis] * self.window.dilation[axis], self.window.strides[axis])
        return place, slice(block, block + self.counts[axis])

    @property
    def _cut(self) -> tf.Tensor:
        """``[B, n, s, n, s, .., C]``"""
        return in_shape(self._x, *self._sizes)

    def _transposed(self, order: list[int]) -> tf.Tensor:
        """The blocks in another order of dimensions; those of size 1 need no copy."""
        sizes = (None, *self._sizes)
        moved = [axis for axis in order if not isinstance(sizes[axis], int) or sizes[axis] != 1]
        if moved == sorted(moved):
            return in_shape(self._x, *(sizes[axis] for axis in order[1:]))
        return tf.transpose(self._cut, order)

    def channels_last(self) -> Iterator[tf.Tensor]:
        """``[B, *places, b C]`` for each step over the kernel."""
        if math.prod(self.window.strides) == 1:
            x = self._x
        elif self._whole_blocks:
            x = self._transposed([0, *self._blocks, *self._within, 2 * self.rank + 1])
            x = in_shape(x, *(_size(x, 1 + axis) for axis in range(self.rank)), math.prod(x.shape[1 + self.rank :]))
        else:
            x = self._cut
        for steps in itertools.product(*map(range, self.steps)):
            where = [self._where(axis, step) for axis, step in enumerate(steps)]
            if self._whole_blocks:
                yield self._shown(x, [shown.start for _, shown in where])
            else:
                yield x[(slice(None), *itertools.chain(*((shown, place) for place, shown in where)))]

    def _shown(self, x: tf.Tensor, start: list[int]) -> tf.Tensor:
        if all(isinstance(count, int) for count in self.counts):
            return tf.slice(x, [0, *start, 0], [-1, *self.counts, -1])
        return x[(slice(None), *(slice(one, one + count) for one, count in zip(start, self.counts, strict=True)))]

    def channels_first(self) -> Iterator[tf.Tensor]:
        """``[B, k b C, *places]`` for each row of the k steps along the last dimension.

        The inner dimensions of a slice are places here, copied in runs however few the channels are.
        """
        whole, last = slice(None), self.rank - 1
        x = self._transposed([0, *self._within, 2 * self.rank + 1, *self._blocks])
        if self._whole_blocks:
            sizes = (_size(x, 2 + self.rank + axis) for axis in range(self.rank))
            x = in_shape(x, *[1] * self.rank, math.prod(x.shape[1 : 2 + self.rank]), *sizes)
        # The last dimension's steps first, over everything: then a row is one slice.
        ends = [self._where(last, step) for step in range(self.steps[last])]
        x = tf.concat([x[(whole, *[whole] * last, place, ..., shown)] for place, shown in ends], 1 + last)
        for steps in itertools.product(*map(range, self.steps[:last])):
            where = [self._where(axis, step) for axis, step in enumerate(steps)]
            yield x[(whole, *(place for place, _ in where), whole, *(shown for _, shown in where))]


def patches(x: tf.Tensor, window: Window, counts: Sequence) -> tf.Tensor:
    """``[B, *space, C]`` to ``[B, T, K, C]``: for every place the K values under the kernel."""
    views = list(Views(x, window, counts, block=(1,) * len(window.strides)).channels_last())
    stacked = tf.stack(views, axis=-2)
    return in_shape(stacked, _product(counts), len(views), x.shape[-1])


class Convolved(PerExampleGradient):
    """The gradients in a convolution's kernel ``[*kernel_size, C, F]``, from ``x`` ``[B, *space, C]`` and ``d``
    ``[B, *places, F]``. In ``shape`` dimensions of size 1 may be left out.

    ``form`` chooses how norms are computed: ``"gram"`` from the places' inner products, ``T^2 (K C + F)`` an example,
    ``"materialised"`` from the gradients themselves, an offset at a time, ``T K C F``; ``None`` takes the cheaper one.
    """

    def __init__(self, x, d, window: Window, shape, form=None):
        self.x = tf.cast(x, tf.float32)
        self.d = tf.cast(d, tf.float32)
        self.window, self.shape, self.form = window, tuple(shape), form
        self.counts = [_size(self.d, 1 + axis) for axis in range(len(window.strides))]
        self.places = _product(self.counts)
        self._built: list[tf.Tensor] | None = None  # the gradients, cut as `_products` cuts them
        self._again = False  # whether the sum is made of them without their having been kept

    def squared_norms(self, stretch=None):
        if stretch is None and self._form() == GRAM:
            return self._gram()
        parts = self._products()
        if len(parts) > 1 and math.prod(self.shape) <= _WORTH_JOINING:
            parts = [tf.concat(parts, 1)]
        if self._kept():
            self._built = parts
        self._again = not self._kept() and self._many_places()
        stretched = parts
        if stretch is not None:  # inner products of places know nothing of single coordinates
            stretches = tf.split(self._cut_like_products(stretch), len(parts))
            stretched = [part * t for part, t in zip(parts, stretches, strict=True)]
        squared = sum_of_squares_of(stretched, [1, 2])
        if self._kept() or self._again:
            return squared
        # T terms are added up here, and in the vector that is summed later.
        slack = 2 * of_sum(self.places) * self._scale()
        return raised(squared, slack if stretch is None else slack * largest_stretch(stretch))

    def _kept(self) -> bool:
        """Whether gradients, once built for their norms, are kept for the sum: with as many places as numbers in a patch there
        are no more of them than in ``d``."""
        width, filters = math.prod(self.shape[:-1]), self.shape[-1]
        return worth_keeping(width * filters, self.places * filters if isinstance(self.places, int) else None)

    def _many_places(self) -> bool:
        return not isinstance(self.places, int) or self.places > MANY_PLACES

    def _scale(self) -> tf.Tensor:
        """At least ``S = sum_t ||a_t|| ||d_t||``: by Cauchy and Schwarz its square is at most the product of the sums over t of
        ``||a_t||^2`` and ``||d_t||^2``."""
        width, filters = math.prod(self.shape[:-1]), self.shape[-1]
        x2, d2 = (sum_of_squares(v, range(1, len(v.shape))) for v in (self._seen(), self.d))
        places = float(self.places) if isinstance(self.places, int) else tf.cast(self.places, tf.float32)
        a2 = self.window.cover * x2 + places * width * TINY
        return tf.sqrt(a2) * tf.sqrt(d2 + places * filters * TINY)

    def weighted_sum(self, coefficients, keep=None):
        if self._built is not None or self._again:
            # Not the same tensors, or they would stay in memory: only the same numbers.
            with tf.control_dependencies([] if self._built is not None else [coefficients]):
                parts = self._built or self._products()
            sums = [weighted_sum_of(part, coefficients, keep, flat=True) for part in parts]
            summed = sums[0] if len(sums) == 1 else tf.concat(sums, 1)
            return tf.reshape(self._in_order(summed) if self._moves else summed, self.shape)
        x = rows(self._seen(), tf.not_equal(coefficients, 0) if keep is None else keep)
        d = weighted(self.d, coefficients)
        if len(self.counts) == 2 and math.prod(self.window.dilation) == 1:
            window, (down, across) = self.window, self.window.strides
            summed = tf.raw_ops.Conv2DBackpropFilter(
                input=x,
                filter_sizes=[*window.kernel_size, *self.shape[-2:]],
                out_backprop=d,
                strides=[1, down, across, 1],
                padding=window.padding.upper(),
            )
            return tf.reshape(summed, self.shape)
        kernel = tf.zeros(self.shape)
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            output = self._convolution(x, kernel)
        return tape.gradient(output, kernel, d)

    def inner_products(self, v):
        """The convolution is linear in its kernel, with ``g`` for a gradient: ``g . v`` is its output at ``v``, times ``d``."""
        inner = tf.reduce_sum(self._convolution(self._seen(), v) * self.d, range(1, len(self.d.shape)))
        share = SUMMATION + of_sum(math.prod(self.shape[:-1])) + of_sum(self.places)
        return inner - share * tf.norm(v) * self._scale()

    def _convolution(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        window = self.window
        return tf.nn.convolution(
            x,
            tf.reshape(kernel, [*window.kernel_size, *self.shape[-2:]]),
            strides=window.strides,
            padding=window.padding.upper(),
            dilations=window.dilation,
            data_format=_CHANNELS_LAST[len(window.strides)],
        )

    def materialise(self):
        return self._in_order(tf.concat(self._products(), 1))

    def as_products(self):
        width = math.prod(self.shape[:-1])
        seen = patches(self.x, self.window, self.counts)
        a = in_shape(seen, 1, self.places, width)
        return OuterSum(a, self._d()[:, None], self.shape, form=self.form)

    def fold(self, batch):
        return self.as_products().fold(batch)

    def some(self, cut):
        return Convolved(cut(self.x), cut(self.d), self.window, self.shape, self.form)

    def _seen(self) -> tf.Tensor:
        """``x``, finite wherever no window looks. What is not finite there leaves norms finite, but a kernel may multiply it
        by 0: NaN. Where a window looks, the norm is not finite, and the example is left out."""
        return self.x if self.window.sees_everything else tf.where(tf.math.is_finite(self.x), self.x, 0.0)

    def _d(self) -> tf.Tensor:
        return in_shape(self.d, self.places, self.shape[-1])

    def _products(self) -> list[tf.Tensor]:
        """The gradients, cut along the steps over the kernel: ``[B, steps * values of a block * C, F]`` each."""
        d, views = self._d(), Views(self.x, self.window, self.counts)
        seen = math.prod(self.window.block) * self.shape[-2]
        if seen < _FEW_CHANNELS:
            shape = (seen * views.steps[-1], self.places)
            return _one_by_one(views.channels_first(), lambda view: tf.matmul(in_shape(view, *shape), d))
        shape = (self.places, seen)
        return _one_by_one(views.channels_last(), lambda view: tf.matmul(in_shape(view, *shape), d, transpose_a=True))

    def _in_order(self, products: tf.Tensor) -> tf.Tensor:
        """``[N, K C, F]``, step after step, as ``[N, *kernel_size, C, F]``."""
        steps, block = self._steps_and_block()
        rank = len(block)
        cut = tf.reshape(products, [-1, *steps, *block, *self.shape[-2:]])
        along = itertools.chain(*((1 + axis, 1 + rank + axis) for axis in range(rank)))
        return tf.reshape(tf.transpose(cut, [0, *along, 2 * rank + 1, 2 * rank + 2]), [-1, *self.shape])

    def _cut_like_products(self, kernel: tf.Tensor) -> tf.Tensor:
        """The way back from ``_in_order``, of one tensor in the kernel's shape: ``[K C, F]``, step after step."""
        steps, block = self._steps_and_block()
        rank = len(block)
        cut = tf.reshape(kernel, [*itertools.chain(*zip(steps, block, strict=True)), *self.shape[-2:]])
        along = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2), 2 * rank, 2 * rank + 1]
        return tf.reshape(tf.transpose(cut, along), [-1, self.shape[-1]])

    @property
    def _moves(self) -> bool:
        """Whether products are in another order than the kernel."""
        return math.prod(self.window.block) > 1

    def _steps_and_block(self) -> tuple[list[int], tuple[int, ...]]:
        block = self.window.block
        return [k // b for k, b in zip(self.window.kernel_size, block, strict=True)], block

    def _gram(self) -> tf.Tensor:
        """Squared norms, from the places' inner products; those of patches add up over the offsets."""
        d, seen = self._d(), math.prod(self.window.block) * self.shape[-2]
        views = Views(self.x, self.window, self.counts).channels_last()
        shape = (self.places, seen)
        grams = _one_by_one(views, lambda view: tf.linalg.matmul(*[in_shape(view, *shape)] * 2, transpose_b=True))
        d_gram = tf.matmul(d, d, transpose_b=True)
        width, filters = math.prod(self.shape[:-1]), self.shape[-1]
        return squared_norm_of_grams(tf.add_n(grams), d_gram, width, filters, of_sum(self.places))

    def _form(self) -> str:
        form = self.form or form_of_norms()
        if form is not None:
            return form
        width, filters = math.prod(self.shape[:-1]), self.shape[-1]
        if not isinstance(self.places, int):  # unknown: its square is the risk
            return MATERIALISED
        return cheaper_form(self.places, width, filters)


def _one_by_one(views: Iterator[tf.Tensor], use: Callable[[tf.Tensor], tf.Tensor]) -> list[tf.Tensor]:
    """What use makes of each view; a view is not made before the last was used, so that there is one in memory."""
    made: list[tf.Tensor] = []
    while True:
        with tf.control_dependencies(made[-1:]):
            view = next(views, None)
        if view is None:
            return made
        made.append(use(view))


def _size(values: tf.Tensor, axis: int) -> int | tf.Tensor:
    return values.shape[axis] if values.shape[axis] is not None else tf.shape(values)[axis]


def _product(sizes: Sequence) -> int | tf.Tensor:
    return math.prod(sizes) if all(isinstance(size, int) for size in sizes) else tf.reduce_prod(tf.stack(sizes))


def _largest(one, other):
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else tf.maximum(one, other)
