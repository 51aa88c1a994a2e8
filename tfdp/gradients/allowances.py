"""How far float32 sums of products may be from what they stand for, as a share of the sum of their terms' sizes.

Three bounds, for three kinds of kernels:

* ``of_sum(n)``: n products, added up in whatever order. Each addition errs by at most 2^-24 of what was added up so far
  (Higham, "Accuracy and stability of numerical algorithms", section 3.1). Kernels come near it: n equal numbers, one after the
  other, err by up to 0.37 n 2^-24, because they are rounded the same way as long as their sum has the same exponent. So do
  TensorFlow's kernel gradients of convolutions, segment sums, and products of a matrix and a vector.
* ``of_product(n, rows, columns)``: an entry of a matrix product. Its kernels add up blocks of at most 1,024 products, and the
  blocks' sums after that: it grows no further. XLA writes small ones as plain loops, and TensorFlow takes those with one row
  or column for a matrix and a vector.
* ``of_reduction(n)``: a sum over the last dimensions, or of squares. It adds up some sums side by side, and 1,024 numbers at once.

The square root of n, which would do for errors of either sign, does not: a record may be a constant image.
"""

import tensorflow as tf

from tfdp.gradients.compilation import under_xla
from tfdp.gradients.forms import allowed

TINY = 2.0**-126  # a float32 product below this reads as 0
SUMMATION = 2.0**-15  # more than a reduction errs by, however many numbers it adds up
_HALF_SPACING = 2.0**-24  # of float32 numbers at 1
_BLOCK = 1024
_SIDE_BY_SIDE = 16  # measured: 32
_FEW = 4  # rows or columns, of which XLA makes loops

Number = int | tf.Tensor


def of_sum(terms: Number) -> float | tf.Tensor:
    """In any order. Two terms more: a product is rounded, and so is what its coefficient made of a factor."""
    return allowed(1.0) * (_float(terms) + 2) * _HALF_SPACING


def of_product(terms: Number, rows: Number, columns: Number) -> float | tf.Tensor:
    """An entry of a matrix product with so many rows and columns."""
    few = _FEW if under_xla() else 2
    if any(isinstance(size, int) and size < few for size in (rows, columns)):
        return of_sum(terms)
    return of_sum(min(terms, _BLOCK) if isinstance(terms, int) else tf.minimum(terms, _BLOCK))


def of_reduction(terms: Number | None) -> float | tf.Tensor:
    """A sum over the last dimensions; of any number of terms, if that is None."""
    if terms is None:
        return allowed(SUMMATION)
    share = allowed(1.0) * (_float(terms) / _SIDE_BY_SIDE + 8) * _HALF_SPACING
    return tf.minimum(share, allowed(SUMMATION)) if tf.is_tensor(share) else min(share, allowed(SUMMATION))


def squared_norm_of_grams(a_gram: tf.Tensor, d_gram: tf.Tensor, p: int, q: int, of_later_sum) -> tf.Tensor:
    """At least ``||sum_t a_t (x) d_t||^2 = sum_{t,u} (a_t . a_u)(d_t . d_u)``, of computed inner products ``[..., T, T]`` of
    vectors with p and q numbers; and of the vector that is summed later, whose T terms err by ``of_later_sum``.

    ``a_t . a_u`` errs by a share of ``||a_t|| ||a_u||``, which counts as much as ``d_t . d_u`` is large, and the other way round: far less
    than a share of ``S^2 = (sum_t ||a_t|| ||d_t||)^2`` where places have little in common.
    """
    count = a_gram.shape[-1] if a_gram.shape[-1] is not None else tf.shape(a_gram)[-1]
    a, d = (tf.sqrt(tf.linalg.diag_part(gram) + size * TINY) for gram, size in ((a_gram, p), (d_gram, q)))
    of_a, of_d = of_product(p, count, count), of_product(q, count, count)
    slack = (of_a + of_reduction(_float(count) ** 2)) * _form(tf.abs(d_gram), a) + of_d * _form(tf.abs(a_gram), d)
    # Products below TINY read as 0, yet the other factor may be large.
    slack += p * TINY * tf.square(tf.reduce_sum(d, -1)) + q * TINY * tf.square(tf.reduce_sum(a, -1))
    scale = tf.reduce_sum(a * d, -1)
    squared = tf.maximum(tf.reduce_sum(a_gram * d_gram, [-2, -1]), 0.0) + slack + of_a * of_d * tf.square(scale)
    return raised(squared, of_later_sum * scale)


def raised(squared: tf.Tensor, slack: tf.Tensor) -> tf.Tensor:
    """The square of a norm that is larger by so much."""
    return tf.square(tf.sqrt(squared) + slack)


def _form(matrix: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.linalg.matvec(matrix, v) * v, -1)


def _float(terms: Number) -> float | tf.Tensor:
    return tf.cast(terms, tf.float32) if tf.is_tensor(terms) else float(terms)
