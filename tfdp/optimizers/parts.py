"""A lot in parts: physical batches, run one after the other inside one step."""

from typing import Any

import tensorflow as tf

from tfdp.gradients.layer_tree import map_tensors


def even(rows: tf.Tensor, most: int, unit: int = 1) -> tf.Tensor:
    """The size of equal parts of at most ``most`` rows, as few as that takes; a multiple of ``unit`` rows that stay together."""
    parts = -(-rows // max(unit, most - most % unit))
    return unit * -(-rows // (parts * unit))


def part_of(record: Any, present: tf.Tensor, start: tf.Tensor, limit: int | tf.Tensor, padded: bool) -> tuple:
    """Rows ``start, start + 1, ...`` of a lot. If ``padded``, the last part is as long as the others (a library sets itself up for
    every new length), with copies of the lot's last row that are not present."""
    rows = tf.shape(present)[0]
    places = start + tf.range(tf.minimum(limit, rows))
    if not padded:
        places = places[: rows - start]
    shown = tf.minimum(places, rows - 1)
    record, present = map_tensors(lambda t: tf.gather(t, shown), (record, present))
    return record, present & (places < rows)


def not_empty(record, present):
    """A model can't be run on no rows: an empty lot becomes one of zeros, or empty texts, that is not present.

    Padding by nothing hands its input on as it is.
    """
    missing = tf.cast(tf.equal(tf.size(present), 0), tf.int32)
    paddings: dict[int, tf.Tensor] = {}

    def one_row_at_least(t):
        rank = len(t.shape)
        if rank not in paddings:
            paddings[rank] = tf.constant([[0, 1], *[[0, 0]] * (rank - 1)]) * missing
        if t.dtype == tf.string:
            filled = tf.raw_ops.PadV2(input=t, paddings=paddings[rank], constant_values="")
        else:
            filled = tf.raw_ops.Pad(input=t, paddings=paddings[rank])
        filled.set_shape([None, *t.shape[1:]])
        return filled

    return map_tensors(one_row_at_least, record), one_row_at_least(present)
