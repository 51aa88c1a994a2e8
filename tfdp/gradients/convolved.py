"""Per-example kernel gradients of convolutions, without all patches in memory.

At the kernel's offset ``o`` (one of the places under it), with stride ``s`` and dilation ``r``, the gradient is

    g[i][o] = sum_t x[i, s t + r o] (x) d[i, t],

a matrix product over the output's places ``t`` for each offset. So norms need one shifted view of ``x`` at a time, and a
weighted sum is the gradient of an ordinary convolution.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfdp.gradients.factored import (
    EPSILON,
    GRAM,
    MATERIALISED,
    TINY,
    OuterSum,
    PerExampleGradient,
    rows,
    weighted,
    weighted_sum_of,
    worth_keeping,
)

_CHANNELS_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
_FEW_CHANNELS = 32  # with fewer, one offset makes a thin matrix: a row of the kernel's offsets is taken together


@dataclasses.dataclass(frozen=True)
class Window:
    """What a convolution sees: one number a spatial dimension; ``padding`` is "valid" or "same"."""

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: str

    @property
    def offsets(self) -> list[tuple[int, ...]]:
        return list(itertools.product(*(range(k) for k in self.kernel_size)))

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
    ``q`` on at place ``p``.
    """

    def __init__(self, x: tf.Tensor, window: Window, counts: Sequence):
        self.window, self.counts, self.rank = window, counts, len(counts)
        x = self._padded(x)
        blocks = [_size(x, 1 + axis) // s for axis, s in enumerate(window.strides)]
        cut = [dimension for n, s in zip(blocks, window.strides, strict=True) for dimension in (n, s)]
        self._blocks = tf.reshape(x, tf.stack([tf.shape(x)[0], *cut, x.shape[-1]]))

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
        return tf.pad(x[tuple(cuts)], [*pads, [0, 0]])

    def _where(self, axis: int, offset: int) -> tuple[int, slice]:
        """(place in its block, blocks) of the values that an offset shows along a dimension."""
        block, place = divmod(offset * self.window.dilation[axis], self.window.strides[axis])
        return place, slice(block, block + self.counts[axis])

    def channels_last(self) -> Iterator[tf.Tensor]:
        """``[B, *places, C]`` for each offset."""
        for offset in self.window.offsets:
            where = [self._where(axis, o) for axis, o in enumerate(offset)]
            yield self._blocks[(slice(None), *itertools.chain(*((blocks, place) for place, blocks in where)))]

    def channels_first(self, by_rows: bool) -> Iterator[tf.Tensor]:
        """``[B, C, *places]`` for each offset; ``[B, k C, *places]`` for each row of the k offsets of the last dimension.

        The inner dimensions of a slice are places here, copied in runs however few the channels are.
        """
        within, block, channel = range(2, 2 * self.rank + 1, 2), range(1, 2 * self.rank, 2), 2 * self.rank + 1
        x = tf.transpose(self._blocks, [0, channel, *within, *block])
        whole, outer = slice(None), self.rank - 1 if by_rows else self.rank
        if by_rows:  # the last dimension's offsets first, over everything: then a row is one slice
            last = [self._where(outer, o) for o in range(self.window.kernel_size[outer])]
            x = tf.concat([x[(whole, whole, *[whole] * outer, place, ..., blocks)] for place, blocks in last], 1)
        for offset in itertools.product(*(range(k) for k in self.window.kernel_size[:outer])):
            where = [self._where(axis, o) for axis, o in enumerate(offset)]
            yield x[(whole, whole, *(place for place, _ in where), *(blocks for _, blocks in where))]


def patches(x: tf.Tensor, window: Window, counts: Sequence) -> tf.Tensor:
    """``[B, *space, C]`` to ``[B, T, K, C]``: for every place the K values under the kernel."""
    views = list(Views(x, window, counts).channels_last())
    stacked = tf.stack(views, axis=-2)
    return tf.reshape(stacked, tf.stack([tf.shape(x)[0], _product(counts), len(views), x.shape[-1]]))


class Convolved(PerExampleGradient):
    """The gradients in a convolution's kernel ``[*kernel_size, C, F]``, from ``x`` ``[B, *space, C]`` and ``d``
    ``[B, *places, F]``.

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

    def squared_norms(self):
        channels, filters = self.shape[-2:]
        width = math.prod(self.shape[:-1])
        x = self.x if self.window.sees_everything else tf.where(tf.math.is_finite(self.x), self.x, 0.0)
        x2, d2 = (tf.reduce_sum(tf.square(v), range(1, len(v.shape))) for v in (x, self.d))
        places = tf.cast(tf.shape(self._d())[1], tf.float32)
        # Sums over t of ||a_t||^2 and ||d_t||^2; by Cauchy and Schwarz (sum_t ||a_t|| ||d_t||)^2 is at most their product.
        a2, d2 = self.window.cover * x2 + places * width * TINY, d2 + places * filters * TINY
        if self._form() == GRAM:
            squared = tf.maximum(self._gram(), 0.0)
            return squared + 4 * EPSILON * a2 * d2 + places * TINY * (width * d2 + filters * a2)
        parts = self._products(by_rows=channels < _FEW_CHANNELS)
        if worth_keeping(math.prod(self.shape)):
            self._built = parts
        squared = tf.add_n([tf.reduce_sum(tf.square(part), [1, 2]) for part in parts])
        return tf.square(tf.sqrt(squared) + 2 * EPSILON * tf.sqrt(places) * tf.sqrt(a2) * tf.sqrt(d2))

    def weighted_sum(self, coefficients):
        if self._built is not None:
            sums = [weighted_sum_of(part, coefficients) for part in self._built]
            return tf.reshape(tf.concat(sums, 0), self.shape)
        keep = tf.not_equal(coefficients, 0)
        d = weighted(self.d, coefficients)
        kernel = tf.zeros(self.shape)
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            output = tf.nn.convolution(
                rows(self.x, keep),
                kernel,
                strides=self.window.strides,
                padding=self.window.padding.upper(),
                dilations=self.window.dilation,
                data_format=_CHANNELS_LAST[len(self.window.strides)],
            )
        return tape.gradient(output, kernel, d)

    def materialise(self):
        return tf.reshape(tf.concat(self._products(by_rows=True), 1), [-1, *self.shape])

    def as_products(self):
        width = math.prod(self.shape[:-1])
        seen = patches(self.x, self.window, self.counts)
        a = tf.reshape(seen, tf.stack([tf.shape(self.x)[0], 1, self.places, width]))
        return OuterSum(a, self._d()[:, None], self.shape, form=self.form)

    def fold(self, batch):
        return self.as_products().fold(batch)

    def _d(self) -> tf.Tensor:
        return tf.reshape(self.d, tf.stack([tf.shape(self.d)[0], self.places, self.shape[-1]]))

    def _products(self, by_rows: bool) -> list[tf.Tensor]:
        """The gradients, cut along the kernel's offsets: ``[B, offsets * C, F]`` each."""
        d, batch, channels = self._d(), tf.shape(self.x)[0], self.shape[-2]
        rows_of = channels * self.window.kernel_size[-1] if by_rows else channels
        views = Views(self.x, self.window, self.counts).channels_first(by_rows)
        return [tf.matmul(tf.reshape(view, tf.stack([batch, rows_of, self.places])), d) for view in views]

    def _gram(self) -> tf.Tensor:
        """``sum_{t,u} (a_t . a_u)(d_t . d_u)``; the inner products of patches add up over the offsets."""
        d, batch, channels = self._d(), tf.shape(self.x)[0], self.shape[-2]
        views = Views(self.x, self.window, self.counts).channels_last()
        flat = [tf.reshape(view, tf.stack([batch, self.places, channels])) for view in views]
        patches_gram = tf.add_n([tf.matmul(view, view, transpose_b=True) for view in flat])
        return tf.reduce_sum(patches_gram * tf.matmul(d, d, transpose_b=True), [1, 2])

    def _form(self) -> str:
        if self.form is not None:
            return self.form
        width, filters = math.prod(self.shape[:-1]), self.shape[-1]
        if not isinstance(self.places, int):  # unknown: its square is the risk
            return MATERIALISED
        return GRAM if self.places * (width + filters) < width * filters else MATERIALISED


def _size(values: tf.Tensor, axis: int) -> int | tf.Tensor:
    return values.shape[axis] if values.shape[axis] is not None else tf.shape(values)[axis]


def _product(sizes: Sequence) -> int | tf.Tensor:
    return math.prod(sizes) if all(isinstance(size, int) for size in sizes) else tf.reduce_prod(tf.stack(sizes))


def _largest(one, other):
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else tf.maximum(one, other)
